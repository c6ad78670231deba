"""Parameter sets of the paper's figures, and their lines from the cost model.

The paper tunes its weights per experiment and does not print them. So only the ranking of the plans and the crossings
count.

References: Tran, Lee, Figures 6 to 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from watersmeet.errors import InputError, listing
from watersmeet.planner.models.tran import UNIT_WEIGHTS, AggregationJoin, AggregationWeights, Input, Method, plan_costs
from watersmeet_lab.papers.exhibit import FigureLines, figure_from_points

#: Figures 6 and 7: two inputs, the grouping attribute in the first.
TWO_WAY = (Input(300, 5000, groups=150, selectivity=0.1), Input(300, 5000, groups=1, selectivity=0.1))
#: Figures 8 and 9: three inputs.
THREE_WAY = (Input(200, 300, groups=20, selectivity=0.1), *(Input(200, 300, groups=1, selectivity=0.1),) * 2)

#: Figure 10: the best plan by setting. The stored text lacks the captions of (a) and (b); their settings follow section
#: 7.2.3.
SHOWCASES = {
    "LAP": (Input(500, 500, groups=1500, selectivity=0.01), Input(500, 500, groups=1500, selectivity=0.01)),
    "EAP10": (Input(500, 500, groups=1, selectivity=0.01), Input(500, 500, groups=1500, selectivity=0.01)),
    "EAP01": (Input(500, 500, groups=1500, selectivity=0.01), Input(500, 500, groups=1, selectivity=0.01)),
    "EAP11": (Input(500, 2000, groups=150, selectivity=0.1), Input(500, 2000, groups=150, selectivity=0.1)),
}

_GROUPS = tuple(float(3**power) for power in range(1, 10))
_SELECTIVITIES = (0.0005, 0.005, 0.05, 0.5)

Inputs = tuple[Input, ...]


def figure_6(part: str, weights: AggregationWeights = UNIT_WEIGHTS) -> FigureLines:
    """Compute a two-way hash join over (a) w1, (b) g1, (c) λ1 with λ2 = 500, (d) both σ.

    For (a), the caption has w2 = 2000, the text 5000.
    """
    return _two_way(part, "hash", weights)


def figure_7(part: str, weights: AggregationWeights = UNIT_WEIGHTS) -> FigureLines:
    """Compute Figure 6 by nested loops."""
    return _two_way(part, "nested loops", weights)


def figure_8(part: str, weights: AggregationWeights = UNIT_WEIGHTS) -> FigureLines:
    """Compute a three-way hash join over (a) w1, (b) g1, (c) λ1, (d) all σ; eight plans."""
    return _three_way(part, "hash", weights)


def figure_9(part: str, weights: AggregationWeights = UNIT_WEIGHTS) -> FigureLines:
    """Compute Figure 8 by nested loops."""
    return _three_way(part, "nested loops", weights)


def figure_10(
    best: str, weights: AggregationWeights = UNIT_WEIGHTS, a_per_s: Sequence[float] = range(100, 501, 50)
) -> FigureLines:
    """Compute two-way nested loops over λ1, in the setting in which the named plan should be the best."""
    if best not in SHOWCASES:
        raise InputError(f'Figure 10 has no part for "{best}"', hint=f"parts: {listing(list(SHOWCASES))}")
    first, *rest = SHOWCASES[best]
    return _lines("rows_per_s", a_per_s, lambda rate: (replace(first, rows_per_s=rate), *rest), "nested loops", weights)


def _two_way(part: str, method: Method, weights: AggregationWeights) -> FigureLines:
    return _part(
        part, TWO_WAY, method, weights, windows=range(1000, 5001, 1000), rates=range(100, 901, 100), other_rate=500
    )


def _three_way(part: str, method: Method, weights: AggregationWeights) -> FigureLines:
    return _part(
        part, THREE_WAY, method, weights, windows=range(100, 301, 50), rates=range(100, 601, 100), other_rate=200
    )


def _part(
    part: str,
    inputs: Inputs,
    method: Method,
    weights: AggregationWeights,
    windows: Sequence[float],
    rates: Sequence[float],
    other_rate: float,
) -> FigureLines:
    """Vary the first input in parts a to c, and all inputs in part d."""
    first, *rest = inputs
    others = tuple(replace(each, rows_per_s=other_rate) for each in rest)
    if part == "a":
        return _lines("window_rows", windows, lambda rows: (replace(first, window_rows=rows), *rest), method, weights)
    if part == "b":
        return _lines("groups", _GROUPS, lambda groups: (replace(first, groups=groups), *rest), method, weights)
    if part == "c":
        return _lines("rows_per_s", rates, lambda rate: (replace(first, rows_per_s=rate), *others), method, weights)
    if part == "d":
        return _lines(
            "selectivity",
            _SELECTIVITIES,
            lambda share: tuple(replace(each, selectivity=share) for each in inputs),
            method,
            weights,
        )
    raise InputError(f'the figure has no part "{part}"', hint="parts: a, b, c, d")


def _lines(
    axis: str,
    values: Sequence[float],
    inputs_at: Callable[[float], Inputs],
    method: Method,
    weights: AggregationWeights,
) -> FigureLines:
    return figure_from_points(
        axis, {value: plan_costs(AggregationJoin(inputs_at(value), method), weights) for value in values}
    )

"""Cost of an aggregation over a join on our kernels, exact with early aggregation or estimated from a shed join.

The exact model has the shape of the model of Tran and Lee (`models.tran`), generalised to any number of inputs and to
evaluation at intervals.

- A row enters and leaves its window once each. On an input that aggregates early it is first counted in its group.
- All rows of one early group that come and go between two evaluations are one change. On other inputs every row is one.
- A change probes the other inputs in order. On an early input it matches groups, at most one per combination of carried
  values. On the others it matches rows.
- Every result is one update of the query's aggregation set, found by hashing. There is no chain of groups to walk, so
  α/Bg is 1.

Estimates from a shed join need the rows of every combination. So the combinations are stored while they are inside
their windows, and every evaluation regroups all of them. Estimating therefore often costs more than the exact
aggregation, which updates its groups once per change.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", section 6.3, eqs. 1 to
4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields

from watersmeet.errors import PlanError
from watersmeet.planner.models.checks import check_not_negative, check_positive

#: Rows of input j that match a change of the bound inputs, or groups if j aggregates early: (bound, j) → number.
Matches = Callable[[frozenset[int], int], float]


@dataclass(frozen=True, slots=True)
class EarlyInput:
    """An input of the model: rows per second after selection, rows in its window, and its early groups (g/σ).

    `passes` counts how often a row is handled: twice if it enters and leaves, once if it never leaves. `order` is the
    order in which its changes probe the other inputs. `carried` is the number of its early groups per combination of
    join keys (g).
    """

    rows_per_s: float
    window_rows: float
    early_groups: float
    carried: float
    passes: int
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        check_not_negative(self.rows_per_s, "the rate of a stream")
        check_not_negative(self.window_rows, "the rows of a window")
        check_positive(self.early_groups, "the groups of a stream")
        check_positive(self.carried, "the combinations of values of a stream")
        if self.passes not in (1, 2):
            raise PlanError(f"a row is handled once or twice, got {self.passes}")


@dataclass(frozen=True, slots=True)
class EarlyWeights:
    """Seconds per row ingested, per row counted in its early group, per change, per probe, and per result."""

    row_s: float = 4.0e-7
    early_row_s: float = 1.2e-7
    change_s: float = 0.6e-7
    probe_s: float = 0.4e-7
    result_s: float = 0.5e-7

    def __post_init__(self) -> None:
        for each in fields(self):
            check_not_negative(getattr(self, each.name), f"the weight {each.name} of an aggregation")


@dataclass(frozen=True, slots=True)
class InputCost:
    """Cost of one input per second: storing its rows, and joining their changes."""

    keep_s: float
    join_s: float
    changes_per_s: float
    results_per_s: float


def changes_per_s(each: EarlyInput, interval_s: float, *, early: bool) -> float:
    """Estimate the changes of an input per second: its rows, or the early groups that rows fall into per interval.

    >>> rows = EarlyInput(300, 5000, early_groups=10, carried=1, passes=2, order=(1,))
    >>> changes_per_s(rows, 1.0, early=False), round(changes_per_s(rows, 1.0, early=True), 3)
    (600.0, 10.0)

    """
    rows = each.rows_per_s * each.passes * interval_s
    if not early or rows == 0:
        return rows / interval_s
    return groups_hit(each.early_groups, rows) / interval_s


def groups_hit(groups: float, rows: float) -> float:
    """Estimate how many of g groups r rows fall into: g·(1 − (1 − 1/g)^r), never more than r.

    The paper uses min(r, g).

    >>> round(groups_hit(150, 500), 1), groups_hit(1, 500), round(groups_hit(1e9, 500), 1)
    (144.7, 1.0, 500.0)

    References: Cardenas, "Analysis and performance of inverted data base structures", 1975.
    """
    if groups <= 1:
        return min(rows, 1.0)
    return min(rows, groups * -math.expm1(rows * math.log1p(-1 / groups)))


def input_costs(
    inputs: Sequence[EarlyInput], early: Collection[int], matches: Matches, interval_s: float, weights: EarlyWeights
) -> list[InputCost]:
    """Estimate the cost of every input under the plan that aggregates the inputs `early` before the join."""
    return [_input_cost(inputs, k, early, matches, interval_s, weights) for k in range(len(inputs))]


def _input_cost(
    inputs: Sequence[EarlyInput],
    k: int,
    early: Collection[int],
    matches: Matches,
    interval_s: float,
    weights: EarlyWeights,
) -> InputCost:
    each = inputs[k]
    keep = each.rows_per_s * weights.row_s + (
        each.rows_per_s * each.passes * weights.early_row_s if k in early else 0.0
    )
    changes = changes_per_s(each, interval_s, early=k in early)
    reached, cost, bound = changes, changes * weights.change_s, frozenset({k})
    for j in each.order:
        cost += reached * weights.probe_s
        met = matches(bound, j)
        reached *= groups_hit(inputs[j].carried, met) if j in early else met
        bound |= {j}
    return InputCost(keep, cost + reached * weights.result_s, changes, reached)


@dataclass(frozen=True, slots=True)
class EstimateWeights:
    """Seconds per evaluation, per combination inside its windows, per combination that is not valid yet, and per group.

    The defaults were measured with three aggregates over a join of two shed streams. Calibration does not measure them.
    """

    evaluation_s: float = 5e-4
    combination_s: float = 1.2e-6
    waiting_s: float = 2e-8
    group_s: float = 3e-5

    def __post_init__(self) -> None:
        for each in fields(self):
            check_not_negative(getattr(self, each.name), f"the weight {each.name} of an estimate")


@dataclass(frozen=True, slots=True)
class EstimateLoad:
    """Load of the evaluations: how many per second, and how many combinations and groups each of them visits."""

    evaluations_per_s: float
    combinations: float
    waiting: float
    groups: float


def estimation_cost_per_s(load: EstimateLoad, weights: EstimateWeights) -> float:
    """Estimate CPU seconds per second spent on evaluations.

    >>> load = EstimateLoad(evaluations_per_s=2, combinations=1000, waiting=0, groups=10)
    >>> round(estimation_cost_per_s(load, EstimateWeights(5e-4, 1e-6, 2e-8, 3e-5)), 9)
    0.0036
    """
    seen_s = (
        load.combinations * weights.combination_s + load.waiting * weights.waiting_s + load.groups * weights.group_s
    )
    return load.evaluations_per_s * (weights.evaluation_s + seen_s)

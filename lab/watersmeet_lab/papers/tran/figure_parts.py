"""The four parts of Figures 6 to 9: the model's panels and tables, and measurements of every plan.

Measurements run at some places of each axis and show whether a plan ranks where the model puts it. The paper's plans
are also costed by the model of our kernels (`planner.models.early_aggregation`), to tell how much of a difference the
kernels explain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations

from watersmeet.planner.models.early_aggregation import EarlyInput, EarlyWeights, input_costs
from watersmeet.planner.models.tran import AggregationJoin, Input, all_plans, plan_costs, plan_name, window_matches
from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import (
    FigureLines,
    Line,
    LinePanel,
    Plot,
    Table,
    figure_from_points,
    lines_table,
    model_lines,
)
from watersmeet_lab.papers.tran.aggregation_join_runs import measure_plans

PARTS = ("a", "b", "c", "d")
AXES = {
    "a": "rows in the first window",
    "b": "groups in the first stream",
    "c": "rows per second of the first stream",
    "d": "join selectivity",
}
_LOG_PARTS = ("b", "d")

#: Lines of a figure from the cost model, by part.
ModelParts = dict[str, FigureLines]
#: Plans closer than this count as equal: measurements vary by a few per cent.
_TIE = 0.1
#: Plans closer than this in the model count as equal there.
_SAME = 0.001
Inputs = tuple[Input, ...]
#: Seconds between evaluations in the runs.
_EVERY_S = 1.0


def model_parts(modelled: Callable[[str], FigureLines]) -> ModelParts:
    """Compute all parts of a figure with the cost model."""
    return {part: modelled(part) for part in PARTS}


def plot_model_parts(number: int, title: str, parts: ModelParts) -> Plot:
    """Plot the model's lines, one panel per part."""
    panels = tuple(
        LinePanel(
            f"({part}) over {AXES[part]}",
            AXES[part],
            "cost per second",
            model_lines(figure),
            log_x=part in _LOG_PARTS,
            log_y=True,
        )
        for part, figure in parts.items()
    )
    return Plot(f"figure-{number}", f"Figure {number}: {title}", panels)


def tabulate_model_parts(number: int, parts: ModelParts) -> tuple[Table, ...]:
    """Return the model's lines as tables, one per part."""
    return tuple(
        lines_table(
            f"figure-{number}{part}", f"Figure {number}{part}: cost per second", model_lines(figure), AXES[part]
        )
        for part, figure in parts.items()
    )


def is_rising(line: tuple[float, ...]) -> bool:
    return list(line) == sorted(line)


def format_ends(name: str, line: tuple[float, ...]) -> str:
    """Format the ends of a line.

    >>> format_ends("LAP", (1000.0, 2500.0))
    'LAP 1,000 to 2,500'
    """
    return f"{name} {line[0]:,.0f} to {line[-1]:,.0f}"


@dataclass(frozen=True, slots=True)
class AxisPoints:
    """Measured places on each axis, and the rate of the other streams in part (c)."""

    windows: tuple[float, ...]
    groups: tuple[float, ...]
    rates: tuple[float, ...]
    selectivities: tuple[float, ...]
    other_rate: float

    def values_of(self, part: str) -> tuple[float, ...]:
        return {"a": self.windows, "b": self.groups, "c": self.rates, "d": self.selectivities}[part]


TWO_WAY_POINTS = AxisPoints((1000, 3000, 5000), (3, 81, 2187), (100, 500, 900), (0.0005, 0.005, 0.05, 0.5), 500)
THREE_WAY_POINTS = AxisPoints((100, 200, 300), (3, 81, 2187), (100, 300, 600), (0.0005, 0.005, 0.05), 200)


@dataclass(frozen=True, slots=True)
class ModelledMeasurements:
    """A part measured and modelled at the same places: by the paper's model, and by that of our kernels."""

    ours: FigureLines
    model: FigureLines
    kernels: FigureLines

    def compare_rankings(self, model: FigureLines) -> Iterator[tuple[str, str, bool]]:
        """Yield all pairs of plans that differ in both the measurement and a model.

        The slower plan comes first; the flag tells whether the model ranks the two alike.
        """
        names = [name for name, _ in self.ours.lines]
        for place in range(len(self.ours.x)):
            for one, other in permutations(names, 2):
                here, there = (figure.line(one)[place] / figure.line(other)[place] for figure in (self.ours, model))
                if here > 1 + _TIE and abs(there - 1) > _SAME:
                    yield one, other, there > 1

    def count_agreements(self, model: FigureLines) -> tuple[int, int]:
        """Return how many of those pairs are ranked alike, and how many there are."""
        found = [alike for _, _, alike in self.compare_rankings(model)]
        return sum(found), len(found)


def measure_parts(effort: Effort, number: int, inputs: Inputs, points: AxisPoints) -> dict[str, ModelledMeasurements]:
    """Measure all parts of a figure."""
    found = {}
    small = tuple(replace(each, window_rows=each.window_rows / 10) for each in inputs) if effort.quick else inputs
    for part in PARTS[:1] if effort.quick else PARTS:
        effort.report(f"tran, Figure {number}{part}: every plan, measured")
        found[part] = measure_and_model(
            effort,
            effort.choose_points(points.values_of(part)),
            partial(_vary_inputs, part, small, other_rate=points.other_rate),
        )
    return found


def measure_and_model(
    effort: Effort, values: tuple[float, ...], inputs_at: Callable[[float], Inputs]
) -> ModelledMeasurements:
    """Measure and model one part at the given places."""
    joins = {value: AggregationJoin(inputs_at(value)) for value in values}
    return ModelledMeasurements(
        figure_from_points("value", {value: measure_plans(effort, join) for value, join in joins.items()}),
        figure_from_points("value", {value: plan_costs(join) for value, join in joins.items()}),
        figure_from_points("value", {value: kernel_plan_costs(join) for value, join in joins.items()}),
    )


def rank_claim(name: str, statement: str, parts: Mapping[str, ModelledMeasurements]) -> Claim:
    """Return the claim that model and measurement rank the plans alike."""
    counts = {part: each.count_agreements(each.model) for part, each in parts.items()}
    alike, compared = _sum_agreements(counts.values())
    by_ours = _sum_agreements(each.count_agreements(each.kernels) for each in parts.values())
    share = alike / compared if compared else 1.0
    wrong = Counter(
        (slow, fast) for each in parts.values() for slow, fast, right in each.compare_rankings(each.model) if not right
    )
    mostly = ", ".join(f"{slow} is slower than {fast} ({count} times)" for (slow, fast), count in wrong.most_common(3))
    return shape_claim(
        name,
        statement,
        "the ranking is the same almost all the time",
        f"{alike} of {compared} pairs of plans that differ by more than {_TIE:.0%} are ranked as the model ranks them "
        f"({share:.0%}); by part " + ", ".join(f"({part}) {right} of {of}" for part, (right, of) in counts.items()),
        holds=share > 0.8,
        difference="" if share > 0.95 else f"against the model, {mostly}; {_explain_by_kernels(by_ours)}",
        reason=f"against the model, {mostly}; {_explain_by_kernels(by_ours)}",
    )


def _explain_by_kernels(agreement: tuple[int, int]) -> str:
    return (
        f"the model of our kernels ranks {agreement[0]} of {agreement[1]} alike "
        f"({agreement[0] / max(1, agreement[1]):.0%}). In it, every partial match probes the next input. In the "
        "paper's model each row probes each input once, and all changes of a group between two evaluations count as one"
    )


def _sum_agreements(agreements: Iterable[tuple[int, int]]) -> tuple[int, int]:
    found = list(agreements)
    return sum(right for right, _ in found), sum(of for _, of in found)


def plot_measured_parts(number: int, title: str, parts: Mapping[str, ModelledMeasurements]) -> Plot:
    panels = tuple(
        LinePanel(
            f"({part}) over {AXES[part]}",
            AXES[part],
            "ms of CPU per second",
            tuple(Line(name, each.ours.x, tuple(1e3 * y for y in line)) for name, line in each.ours.lines),
            log_x=part in _LOG_PARTS,
            log_y=True,
        )
        for part, each in parts.items()
    )
    return Plot(f"figure-{number}-measured", f"Figure {number}, measured: {title}", panels)


def tabulate_measured_parts(number: int, parts: Mapping[str, ModelledMeasurements]) -> tuple[Table, ...]:
    return tuple(
        lines_table(
            f"figure-{number}{part}-measured",
            f"Figure {number}{part}, measured: CPU seconds per second",
            [Line(name, each.ours.x, line) for name, line in each.ours.lines],
            AXES[part],
        )
        for part, each in parts.items()
    )


def _vary_inputs(part: str, inputs: Inputs, value: float, other_rate: float) -> Inputs:
    """Change one parameter as the figures do: parts a to c vary the first input, part d varies all of them."""
    first, *rest = inputs
    if part == "a":
        return replace(first, window_rows=value), *rest
    if part == "b":
        return replace(first, groups=value), *rest
    if part == "c":
        return replace(first, rows_per_s=value), *(replace(each, rows_per_s=other_rate) for each in rest)
    return tuple(replace(each, selectivity=value) for each in inputs)


def kernel_plan_costs(join: AggregationJoin) -> dict[str, float]:
    """Estimate CPU seconds per second of every plan with the shipped weights of our kernels."""
    count = len(join.inputs)
    return {plan_name(early, count): _plan_cost(join, early) for early in all_plans(count)}


def _plan_cost(join: AggregationJoin, early: frozenset[int]) -> float:
    inputs = [
        EarlyInput(
            each.rows_per_s,
            each.window_rows,
            each.groups / each.selectivity,
            each.groups,
            each.passes,
            _probe_order(join, k, early),
        )
        for k, each in enumerate(join.inputs)
    ]
    costs = input_costs(inputs, early, lambda _, j: window_matches(join.inputs[j]), _EVERY_S, EarlyWeights())
    return sum(each.keep_s + each.join_s for each in costs)


def _probe_order(join: AggregationJoin, origin: int, early: frozenset[int]) -> tuple[int, ...]:
    """Return the probe order of `operators.window_join.config` when all inputs share one key."""
    others = [j for j in range(len(join.inputs)) if j != origin]
    return tuple(
        sorted(others, key=lambda j: (j not in early, join.inputs[j].window_rows / join.inputs[j].rows_per_s, j))
    )

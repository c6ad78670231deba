"""Figures 8 and 9: the eight plans of a three-way aggregation join, and the effect of more inputs."""

from __future__ import annotations

from watersmeet.planner.models.tran import AggregationJoin, best_plan, plan_cost, plan_name
from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Table
from watersmeet_lab.papers.tran.figure_parts import (
    THREE_WAY_POINTS,
    ModelParts,
    format_ends,
    is_rising,
    measure_parts,
    model_parts,
    plot_measured_parts,
    plot_model_parts,
    rank_claim,
    tabulate_measured_parts,
    tabulate_model_parts,
)
from watersmeet_lab.papers.tran.models import THREE_WAY, figure_8, figure_9


def figures_8_and_9(effort: Effort) -> Exhibit:
    hashed, nested = model_parts(figure_8), model_parts(figure_9)
    ours = measure_parts(effort, 8, THREE_WAY, THREE_WAY_POINTS)
    gains = {inputs: early_aggregation_gain(inputs) for inputs in (2, 3, 4, 5)}
    return Exhibit(
        "Figures 8 and 9: three-way aggregation joins",
        "From the cost model, all weights equal. Defaults: λ 200, w 300, g1 20, g2 = g3 = 1, σ 0.1. The paper gives "
        "formulas for two inputs only; with more, probes add up and matches multiply, as in its algorithm.",
        (
            *_claims(8, hashed),
            *_claims(9, nested),
            _gain_claim(gains),
            rank_claim(
                "tran.figure8.measured", "model and measurement rank the plans of a three-way join the same", ours
            ),
        ),
        (
            *tabulate_model_parts(8, hashed),
            *tabulate_model_parts(9, nested),
            *tabulate_measured_parts(8, ours),
            _gains_table(gains),
        ),
        (
            plot_model_parts(8, "three-way hash join", hashed),
            plot_measured_parts(8, "three-way hash join", ours),
            plot_model_parts(9, "three-way nested loops", nested),
        ),
    )


def early_aggregation_gain(inputs: int) -> float:
    """Return the cost of the late plan over the best plan, by hash; every further input is like the second."""
    join = AggregationJoin((THREE_WAY[0], *(THREE_WAY[1],) * (inputs - 1)))
    return plan_cost(join) / plan_cost(join, best_plan(join))


def _claims(number: int, parts: ModelParts) -> list[Claim]:
    figure = parts["a"]
    lowest = {figure.lowest_line(place) for place in range(len(figure.x))}
    all_early = plan_name({0, 1, 2}, 3)
    return [
        shape_claim(
            f"tran.figure{number}a.best",
            "aggregating every input early is best at the defaults",
            all_early,
            f"{', '.join(sorted(lowest))} over all w1; LAP {figure.line('LAP')[-1] / figure.line(all_early)[-1]:.0f} "
            "times as expensive at w1 = 300",
            holds=figure.lowest_line(len(figure.x) - 1) == all_early,
        ),
        shape_claim(
            f"tran.figure{number}.trends",
            "the trends are those of two-way joins: plans without early aggregation of S1 grow with w1, the others "
            "stop",
            "the same trends",
            "; ".join(format_ends(name, figure.line(name)) for name in ("LAP", "EAP011", "EAP100", all_early)),
            holds=is_rising(figure.line("LAP"))
            and is_rising(figure.line("EAP011"))
            and figure.line("EAP100")[-1] == figure.line("EAP100")[-2]
            and figure.line(all_early)[-1] == figure.line(all_early)[-2],
        ),
    ]


def _gain_claim(gains: dict[int, float]) -> Claim:
    return shape_claim(
        "tran.figure8.inputs",
        "the gain of early aggregation grows with the number of inputs",
        "bigger than in the two-way case",
        ", ".join(f"{by:.1f} times with {inputs} inputs" for inputs, by in gains.items()),
        holds=is_rising(tuple(gains.values())),
    )


def _gains_table(gains: dict[int, float]) -> Table:
    return Table("gains", "Cost of late aggregation over the best plan", ("inputs", "times"), tuple(gains.items()))

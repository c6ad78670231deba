"""The paper's Example 1: its query, its three plans, and their output as the cost per row grows.

References: Ayad, Naughton, Example 1, Figures 3 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.planner.models.ayad import JoinNode, PlanNode, SideCosts, SourceNode
from watersmeet.planner.models.ayad_drops import best_drops
from watersmeet.planner.models.ayad_search import JoinPredicate, JoinQuery, cost_per_row
from watersmeet_lab.papers.exhibit import FigureLines, figure_from_points

A, B, C = (SourceNode(name, rate, window_rows=10) for name, rate in (("A", 10), ("B", 20), ("C", 70)))
ROW_TIMES_S = tuple(step / 1000 for step in range(1, 121))


def example_1(row_s: float) -> JoinQuery:
    """Return the query over three windows of ten rows.

    A and B agree in half of all pairs, B and C in a fifth. A join takes `row_s` per arriving row.
    """
    return JoinQuery((A, B, C), (JoinPredicate("A", "B", 0.5), JoinPredicate("B", "C", 0.2)), cost_per_row(row_s))


def example_1_plans(row_s: float) -> dict[str, PlanNode]:
    """Return the plans (a) (A ⋈ B) ⋈ C, (b) A ⋈ (B ⋈ C), (c) (A × C) ⋈ B."""
    side = SideCosts(probe_s=row_s)

    def join(left: PlanNode, right: PlanNode, selectivity: float) -> JoinNode:
        return JoinNode(left, right, selectivity, None, side, side)

    return {
        "a": join(join(A, B, 0.5), C, 0.2),
        "b": join(A, join(B, C, 0.2), 0.5),
        "c": join(join(A, C, 1.0), B, 0.1),
    }


def figure_7(row_times_s: Sequence[float] = ROW_TIMES_S) -> FigureLines:
    """Compute the highest output rate of each plan with its drop boxes, over the seconds that a join takes per row."""
    return figure_from_points("row_s", {row_s: _outputs(row_s) for row_s in row_times_s})


def _outputs(row_s: float) -> dict[str, float]:
    return {name: best_drops(plan).output_rows_per_s for name, plan in example_1_plans(row_s).items()}

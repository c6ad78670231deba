"""Figure 4: two selections in two orders; one is feasible, the other is not."""

from __future__ import annotations

from watersmeet.planner.models.ayad import RowBudget, SelectionNode, SourceNode, plan_cost
from watersmeet_lab.papers.claims import exact_claim, words_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Table

SOURCE = SourceNode("s", 1000, window_rows=1)
#: Selectivity and seconds per tuple of σ1 and σ2.
FIRST, SECOND = (0.25, 5e-4), (0.5, 1e-3)
PLANS = {
    "A": SelectionNode(SelectionNode(SOURCE, *FIRST), *SECOND),
    "B": SelectionNode(SelectionNode(SOURCE, *SECOND), *FIRST),
}


def figure_4(effort: Effort) -> Exhibit:
    costs = {name: plan_cost(plan) for name, plan in PLANS.items()}
    feasible = ", ".join(name for name, cost in costs.items() if RowBudget().holds(cost))
    claims = (
        exact_claim(
            "ayad.figure4.a", "CPU ms per second of plan A: 500 in σ1, then 250 in σ2", 750, 1000 * costs["A"].cpu
        ),
        exact_claim(
            "ayad.figure4.b", "CPU ms per second of plan B: 1000 in σ2, then 250 in σ1", 1250, 1000 * costs["B"].cpu
        ),
        words_claim("ayad.figure4.feasible", "the plan that is feasible", "A", feasible),
    )
    rows = tuple(
        (name, 1000 * cost.cpu, "yes" if RowBudget().holds(cost) else "no", cost.output.rows_per_s)
        for name, cost in costs.items()
    )
    return Exhibit(
        "Figure 4: feasible and infeasible orders of selections",
        "From the cost model: 1,000 tuples per second; σ1 keeps a quarter and takes 0.5 ms a tuple, σ2 keeps half and "
        "takes 1 ms.",
        claims,
        (Table("figure-4", "Figure 4", ("plan", "CPU ms per second", "feasible", "rows out per second"), rows),),
    )

"""The algorithms of the planner: one row each, with the model that predicts its cost and the plans it proposes.

The tactic of a row checks and runs its plans. Its `parts` name what a plan may leave open, with the default index. An
algorithm without a row has no cost model, and the planner refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.registry import TACTICS, find_tactic
from watersmeet.operators.window_join.tactics.tactic import Tactic
from watersmeet.planner.cost_of_loops import predict_loops
from watersmeet.planner.cost_of_ranges import predict_ranges
from watersmeet.planner.cost_of_runs import predict_runs
from watersmeet.planner.cost_of_trees import predict_tree
from watersmeet.planner.cost_of_w_joins import GLOBAL_SCAN, GLOBAL_SWEEP, NESTED_SCAN, SWEEP, WINDOWLESS_SCAN
from watersmeet.planner.memory import IndexModel, buffer_indexes, loop_indexes, run_indexes
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import JoinPrediction
from watersmeet.planner.proposals import (
    Proposal,
    grouped_runs,
    hash_joins,
    hybrid_joins,
    indexed_windows,
    join_trees,
    nested_loops,
    sorted_ranges,
    w_joins,
)
from watersmeet.planner.workload import Workload

#: Predicts the cost of a plan, and fills the orders or the tree that it leaves open with the cheapest ones.
CostModel = Callable[[JoinConfig, Workload, Profile, Plan], JoinPrediction]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the table. Without a proposal, the planner never chooses the algorithm, but users can pin it."""

    name: str
    predict: CostModel
    propose: Proposal | None = None
    indexes: IndexModel = loop_indexes  # bytes of its indexes

    @property
    def tactic(self) -> Tactic:
        """The tactic that runs the algorithm's plans."""
        return TACTICS[self.name]


#: Proposals are made in the order of the rows; the first of two plans with the same cost wins.
_ROWS = (
    Algorithm("runs", predict_runs, grouped_runs, run_indexes),
    Algorithm("sorted-ranges", predict_ranges, sorted_ranges, run_indexes),
    Algorithm("naive-nlj", predict_loops, nested_loops),
    Algorithm("eager-nlj", predict_loops, nested_loops),
    Algorithm("lazy-nlj", predict_loops, nested_loops),
    Algorithm("general-lazy-nlj", predict_loops, nested_loops),
    Algorithm("eager-hash", predict_loops, hash_joins),
    Algorithm("lazy-hash", predict_loops, hash_joins),
    Algorithm("hybrid-nlj-hash", predict_loops, hybrid_joins),
    Algorithm("window-join", predict_loops, indexed_windows),
    Algorithm("nlw-join", NESTED_SCAN.predict, w_joins, buffer_indexes),
    Algorithm("hw-join", NESTED_SCAN.predict, w_joins, buffer_indexes),
    Algorithm("mw-join", SWEEP.predict, w_joins, buffer_indexes),
    Algorithm("gca", GLOBAL_SWEEP.predict, w_joins, buffer_indexes),
    Algorithm("gca-nlw", GLOBAL_SCAN.predict, w_joins, buffer_indexes),
    Algorithm("gca-hw", GLOBAL_SCAN.predict, w_joins, buffer_indexes),
    Algorithm("lca", SWEEP.predict, w_joins, buffer_indexes),
    Algorithm("ripple-join", WINDOWLESS_SCAN.predict, indexes=buffer_indexes),
    Algorithm("xjoin", WINDOWLESS_SCAN.predict, indexes=buffer_indexes),
    Algorithm("tree", predict_tree, join_trees, run_indexes),
)
ALGORITHMS = {row.name: row for row in _ROWS}
PROPOSALS = tuple(dict.fromkeys(row.propose for row in _ROWS if row.propose is not None))


def find_algorithm(plan: Plan) -> Algorithm:
    """Return the row of a plan's algorithm; refuse an algorithm whose cost is not modelled."""
    name = find_tactic(plan).name
    if name not in ALGORITHMS:
        raise PlanError(
            f'the cost of "{name}" is not modelled, so the planner cannot explain, fill or compare its plans',
            hint="add a row to ALGORITHMS in planner/algorithms.py",
        )
    return ALGORITHMS[name]

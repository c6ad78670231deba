"""Every tactic by name."""

from __future__ import annotations

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import PlanError, listing
from watersmeet.operators.meet.config import MeetConfig, meet_config
from watersmeet.operators.meet.tactics.base import Tactic, refuse
from watersmeet.operators.meet.tactics.eager_multiway_nlj import EAGER
from watersmeet.operators.meet.tactics.general_lazy_multiway_nlj import GENERAL
from watersmeet.operators.meet.tactics.hybrid_nlj_hash import HYBRID
from watersmeet.operators.meet.tactics.lazy_multiway_nlj import LAZY
from watersmeet.operators.meet.tactics.multiway_hash_join import EAGER_HASH, LAZY_HASH
from watersmeet.operators.meet.tactics.naive_multiway_nlj import NAIVE
from watersmeet.operators.meet.tactics.runs import RUNS
from watersmeet.operators.meet.tactics.tree import TREE
from watersmeet.operators.meet.tactics.w_joins import W_JOINS
from watersmeet.operators.meet.tactics.window_join import WINDOW_JOIN
from watersmeet.operators.shedding import drop_boxes

TACTICS = {
    tactic.name: tactic for tactic in (RUNS, NAIVE, EAGER, LAZY, GENERAL, EAGER_HASH, LAZY_HASH, HYBRID, WINDOW_JOIN, *W_JOINS, TREE)
}


def tactic_of(plan: Plan) -> Tactic:
    """The tactic a plan names; a tree of joins names its own."""
    if plan.tree is not None and plan.algorithm in ("runs", "tree"):
        return TREE
    if plan.algorithm not in TACTICS:
        raise PlanError(f'there is no algorithm "{plan.algorithm}"', hint=f"algorithms: {listing(list(TACTICS))}")
    return TACTICS[plan.algorithm]


def settled_config(bound: BoundQuery, plan: Plan) -> MeetConfig:
    """The meet that runs a query by a plan; refuses a plan that cannot, with the reason."""
    _refuse_early_aggregation(plan)
    drop_boxes(bound, plan)
    tactic = tactic_of(plan)
    if plan.tree is not None and tactic is not TREE:
        raise refuse(plan, "it is not a tree of joins", hint="leave the tree out, or the algorithm")
    config = meet_config(bound, plan, kernel_thetas=tactic.kernel_thetas)
    tactic.settle(config, plan)
    return config


def _refuse_early_aggregation(plan: Plan) -> None:
    if plan.early:
        raise PlanError('the plan has "early", but a query that does not aggregate has nothing to aggregate early', hint="leave it out")

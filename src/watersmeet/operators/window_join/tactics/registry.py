"""Every tactic by name, and the configuration of a window join by the tactic its plan names.

A module of this package lists its tactics in `TACTICS`, and this registry finds them there.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InternalError, PlanError, listing
from watersmeet.operators.shed.sampling import build_samplers
from watersmeet.operators.window_join import tactics
from watersmeet.operators.window_join.config import JoinConfig, build_join_config
from watersmeet.operators.window_join.tactics.join_tree import TREE
from watersmeet.operators.window_join.tactics.plan_defaults import fill_by_structure
from watersmeet.operators.window_join.tactics.tactic import Tactic, refuse


def _collect_tactics() -> dict[str, Tactic]:
    """Return the tactics that the modules of this package list, by name, in the order of the modules' names."""
    found: dict[str, Tactic] = {}
    for module in iter_modules(tactics.__path__, f"{tactics.__name__}."):
        listed: tuple[Tactic, ...] = (
            () if module.name == __name__ else getattr(import_module(module.name), "TACTICS", ())
        )
        for tactic in listed:
            if tactic.name in found:
                raise InternalError(f'two tactics have the name "{tactic.name}"')
            found[tactic.name] = tactic
    return found


TACTICS = _collect_tactics()


def find_tactic(plan: Plan) -> Tactic:
    """Return the tactic that a plan names; a plan with a join tree uses the tree tactic."""
    if plan.tree is not None and plan.algorithm in ("runs", "tree"):
        return TREE
    if plan.algorithm not in TACTICS:
        raise PlanError(f'there is no algorithm "{plan.algorithm}"', hint=f"algorithms: {listing(list(TACTICS))}")
    return TACTICS[plan.algorithm]


def compile_join_config(bound: BoundQuery, plan: Plan) -> JoinConfig:
    """Return the window join that runs a query by a plan; refuse a plan that cannot run, with the reason.

    The plan of the result leaves nothing open. The hosts fill open parts by cost first (`runtime.planning`). This
    function fills the rest from the query alone.
    """
    _refuse_early_aggregation(plan)
    build_samplers(bound, plan)
    tactic = find_tactic(plan)
    if plan.tree is not None and tactic is not TREE:
        raise refuse(plan, "it is not a tree of joins", hint="remove the tree or the algorithm from the plan")
    config = build_join_config(bound, plan, kernel_thetas=tactic.kernel_thetas)
    full = fill_by_structure(config, plan, tactic.parts)
    if full.global_order != plan.global_order:
        config = build_join_config(bound, full, kernel_thetas=tactic.kernel_thetas)
    config = replace(config, plan=full)
    tactic.compile_plan(config, full)
    return config


def _refuse_early_aggregation(plan: Plan) -> None:
    if plan.early:
        raise PlanError(
            'the plan has "early", but a query that does not aggregate has nothing to aggregate early',
            hint='remove "early" from the plan',
        )

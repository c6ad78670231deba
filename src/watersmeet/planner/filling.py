"""Filling of a pinned plan: orders per origin, indexes and their sizes, intervals, and the shape of a tree.

`explain` and the hosts call this with the same statistics, so the explained plan is the plan that runs. A full plan
stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.plan_defaults import add_indexes, fill_by_structure, fill_intervals
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import ANY
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.lazy_intervals import search_interval
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.proposals import build_sized_index, join_trees, list_index_kinds
from watersmeet.planner.workload import Workload


def fill_plan(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan, objective: str = "cpu") -> Plan:
    """Return the full plan that agrees with the pinned parts and needs the least CPU time, or the least memory.

    `config` is the join of this plan. If its algorithm cannot run any candidate, use the defaults that need no
    statistics.
    """
    parts = find_tactic(plan).parts
    timed = fill_intervals(config, plan, parts)
    candidates = [
        (cost_plan(config, workload, profile, each), each)
        for each in _fill_open_parts(config, workload, profile, timed)
    ]
    for each, open_plan in sorted(candidates, key=lambda each: each[0].cost.rank(objective)):
        if can_run(config, each.plan):
            best = each.plan
            if timed != plan:  # the interval was open; the best orders depend on it
                lazy = search_interval(config, workload, profile, open_plan)
                best = best if lazy is None else cost_plan(config, workload, profile, lazy).plan
            return fill_by_structure(config, best, parts)
    return fill_by_structure(config, timed, parts)


def can_run(config: JoinConfig, plan: Plan) -> bool:
    """Return whether the plan's algorithm accepts it; `config` must be built for that algorithm."""
    try:
        find_tactic(plan).compile_plan(config, plan)
    except PlanError:
        return False
    return True


def _fill_open_parts(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> Iterator[Plan]:
    """Yield the plan with the proposed trees, or with every choice of indexes for the windows without one."""
    parts = find_tactic(plan).parts
    if parts.has_tree and plan.tree is None and len(config.inputs) > 2:
        yield from (replace(plan, tree=each.tree) for each in join_trees(config, workload, profile))
        return
    windows = [each for each in config.inputs if plan.index(each.alias) is None] if parts.indexes is not None else []
    if not windows:
        yield plan
        return
    if parts.indexes == ANY:
        kinds = list_index_kinds(len(windows))
    else:
        kinds = [tuple("hash" if each.keys else "list" for each in windows)]
    for chosen in kinds:
        yield add_indexes(
            plan,
            [
                (each.alias, build_sized_index(kind, workload, each.number))
                for each, kind in zip(windows, chosen, strict=True)
            ],
        )

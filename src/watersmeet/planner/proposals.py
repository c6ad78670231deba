"""Plans that the planner compares: each function proposes the plans of one family of algorithms for a query.

`planner.algorithms` names the function of each algorithm. The search costs all proposals and fills their orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from watersmeet.algebra.plan import DEFAULT_NODE_ROWS, INDEX_KINDS, Index, Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.plan_defaults import lazy_interval_us
from watersmeet.planner.cost_of_trees import TreeModel
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.workload import Workload

Proposal = Callable[[JoinConfig, Workload, Profile], list[Plan]]

#: Maximum number of windows for which all combinations of index kinds are tried. With more, all windows have one kind.
MAX_MIXED_WINDOWS = 3

#: Maximum number of buckets of one hash index.
MAX_BUCKETS = 1 << 20


def grouped_runs(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose the production tactic, which runs every query."""
    return [Plan("runs")]


def nested_loops(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose the joins of Golab and Özsu without an index: eager, and lazy with τ = a tenth of the shortest window.

    The orders of naive and general lazy joins have the new rows in any loop.
    """
    if len(config.inputs) < 2:
        return []
    lazy = [plan for name in ("naive-nlj", "lazy-nlj", "general-lazy-nlj") for plan in _make_lazy(config, Plan(name))]
    return [Plan("naive-nlj"), Plan("eager-nlj"), *lazy]


def hash_joins(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose hash joins with as many buckets as a window has distinct keys, so that a bucket holds about one key."""
    if len(config.inputs) < 2 or not any(each.keys for each in config.inputs):
        return []
    indexes = tuple((each.alias, build_sized_index("hash", workload, each.number)) for each in config.inputs)
    return [Plan("eager-hash", indexes=indexes), *_make_lazy(config, Plan("lazy-hash", indexes=indexes))]


def hybrid_joins(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose hybrid joins: a hash index on any choice of the windows that have a key, or on all of them if many.

    References: Golab, Özsu, section 3.5.
    """
    keyed = [each for each in config.inputs if each.keys]
    if len(config.inputs) < 2 or not keyed:
        return []
    plans = []
    for kinds in (
        product(("list", "hash"), repeat=len(keyed)) if len(keyed) <= MAX_MIXED_WINDOWS else [("hash",) * len(keyed)]
    ):
        hashed = {each.alias: kind for each, kind in zip(keyed, kinds, strict=True)}
        indexes = tuple(
            (each.alias, build_sized_index(hashed.get(each.alias, "list"), workload, each.number))
            for each in config.inputs
        )
        plan = Plan("hybrid-nlj-hash", indexes=indexes)
        plans += [plan, *_make_lazy(config, plan)]
    return plans


def indexed_windows(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose an index of any kind per window: the asymmetric joins of Kang et al."""
    aliases = [each.alias for each in config.inputs]
    if len(aliases) < 2:
        return []
    plans = []
    for kinds in list_index_kinds(len(aliases)):
        indexes = [build_sized_index(kind, workload, i) for i, kind in enumerate(kinds)]
        plans.append(Plan("window-join", indexes=tuple(zip(aliases, indexes, strict=True))))
    return plans


def join_trees(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose the fastest and the smallest tree of two-input joins, bushy ones included.

    Selections run before every join.
    """
    if len(config.inputs) < 3:
        return []
    model = TreeModel(config, workload, profile)
    return [Plan("tree", tree=tree) for tree in dict.fromkeys((model.best_tree(), model.smallest_tree()))]


def list_index_kinds(windows: int) -> list[tuple[str, ...]]:
    """List the kinds of indexes to try: every combination for a few windows, one kind for all of many windows."""
    if windows <= MAX_MIXED_WINDOWS:
        return list(product(INDEX_KINDS, repeat=windows))
    return [(kind,) * windows for kind in INDEX_KINDS]


def build_sized_index(kind: str, workload: Workload, number: int) -> Index:
    """Return an index with as many buckets as the window has distinct keys, so that a bucket holds about one key."""
    return Index(kind, {"list": 0, "hash": count_buckets(workload, number)}.get(kind, DEFAULT_NODE_ROWS))


def count_buckets(workload: Workload, number: int) -> int:
    distinct = [each.value for each in workload.inputs[number].distinct.values()]
    return int(min(max(distinct, default=1.0), MAX_BUCKETS)) or 1


def _make_lazy(config: JoinConfig, plan: Plan) -> Iterator[Plan]:
    """Yield the plan with evaluation and expiration intervals, if there is a time window to derive them from."""
    interval_us = lazy_interval_us(config)
    if interval_us is not None:
        yield replace(plan, evaluate_us=interval_us, expire_us=interval_us)

"""Plans that the planner compares: each function proposes the plans of one family of algorithms for a query.

`planner.algorithms` names the function of each algorithm. The search costs all proposals and fills their orders.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from watersmeet.algebra.plan import DEFAULT_NODE_ROWS, INDEX_KINDS, Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.tactics.sorted_ranges import list_range_conditions
from watersmeet.operators.window_join.tactics.w_joins import find_common_class
from watersmeet.planner.cost_of_trees import TreeModel
from watersmeet.planner.lazy_intervals import search_interval, set_interval
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


def sorted_ranges(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose runs sorted by value, for queries that bound a value of one source by another source."""
    return [Plan("sorted-ranges")] if len(config.inputs) > 1 and list_range_conditions(config) else []


def nested_loops(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose the joins of Golab and Özsu without an index: eager, and lazy with the cheapest interval τ.

    The orders of naive and general lazy joins have the new rows in any loop. Their intervals are the same.
    """
    if len(config.inputs) < 2:
        return []
    lazy, general = (
        search_interval(config, workload, profile, Plan(name)) for name in ("lazy-nlj", "general-lazy-nlj")
    )
    naive = None if general is None else set_interval(Plan("naive-nlj"), general.evaluate_us)
    return [Plan("naive-nlj"), Plan("eager-nlj"), *(plan for plan in (naive, lazy, general) if plan is not None)]


def hash_joins(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose hash joins with as many buckets as a window has distinct keys, so that a bucket holds about one key."""
    if len(config.inputs) < 2 or not any(each.keys for each in config.inputs):
        return []
    indexes = tuple((each.alias, build_sized_index("hash", workload, each.number)) for each in config.inputs)
    lazy = search_interval(config, workload, profile, Plan("lazy-hash", indexes=indexes))
    return [Plan("eager-hash", indexes=indexes), *([] if lazy is None else [lazy])]


def hybrid_joins(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose hybrid joins: a hash index on any choice of the windows that have a key, or on all of them if many.

    The interval of the lazy ones is that of a hybrid with all these indexes.

    References: Golab, Özsu, section 3.5.
    """
    keyed = [each for each in config.inputs if each.keys]
    if len(config.inputs) < 2 or not keyed:
        return []
    mixed = len(keyed) <= MAX_MIXED_WINDOWS
    kinds = product(("hash", "list"), repeat=len(keyed)) if mixed else [("hash",) * len(keyed)]
    eager = [Plan("hybrid-nlj-hash", indexes=_choose_indexes(config, workload, keyed, chosen)) for chosen in kinds]
    lazy = search_interval(config, workload, profile, eager[0])
    return eager if lazy is None else [*eager, *(set_interval(plan, lazy.evaluate_us) for plan in eager)]


def _choose_indexes(
    config: JoinConfig, workload: Workload, keyed: list[JoinInput], kinds: tuple[str, ...]
) -> tuple[tuple[str, Index], ...]:
    """Return an index for every window: of these kinds for the windows with a key, and lists for the others."""
    chosen = {each.number: kind for each, kind in zip(keyed, kinds, strict=True)}
    return tuple(
        (each.alias, build_sized_index(chosen.get(each.number, "list"), workload, each.number))
        for each in config.inputs
    )


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


def w_joins(config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Propose the joins of Hammad et al., for streams with a window in time between every two of them."""
    gaps_us = [gap for row in config.bounds.later_by_us for gap in row]
    if len(config.stream_inputs) < max(2, len(config.inputs)) or max(gaps_us) >= FOREVER_US:
        return []
    indexes = tuple((each.alias, build_sized_index("hash", workload, each.number)) for each in config.inputs)
    hashed = [Plan(name, indexes=indexes) for name in ("hw-join", "gca-hw") if find_common_class(config) is not None]
    return [*(Plan(name) for name in ("nlw-join", "mw-join", "gca", "gca-nlw", "lca")), *hashed]


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

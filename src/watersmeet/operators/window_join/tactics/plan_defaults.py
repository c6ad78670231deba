"""Defaults for the open parts of a plan (`OpenParts` of its tactic) that need no statistics.

The planner fills open parts by cost where it has statistics (`planner.filling`). These defaults serve runs that have
none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from watersmeet.algebra.plan import Index, Plan, left_deep_tree
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.tactic import GLOBAL, PER_ORIGIN, OpenParts

#: Evaluation interval of a lazy join, as a share of the shortest window.
LAZY_SHARE = 0.1

#: An interval of this length or longer belongs to a window without an end in time.
_UNBOUNDED_US = 1 << 50


def fill_by_structure(config: JoinConfig, plan: Plan, parts: OpenParts) -> Plan:
    """Fill open parts from the query alone: orders that follow its predicates, indexes of the default size.

    `config` must be built from this plan, so that its orders are the pinned ones where the plan pins any.
    """
    if not config.stream_inputs:
        return plan
    plan = fill_intervals(config, plan, parts)
    aliases = [each.alias for each in config.inputs]
    first = config.stream_inputs[0]
    chain = [aliases[first], *(aliases[step.target] for step in config.orders[first])]
    if parts.has_tree and plan.tree is None:
        plan = replace(plan, tree=left_deep_tree(chain))
    if parts.orders == GLOBAL and not plan.global_order and not plan.orders:
        plan = replace(plan, global_order=tuple(chain))
    if parts.orders == PER_ORIGIN:
        orders = {aliases[i]: tuple(aliases[step.target] for step in config.orders[i]) for i in config.stream_inputs}
        plan = add_orders(plan, orders.items())
    if parts.indexes is not None:
        plan = add_indexes(plan, [(each.alias, parts.default_index(keyed=bool(each.keys))) for each in config.inputs])
    return plan


def fill_intervals(config: JoinConfig, plan: Plan, parts: OpenParts) -> Plan:
    """Give a lazy join without intervals a tenth of its shortest time window, if it has a time window."""
    if not parts.is_lazy or plan.evaluate_us or plan.expire_us:
        return plan
    interval_us = lazy_interval_us(config)
    return plan if interval_us is None else replace(plan, evaluate_us=interval_us, expire_us=interval_us)


def lazy_interval_us(config: JoinConfig) -> int | None:
    """Return a tenth of the shortest retention time of the streams, or None if every stream keeps its rows forever.

    A stream that keeps rows for one instant only, as with a window of length 0, does not count if another stream keeps
    rows longer. The interval is at least one microsecond.
    """
    kept_us = [config.inputs[i].retention_us for i in config.stream_inputs]
    bounded_us = [each for each in kept_us if each < FOREVER_US]
    interval_us = max(1, int(min((each for each in bounded_us if each > 0), default=0) * LAZY_SHARE))
    return interval_us if bounded_us and interval_us < _UNBOUNDED_US else None


def add_orders(plan: Plan, orders: Iterable[tuple[str, tuple[str, ...]]]) -> Plan:
    """Add orders for the origins that the plan gives none; one global order covers all of them."""
    pinned = dict(plan.orders)
    added = [(origin, order) for origin, order in orders if origin not in pinned and order]
    return plan if plan.global_order or not added else replace(plan, orders=(*plan.orders, *added))


def add_indexes(plan: Plan, indexes: Iterable[tuple[str, Index]]) -> Plan:
    """Add indexes for the windows that the plan gives none."""
    pinned = dict(plan.indexes)
    added = [(alias, index) for alias, index in indexes if alias not in pinned]
    return replace(plan, indexes=(*plan.indexes, *added)) if added else plan

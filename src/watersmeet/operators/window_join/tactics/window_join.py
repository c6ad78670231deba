"""The window join of two streams, and of more: each window has the index that suits the rate at which it is filled and
probed.

List, hash, B+tree and T-tree in any combination. The trees also answer <, <=, BETWEEN and band predicates.

References: Kang, Naughton, Viglas, sections 2 and 3.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, refuse, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_eager
from watersmeet.operators.window_join.tactics.loops import Loops, indexes_for, origin_first, search_with


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "cleanup_rows")
    check_eager(plan)
    loops = Loops(origin_first(config, plan), indexes_for(config, plan, Index()), 0, plan.expire_us)
    for each in config.inputs:
        _refuse_useless(config, plan, loops, each.number)
    return search_with(loops)


def _refuse_useless(config: MeetConfig, plan: Plan, loops: Loops, window: int) -> None:
    """An index that no loop could ever probe is a mistake in the plan, not something to build in silence."""
    index, alias = loops.indexes[window], config.inputs[window].alias
    probed = any(
        loops.probed_column(config, origin, level) is not None
        for origin, order in enumerate(loops.orders)
        for level, target in enumerate(order)
        if target == window
    )
    if index.kind != "list" and not probed and len(config.inputs) > 1:
        what = "equality" if index.kind == "hash" else "comparison"
        raise refuse(
            plan, f'no {what} leads to "{alias}", so its {index.kind} index would answer nothing', hint="make it a list"
        )


WINDOW_JOIN = Tactic("window-join", "Kang, Naughton, Viglas: window join with an index per window", settle)

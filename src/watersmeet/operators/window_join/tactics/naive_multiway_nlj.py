"""Naive Multi-Way NLJ: one order of the windows, whatever window a new row comes from; at that window's loop only the
new rows are scanned.

Outer loops run before the new row is known, so their work is done for rows that turn out not to match it. Eager or
lazy.

References: Golab, Özsu, section 3.1.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, numbers_of, refuse, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_lazy
from watersmeet.operators.window_join.tactics.loops import Loops, search_with


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "indexes", "cleanup_rows")
    if plan.orders:
        raise refuse(plan, "it has one order for all origins", hint="give it as the global order")
    if plan.evaluate_us:
        check_lazy(plan)
    order = numbers_of(config, plan, plan.global_order)
    if sorted(order) != list(range(len(config.inputs))):
        raise refuse(plan, "the global order must name each source once")
    orders = tuple(order if each.is_stream else () for each in config.inputs)
    return search_with(Loops(orders, (Index(),) * len(config.inputs), plan.evaluate_us, plan.expire_us))


NAIVE = Tactic("naive-nlj", "Golab, Özsu: Naive Multi-Way NLJ", settle)

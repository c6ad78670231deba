"""Hybrid NLJ-Hash Join: buckets where a window has a hash index and an equality leads to it, whole windows elsewhere.

So one operator serves queries that join some windows by equality and others by any comparison. Eager or lazy.

References: Golab, Özsu, section 3.5.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, refuse, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_lazy
from watersmeet.operators.window_join.tactics.loops import Loops, any_place, indexes_for, origin_first, search_with


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "cleanup_rows")
    indexes = indexes_for(config, plan, Index())
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind not in ("list", "hash"):
            raise refuse(
                plan,
                f'it mixes lists and hash indexes, and "{each.alias}" is to be a {index.kind}',
                hint='pin "window-join"',
            )
        if index.kind == "hash" and not each.keys:
            raise refuse(
                plan, f'"{each.alias}" has no equality with another source, so its hash index would answer nothing'
            )
    if plan.evaluate_us:
        check_lazy(plan)
        return search_with(Loops(any_place(config, plan), indexes, plan.evaluate_us, plan.expire_us))
    return search_with(Loops(origin_first(config, plan), indexes, 0, plan.expire_us))


HYBRID = Tactic("hybrid-nlj-hash", "Golab, Özsu: Hybrid NLJ-Hash Join", settle)

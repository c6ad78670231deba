"""Eager Multi-Way NLJ: a new row is joined at once. It stands in the outermost loop; the others follow in the order of
its origin.

References: Golab, Özsu, section 3.2, algorithms Eager Multi-Way NLJ and ComputeJoin; count windows: section 3.6.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_eager
from watersmeet.operators.window_join.tactics.loops import Loops, origin_first, search_with


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "indexes", "cleanup_rows")
    check_eager(plan)
    return search_with(Loops(origin_first(config, plan), (Index(),) * len(config.inputs), 0, plan.expire_us))


EAGER = Tactic("eager-nlj", "Golab, Özsu: Eager Multi-Way NLJ", settle)

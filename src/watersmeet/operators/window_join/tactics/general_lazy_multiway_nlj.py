"""General Lazy Multi-Way NLJ: every τ, and the new rows may stand at any loop of the order their origin has.

Above the new rows' loop no time can be checked against them; at that loop everything bound so far is. This wins when a
fast stream brings many new rows per interval: scanning them innermost keeps the outer loops short.

References: Golab, Özsu, section 3.3, algorithms General Lazy Multi-Way NLJ and GeneralComputeJoin.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_lazy
from watersmeet.operators.window_join.tactics.loops import Loops, any_place, search_with


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "indexes", "cleanup_rows")
    check_lazy(plan)
    return search_with(
        Loops(any_place(config, plan), (Index(),) * len(config.inputs), plan.evaluate_us, plan.expire_us)
    )


GENERAL = Tactic("general-lazy-nlj", "Golab, Özsu: General Lazy Multi-Way NLJ", settle)

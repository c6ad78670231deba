"""Lazy Multi-Way NLJ: every τ, all rows that came since are joined, each in the outermost loop.

References: Golab, Özsu, section 3.3, algorithm Lazy Multi-Way NLJ.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_lazy
from watersmeet.operators.window_join.tactics.loops import Loops, origin_first, search_with


def settle(config: MeetConfig, plan: Plan) -> Search:
    refuse_knobs(plan, "indexes", "cleanup_rows")
    check_lazy(plan)
    return search_with(
        Loops(origin_first(config, plan), (Index(),) * len(config.inputs), plan.evaluate_us, plan.expire_us)
    )


LAZY = Tactic("lazy-nlj", "Golab, Özsu: Lazy Multi-Way NLJ", settle)

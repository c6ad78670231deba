"""Multi-Way Hash Join: at each loop one bucket is scanned instead of the window. With one bucket per window it is the
NLJ.

Eager: the new row outermost. Lazy: every τ, in the general form, the new rows at any loop.

References: Golab, Özsu, section 3.4, algorithms Multi-Way Hash Join and ComputeHashJoin.
"""

from __future__ import annotations

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.base import Search, Tactic, refuse, refuse_knobs
from watersmeet.operators.window_join.tactics.intervals import check_eager, check_lazy
from watersmeet.operators.window_join.tactics.loops import Loops, any_place, indexes_for, origin_first, search_with


def settle_eager(config: MeetConfig, plan: Plan) -> Search:
    check_eager(plan)
    return search_with(
        _hashed(config, plan, Loops(origin_first(config, plan), _buckets(config, plan), 0, plan.expire_us))
    )


def settle_lazy(config: MeetConfig, plan: Plan) -> Search:
    check_lazy(plan)
    loops = Loops(any_place(config, plan), _buckets(config, plan), plan.evaluate_us, plan.expire_us)
    return search_with(_hashed(config, plan, loops))


def _buckets(config: MeetConfig, plan: Plan) -> tuple[Index, ...]:
    refuse_knobs(plan, "cleanup_rows")
    indexes = indexes_for(config, plan, Index())
    for each, index in zip(config.inputs, indexes, strict=True):
        if index.kind != "hash":
            raise refuse(
                plan,
                f'the window of "{each.alias}" is to be a {index.kind}',
                hint='pin "hybrid-nlj-hash" to mix indexes',
            )
    return indexes


def _hashed(config: MeetConfig, plan: Plan, loops: Loops) -> Loops:
    """Refuses orders in which a window is reached by no equality: there is no bucket to look into."""
    for origin, order in enumerate(loops.orders):
        for level, target in enumerate(order[1:], start=1):
            if target != origin and loops.probed_column(config, origin, level) is None:
                raise refuse(
                    plan,
                    f'no equality leads to "{config.inputs[target].alias}" in the order of origin "{config.inputs[origin].alias}", '
                    "and a hash index answers nothing but equality",
                    hint='pin "hybrid-nlj-hash", which scans such windows, or "window-join" with a tree',
                )
    return loops


EAGER_HASH = Tactic("eager-hash", "Golab, Özsu: Multi-Way Hash Join, eager", settle_eager)
LAZY_HASH = Tactic("lazy-hash", "Golab, Özsu: Multi-Way Hash Join, lazy", settle_lazy)

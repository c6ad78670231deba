"""The best order for one origin without looking at all of them.

What a loop costs depends on *which* windows stand outside it, not on their order (`loop_comparisons`). So the best
order of a set of windows ends with some window after the best order of the others, and n·2ⁿ steps find what n! orders
would: dynamic programming over subsets. It is exact, and holds for every algorithm that lets each origin have an order
of its own.

The global orders of the paper bind all origins to one order; for those see `golab_orders`.
"""

from __future__ import annotations

from watersmeet.errors import PlanError
from watersmeet.planner.models.golab import EAGER, Intervals, Join, Order, loop_comparisons, origin_rows
from watersmeet.planner.models.golab_orders import Found

MOST_STREAMS = 14


def best_order_from(join: Join, origin: int, intervals: Intervals = EAGER) -> Found:
    """The cheapest order with the origin outermost: Eager and Lazy Multi-Way NLJ, Multi-Way Hash Join, hybrid.

    `looked_at` counts the extensions of a partial order by one window.

    >>> from watersmeet.planner.models.golab import CommonAttribute, Stream
    >>> four = CommonAttribute((Stream(10, 100, 500), Stream(1, 100, 50), Stream(1, 200, 40), Stream(3, 100, 5)))
    >>> best_order_from(four, origin=3)
    Found(order=(3, 0, 1, 2), cost=6000.0, looked_at=12)
    """
    return _best(join, origin, intervals, [(origin,)])


def best_order_anywhere(join: Join, origin: int, intervals: Intervals = EAGER) -> Found:
    """The cheapest order with the origin's new rows at any place: General Lazy Multi-Way NLJ."""
    return _best(join, origin, intervals, [(each,) for each in range(len(join.streams))])


def _best(join: Join, origin: int, intervals: Intervals, starts: list[Order]) -> Found:
    count = len(join.streams)
    if count > MOST_STREAMS:
        raise PlanError(
            f"orders of {count} streams are too many to search", hint=f"the search takes up to {MOST_STREAMS}"
        )
    rows, executions_per_s = origin_rows(join, origin, intervals)
    best: dict[frozenset[int], tuple[float, Order]] = {frozenset(start): (0.0, start) for start in starts}
    looked_at = 0
    for _ in range(count - 1):
        longer: dict[frozenset[int], tuple[float, Order]] = {}
        for members, (cost, order) in best.items():
            for target in range(count):
                if target in members:
                    continue
                looked_at += 1
                candidate = (cost + loop_comparisons(join, rows, order, target), (*order, target))
                longer[members | {target}] = min(longer.get(members | {target}, candidate), candidate)
        best = longer
    ((cost, order),) = best.values()
    return Found(order, executions_per_s * cost, looked_at)

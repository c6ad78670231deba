"""Join orders: the paper's heuristics, exhaustive search, and dynamic programming over subsets.

Each search returns its order and the number of orders it costed. A global order is one order per origin, the origin
first (`origin_first`), and its cost is the sum over the origins. Streams are numbered from zero.

The cost of a loop depends on the *set* of windows outside it, not on their order (`loop_comparisons`). So the best
order of a set of windows ends with some window after the best order of the others. Dynamic programming over subsets
finds in n·2ⁿ steps what n! orders would. It is exact, and applies to every algorithm that lets each origin have its own
order. The paper's global orders bind all origins to one order instead.

The planner applies the other heuristics to users' queries (`planner.order_heuristics`).

References: Golab, Özsu, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import factorial, fsum

from watersmeet.errors import InternalError, PlanError
from watersmeet.planner.models.golab import (
    EAGER,
    CommonAttribute,
    Intervals,
    Join,
    Order,
    WindowedStream,
    intermediate_rows,
    loop_comparisons,
    origin_comparisons,
    origin_first,
    origin_rows,
)

#: Maximum number of orders that an exhaustive search costs: those of eight streams.
MAX_ORDERS = factorial(8)

#: Costs closer than this are equal, so that rounding does not decide between two equal orders.
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class OrderResult:
    """An order, its comparisons per unit of time, and how many orders were costed to find it."""

    order: Order
    cost: float
    orders_costed: int


@dataclass(slots=True)
class OrderCosts:
    """Costs of orders, each computed once and counted."""

    cost_of: Callable[[Order], float]
    costs: dict[Order, float] = field(default_factory=dict)

    def cost(self, order: Order) -> float:
        if order not in self.costs:
            self.costs[order] = self.cost_of(order)
        return self.costs[order]

    def best(self, orders: Iterable[Order]) -> OrderResult:
        """Return the cheapest of these orders; on a tie, the first."""
        best: Order | None = None
        for order in orders:
            if best is None or self.cost(order) < self.cost(best) * (1 - _EQUAL):
                best = order
        if best is None:
            raise InternalError("no order to choose from")
        return OrderResult(best, self.cost(best), len(self.costs))


def global_cost(join: CommonAttribute, order: Order, intervals: Intervals = EAGER) -> float:
    """Estimate comparisons per unit of time of a global order, over all origins.

    >>> streams = WindowedStream(10, 100, 500), WindowedStream(1, 100, 50), WindowedStream(1, 200, 40)
    >>> round(global_cost(CommonAttribute(streams), (0, 1, 2)))
    4000

    """
    return fsum(
        origin_comparisons(join, origin, origin_first(origin, order), intervals) for origin in range(len(join.streams))
    )


def search_all_orders(join: CommonAttribute, intervals: Intervals = EAGER) -> OrderResult:
    """Return the best of all n! global orders."""
    _refuse_too_many(factorial(len(join.streams)))
    return _global_costs(join, intervals).best(permutations(range(len(join.streams))))


def search_all_orders_per_origin(join: CommonAttribute, intervals: Intervals = EAGER) -> tuple[OrderResult, ...]:
    """Return the best order for each origin, its new rows at any position: n! orders for each of n origins."""
    _refuse_too_many(factorial(len(join.streams)))
    return tuple(
        _origin_costs(join, origin, intervals).best(permutations(range(len(join.streams))))
        for origin in range(len(join.streams))
    )


def ascending_join_sizes(join: CommonAttribute, intervals: Intervals = EAGER) -> OrderResult:
    """Apply heuristic 1: the smallest binary join first, then always the window that leaves the fewest rows.

    Both orders of the first pair are tried.

    References: Golab, Özsu, section 5.1, the initial heuristic.
    """
    return _global_costs(join, intervals).best(_swap_first_two(_order_by_join_size(join, intervals)))


def fast_streams_up(join: CommonAttribute, intervals: Intervals = EAGER) -> OrderResult:
    """Apply heuristic 2: move each stream faster than the average to its best higher position, except the top.

    It starts from the order of heuristic 1 and moves one fast stream at a time: at most n positions for each of f
    streams. (The paper tries them in combination, up to n^f.)

    >>> first_two = WindowedStream(100, 100, 200), WindowedStream(1, 100, 200)
    >>> last_two = WindowedStream(1, 100, 20), WindowedStream(3, 100, 2)
    >>> fast_streams_up(CommonAttribute((*first_two, *last_two)))
    OrderResult(order=(1, 0, 2, 3), cost=80400.0, orders_costed=4)

    References: Golab, Özsu, section 5.1, the augmented heuristic.
    """
    trials = _global_costs(join, intervals)
    start = trials.best(_swap_first_two(_order_by_join_size(join, intervals))).order
    return _move_up(trials, start, _list_fast_streams(join.streams), top=1)


def _global_costs(join: CommonAttribute, intervals: Intervals) -> OrderCosts:
    return OrderCosts(lambda order: global_cost(join, order, intervals))


def _origin_costs(join: CommonAttribute, origin: int, intervals: Intervals) -> OrderCosts:
    return OrderCosts(lambda order: origin_comparisons(join, origin, order, intervals))


def _order_by_join_size(join: CommonAttribute, intervals: Intervals) -> Order:
    """Return the smallest binary join, then always the window that leaves the fewest rows."""
    count = len(join.streams)
    order: Order = min(permutations(range(count), 2), key=lambda pair: intermediate_rows(join, pair, intervals))
    while len(order) < count:
        longer = [(*order, each) for each in range(count) if each not in order]
        order = min(longer, key=lambda members: intermediate_rows(join, members, intervals))
    return order


def _swap_first_two(order: Order) -> list[Order]:
    return [order, (order[1], order[0], *order[2:])]


def _list_fast_streams(streams: Sequence[WindowedStream]) -> list[int]:
    """List streams faster than the average, the fastest first."""
    mean = fsum(stream.rows_per_s for stream in streams) / len(streams)
    fast = [each for each, stream in enumerate(streams) if stream.rows_per_s > mean * (1 + _EQUAL)]
    return sorted(fast, key=lambda each: -streams[each].rows_per_s)


def _move_up(trials: OrderCosts, start: Order, movers: Iterable[int], top: int) -> OrderResult:
    """Move each stream in turn to its best position between `top` and its current one."""
    best = trials.best([start])
    for mover in movers:
        at = best.order.index(mover)
        without = tuple(each for each in best.order if each != mover)
        best = trials.best(
            [best.order, *((*without[:place], mover, *without[place:]) for place in range(at - 1, top - 1, -1))]
        )
    return best


def _refuse_too_many(orders: int) -> None:
    if orders > MAX_ORDERS:
        raise PlanError(f"exhaustive search would cost {orders} orders", hint="use a heuristic: fast_streams_up")


MAX_STREAMS = 14


def best_order_from(join: Join, origin: int, intervals: Intervals = EAGER) -> OrderResult:
    """Return the cheapest order with the origin outermost: Eager and Lazy Multi-Way NLJ, Multi-Way Hash Join, hybrid.

    `orders_costed` counts the extensions of a partial order by one window.

    >>> from watersmeet.planner.models.golab import CommonAttribute, WindowedStream
    >>> first_two = WindowedStream(10, 100, 500), WindowedStream(1, 100, 50)
    >>> last_two = WindowedStream(1, 200, 40), WindowedStream(3, 100, 5)
    >>> four = CommonAttribute((*first_two, *last_two))
    >>> best_order_from(four, origin=3)
    OrderResult(order=(3, 0, 1, 2), cost=6000.0, orders_costed=12)

    """
    return _search_subsets(join, origin, intervals, [(origin,)])


def _search_subsets(join: Join, origin: int, intervals: Intervals, starts: list[Order]) -> OrderResult:
    count = len(join.streams)
    if count > MAX_STREAMS:
        raise PlanError(
            f"orders of {count} streams are too many to search", hint=f"the search takes up to {MAX_STREAMS}"
        )
    rows, executions_per_s = origin_rows(join, origin, intervals)
    best: dict[frozenset[int], tuple[float, Order]] = {frozenset(start): (0.0, start) for start in starts}
    orders_costed = 0
    for _ in range(count - 1):
        longer: dict[frozenset[int], tuple[float, Order]] = {}
        for members, (cost, order) in best.items():
            for target in range(count):
                if target in members:
                    continue
                orders_costed += 1
                candidate = (cost + loop_comparisons(join, rows, order, target), (*order, target))
                longer[members | {target}] = min(longer.get(members | {target}, candidate), candidate)
        best = longer
    ((cost, order),) = best.values()
    return OrderResult(order, executions_per_s * cost, orders_costed)

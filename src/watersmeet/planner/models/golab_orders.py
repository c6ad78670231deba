"""Join orders: the paper's heuristics, exhaustive search, and dynamic programming over subsets.

Each search returns its order and the number of orders it costed. A global order is one order per origin, the origin
first (`origin_first`), and its cost is the sum over the origins. Streams are numbered from zero.

The cost of a loop depends on the *set* of windows outside it, not on their order (`loop_comparisons`). So the best
order of a set of windows ends with some window after the best order of the others. Dynamic programming over subsets
finds in n·2ⁿ steps what n! orders would. It is exact, and applies to every algorithm that lets each origin have its own
order. The paper's global orders bind all origins to one order instead.

`JoinGraph` describes joins on different attributes: which streams a predicate ties together, and its selectivity.

References: Golab, Özsu, section 5; section 5.4 for "Joins on different attributes".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations
from math import factorial, fsum

from watersmeet.errors import InternalError, PlanError
from watersmeet.planner.models.checks import check_not_negative, check_selectivity
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


def lazy_orders(join: CommonAttribute, intervals: Intervals) -> tuple[OrderResult, ...]:
    """Apply heuristic 3: an order per origin, its new rows at any position.

    The origin's window counts as the rows of the last τ. These are the orders of heuristics 1 and 2 over the resized
    windows, and the new rows may also move to the top.

    References: Golab, Özsu, section 5.2.
    """
    if not intervals.evaluate_s:
        raise PlanError("a lazy join needs an evaluation interval above zero")
    return tuple(_lazy_order(join, origin, intervals) for origin in range(len(join.streams)))


def hash_order(join: CommonAttribute, intervals: Intervals = EAGER) -> OrderResult:
    """Apply heuristic 4: heuristics 1 and 2, with join sizes computed from T divided by the buckets of each window.

    With the same number of buckets everywhere, this is the order of the nested loops. With different numbers the
    division misjudges sizes, because buckets save comparisons but let the same rows through. So the undivided sizes are
    tried as well.

    References: Golab, Özsu, section 5.3.
    """
    trials = _global_costs(join, intervals)
    starts = [_order_by_join_size(sized, intervals) for sized in (shrink_to_buckets(join), join)]
    moved = [
        _move_up(trials, trials.best(_swap_first_two(start)).order, _list_fast_streams(join.streams), top=1)
        for start in starts
    ]
    return trials.best([found.order for found in moved])


def indexed_innermost(join: CommonAttribute, intervals: Intervals = EAGER) -> OrderResult:
    """Apply heuristic 5 for the hybrid: windows without a hash index outermost, indexed ones innermost.

    Each part is ordered by heuristic 1.

    References: Golab, Özsu, section 5.4, "Hybrid Hash-NLJ".
    """
    order = _order_by_join_size(shrink_to_buckets(join), intervals)
    return _global_costs(join, intervals).best(
        [tuple(sorted(start, key=lambda each: _is_indexed(join.streams[each]))) for start in _swap_first_two(order)]
    )


def expensive_on_top(join: CommonAttribute, intervals: Intervals = EAGER) -> OrderResult:
    """Apply heuristic 7: windows with above-average comparison cost near the top, the most expensive first.

    The rest is ordered by heuristics 1 and 2. Near the top a predicate is evaluated for fewer composite rows. Without
    an expensive predicate this is heuristic 2.

    References: Golab, Özsu, section 5.4, "Expensive predicates".
    """
    trials = _global_costs(join, intervals)
    cheap_first = _move_up(
        trials,
        trials.best(_swap_first_two(_order_by_join_size(join, intervals))).order,
        _list_fast_streams(join.streams),
        top=1,
    ).order
    mean = fsum(stream.weight for stream in join.streams) / len(join.streams)
    expensive = [each for each in cheap_first if join.streams[each].weight > mean * (1 + _EQUAL)]
    return _move_up(trials, cheap_first, sorted(expensive, key=lambda each: -join.streams[each].weight), top=0)


def shrink_to_buckets(join: CommonAttribute) -> CommonAttribute:
    """Return the same join with each window as long as one of its buckets: T/b, or C/b rows.

    >>> join = CommonAttribute((WindowedStream(1, 100, 50, buckets=5), WindowedStream(1, 100, 50)))
    >>> shrink_to_buckets(join).streams[0].window_s
    20.0

    """
    return CommonAttribute(tuple(_shrink_to_bucket(stream) for stream in join.streams))


def have_rates_changed(before: Sequence[float], now: Sequence[float], threshold: float) -> bool:
    """Apply heuristic 8: return whether any rate changed by more than the share `threshold`.

    If so, the orders should be searched again.

    >>> have_rates_changed([10, 1], [11, 1], threshold=0.2), have_rates_changed([10, 1], [10, 2], threshold=0.2)
    (False, True)

    References: Golab, Özsu, section 5.4, "Fluctuating stream arrival rates".
    """
    check_not_negative(threshold, "the threshold for re-ordering", PlanError)
    return any(abs(new - old) > threshold * old for old, new in zip(before, now, strict=True))


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


def _lazy_order(join: CommonAttribute, origin: int, intervals: Intervals) -> OrderResult:
    rows, _ = origin_rows(join, origin, intervals)
    resized = CommonAttribute(
        tuple(replace(each, window_s=None, window_rows=n) for each, n in zip(join.streams, rows, strict=True))
    )
    trials = _origin_costs(join, origin, intervals)
    start = trials.best(_swap_first_two(_order_by_join_size(resized, EAGER))).order
    fast = [each for each in _list_fast_streams(join.streams) if each != origin]
    return _move_up(trials, _move_up(trials, start, fast, top=1).order, [origin], top=0)


def _shrink_to_bucket(stream: WindowedStream) -> WindowedStream:
    if stream.window_s is None:
        return replace(stream, window_rows=stream.rows() / stream.buckets)
    return replace(stream, window_s=stream.window_s / stream.buckets)


def _is_indexed(stream: WindowedStream) -> bool:
    return stream.buckets > 1 and stream.theta is None


def _refuse_too_many(orders: int) -> None:
    if orders > MAX_ORDERS:
        raise PlanError(f"exhaustive search would cost {orders} orders", hint="use a heuristic: fast_streams_up")


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate between two streams that the share `selectivity` of their row pairs satisfies.

    An `equality` can use a hash index.
    """

    first: int
    second: int
    selectivity: float
    equality: bool = True

    def __post_init__(self) -> None:
        check_selectivity(self.selectivity, "the selectivity of a join predicate")
        if self.first == self.second:
            raise PlanError(f"a join predicate ties two streams, got stream {self.first} twice")

    def within(self, members: Sequence[int]) -> bool:
        return self.first in members and self.second in members

    def between(self, outer: Sequence[int], target: int) -> bool:
        return (self.first == target and self.second in outer) or (self.second == target and self.first in outer)


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Streams tied pair by pair; predicates are assumed independent, so selectivities multiply.

    >>> streams = WindowedStream(1, 10), WindowedStream(1, 20), WindowedStream(1, 30)
    >>> chain = JoinGraph(streams, (Predicate(0, 1, 0.5), Predicate(1, 2, 0.1)))
    >>> intermediate_rows(chain, (0, 1)), intermediate_rows(chain, (0, 2)), intermediate_rows(chain, (0, 1, 2))
    (100.0, 300.0, 300.0)

    """

    streams: tuple[WindowedStream, ...]
    predicates: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        if len(self.streams) < 2:
            raise PlanError("a join needs at least two streams")
        for predicate in self.predicates:
            if not predicate.within(range(len(self.streams))):
                raise PlanError(
                    f"a predicate between streams {predicate.first} and {predicate.second},"
                    f" but there are {len(self.streams)}"
                )

    def selectivity(self, members: Sequence[int]) -> float:
        return math.prod(
            (predicate.selectivity for predicate in self.predicates if predicate.within(members)), start=1.0
        )

    def leads_to(self, outer: Sequence[int], target: int) -> bool:
        return any(predicate.equality and predicate.between(outer, target) for predicate in self.predicates)

    def ties(self, outer: Sequence[int], target: int) -> bool:
        """Return whether any predicate of any kind ties the target to the outer streams."""
        return any(predicate.between(outer, target) for predicate in self.predicates)


def most_selective_next(graph: JoinGraph, origin: int, intervals: Intervals = EAGER) -> OrderResult:
    """Order by the heuristic for different attributes: the origin, then always the window that leaves the fewest rows.

    Only windows that the join graph reaches are candidates. If it reaches none, the smallest window comes next as a
    cross product.

    >>> streams = WindowedStream(1, 10), WindowedStream(1, 20), WindowedStream(1, 30)
    >>> chain = JoinGraph(streams, (Predicate(0, 1, 0.5), Predicate(1, 2, 0.1)))
    >>> most_selective_next(chain, origin=2)
    OrderResult(order=(2, 1, 0), cost=40.0, orders_costed=1)

    References: Golab, Özsu, section 5.4.
    """
    order = _start_order(graph, origin)
    while windows := reachable_windows(graph, order):
        order = min(
            ((*order, window) for window in windows), key=partial(intermediate_rows, graph, intervals=intervals)
        )
    return OrderResult(order, origin_comparisons(graph, origin, order, intervals), orders_costed=1)


def search_orders_from(graph: JoinGraph, origin: int, intervals: Intervals = EAGER) -> OrderResult:
    """Return the cheapest of all orders that start at this origin and follow the graph."""
    orders = [_start_order(graph, origin)]
    for _ in range(len(graph.streams) - 1):
        orders = [(*order, window) for order in orders for window in reachable_windows(graph, order)]
    return OrderCosts(lambda order: origin_comparisons(graph, origin, order, intervals)).best(orders)


def reachable_windows(graph: JoinGraph, order: Order) -> list[int]:
    """Return the windows that may come next: those tied to the order so far, or all remaining ones if there is none."""
    left = [each for each in range(len(graph.streams)) if each not in order]
    return [each for each in left if graph.ties(order, each)] or left


def _start_order(graph: JoinGraph, origin: int) -> Order:
    if not 0 <= origin < len(graph.streams):
        raise PlanError(f"there is no stream {origin} among {len(graph.streams)}")
    return (origin,)


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


def best_order_anywhere(join: Join, origin: int, intervals: Intervals = EAGER) -> OrderResult:
    """Return the cheapest order with the origin's new rows at any position: General Lazy Multi-Way NLJ."""
    return _search_subsets(join, origin, intervals, [(each,) for each in range(len(join.streams))])


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

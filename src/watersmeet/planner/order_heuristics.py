"""Heuristics for loop orders of many inputs, where a search over all subsets would take too long.

Each heuristic of the paper gives an order to start from. The cheapest of them by the cost model is then improved: every
input moves up to the loop where it costs least, once. A search examines n² orders per start instead of n!.

| start | heuristic of Golab and Özsu |
| --- | --- |
| the input that leaves the fewest combinations next | different attributes (section 5.4), ascending join sizes (5.1) |
| the cheapest loop next | hash windows count as their buckets (5.3) |
| windows without an index first | hybrid: indexed windows innermost (5.4) |
| inputs of expensive predicates first | expensive predicates near the top (5.4) |

Streams whose rate fluctuates go near the top if that costs little at the mean rates (5.4). A burst does the least harm
there.

The last step, moving up, is that of fast streams (5.1). For lazy joins, the loop of the new rows moves as well, and
orders may start with any input. The window of the origin then counts as the rows of the last interval (5.2).

References: Golab, Özsu, sections 5.1 to 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

Order = tuple[int, ...]

#: Cost of an order; infinite if the algorithm cannot run it.
OrderCost = Callable[[Order], float]
#: Rank of the next input, given the inputs bound before: the smallest comes next.
NextRank = Callable[[frozenset[int], int], tuple[float, ...]]


def build_greedy_order(start: Iterable[int], targets: Sequence[int], rank: NextRank) -> Order:
    """Return the targets so that each has the smallest rank among those left; on a tie, the first.

    >>> build_greedy_order([0], [1, 2, 3], lambda known, target: (abs(target - max(known) - 2),))
    (2, 3, 1)
    """
    known, left, found = frozenset(start), list(targets), list[int]()
    while left:
        target = min(left, key=lambda each: rank(known, each))
        left.remove(target)
        found.append(target)
        known |= {target}
    return tuple(found)


def put_first(order: Order, favoured: Collection[int]) -> Order:
    """Return the order with some inputs near the top; both parts keep their order.

    >>> put_first((3, 1, 2), {1, 2})
    (1, 2, 3)
    """
    return tuple(sorted(order, key=lambda each: each not in favoured))


def improve_order(starts: Iterable[Order], cost: OrderCost) -> tuple[Order, float]:
    """Return the cheapest start, after each of its inputs has moved up to its best place.

    >>> improve_order([(2, 1, 0)], lambda order: sum(place * each for place, each in enumerate(order[::-1])))
    ((0, 1, 2), 1)
    """
    costs: dict[Order, float] = {}

    def find_cost(order: Order) -> float:
        if order not in costs:
            costs[order] = cost(order)
        return costs[order]

    best = min(starts, key=find_cost)
    for mover in best:
        at = best.index(mover)
        without = tuple(each for each in best if each != mover)
        moved = [(*without[:place], mover, *without[place:]) for place in range(at)]
        best = min((best, *moved), key=find_cost)
    return best, find_cost(best)


#: An order with fluctuating streams near the top may cost this much more than the best one.
MAX_ROBUST_COST = 1.1


def favour_fluctuating(order: Order, cost: OrderCost, fluctuating: Collection[int]) -> tuple[Order, float]:
    """Return the order with fluctuating streams near the top, unless it costs much more at the mean rates.

    >>> favour_fluctuating((2, 1, 0), lambda order: 10.0 + (order[0] == 0), {0})
    ((0, 2, 1), 11.0)
    >>> favour_fluctuating((2, 1, 0), lambda order: 10.0 + 5 * (order[0] == 0), {0})
    ((2, 1, 0), 10.0)
    """
    best, moved = cost(order), put_first(order, fluctuating)
    robust = cost(moved)
    return (moved, robust) if robust <= MAX_ROBUST_COST * best else (order, best)

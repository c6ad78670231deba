"""The best order of loops for an origin: exact over subsets up to a stated number of inputs, greedy above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: Up to so many inputs every order is considered, by dynamic programming over subsets: n · 2ⁿ steps.
MOST_EXACT = 8

#: What a loop costs, given the set of inputs bound before it, how many combinations of them there are, and the input it
#: binds.
LoopCost = Callable[[frozenset[int], float, int], float]
#: How many combinations there are once the input is bound, per combination before.
Growth = Callable[[frozenset[int], int], float]


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of the other inputs, its cost per row of the origin, and whether it is known to be the best."""

    order: tuple[int, ...]
    cost: float
    exact: bool


#: Whether an algorithm can bind the input after the set of inputs bound so far.
Allowed = Callable[[frozenset[int], int], bool]


def best_order(
    origin: int,
    inputs: int,
    loop_cost: LoopCost,
    growth: Growth,
    allowed: Allowed | None = None,
    preferred: Sequence[int] = (),
) -> Ordered:
    """Return the cheapest order among those allowed, or among all of them when none is allowed; between equals the
    `preferred` one.

    The cost of a loop depends on the set bound before it, not on the order of that set. So only the best way to each
    set counts.
    """
    targets = [*preferred, *(i for i in range(inputs) if i not in preferred)]
    if inputs > MOST_EXACT:
        return _greedy(origin, inputs, loop_cost, growth, allowed)
    start = frozenset({origin})
    best: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {start: (0.0, 1.0, ())}
    for _ in range(inputs - 1):
        reached: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {}
        for known, (cost, rows, order) in best.items():
            for target in targets:
                if target in known or (allowed is not None and not allowed(known, target)):
                    continue
                grown = known | {target}
                found = cost + loop_cost(known, rows, target)
                if grown not in reached or found < reached[grown][0]:
                    reached[grown] = found, rows * growth(known, target), (*order, target)
        if not reached:
            return best_order(origin, inputs, loop_cost, growth, preferred=preferred)
        best = reached
    ((cost, _, order),) = best.values()
    return Ordered(order, cost, exact=True)


def _greedy(origin: int, inputs: int, loop_cost: LoopCost, growth: Growth, allowed: Allowed | None = None) -> Ordered:
    """Add the input that leaves the fewest combinations; the cheapest loop among equals."""
    known, cost, rows = frozenset({origin}), 0.0, 1.0
    order: tuple[int, ...] = ()
    while len(known) < inputs:
        left = [i for i in range(inputs) if i not in known]
        left = [i for i in left if allowed is None or allowed(known, i)] or left
        target = min(left, key=lambda i: (growth(known, i), loop_cost(known, rows, i), i))
        cost += loop_cost(known, rows, target)
        rows *= growth(known, target)
        order, known = (*order, target), known | {target}
    return Ordered(order, cost, exact=False)

"""Joins on different attributes: which streams are tied by a predicate, and how selective it is.

References: Golab, Özsu, section 5.4, "Joins on different attributes".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from watersmeet.errors import PlanError
from watersmeet.planner.models.checks import check_selectivity
from watersmeet.planner.models.golab import EAGER, Intervals, Order, Stream, intermediate_rows, origin_comparisons
from watersmeet.planner.models.golab_orders import Found, Trials


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate between two streams: the share `selectivity` of their pairs of rows satisfies it; `equality` can use
    a hash index.
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
    """Streams tied pair by pair; predicates are taken to be independent, so selectivities multiply.

    >>> chain = JoinGraph((Stream(1, 10), Stream(1, 20), Stream(1, 30)), (Predicate(0, 1, 0.5), Predicate(1, 2, 0.1)))
    >>> intermediate_rows(chain, (0, 1)), intermediate_rows(chain, (0, 2)), intermediate_rows(chain, (0, 1, 2))
    (100.0, 300.0, 300.0)
    """

    streams: tuple[Stream, ...]
    predicates: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        if len(self.streams) < 2:
            raise PlanError("a join needs at least two streams")
        for predicate in self.predicates:
            if not predicate.within(range(len(self.streams))):
                raise PlanError(
                    f"a predicate between streams {predicate.first} and {predicate.second}, but there are {len(self.streams)}"
                )

    def selectivity(self, members: Sequence[int]) -> float:
        return math.prod(
            (predicate.selectivity for predicate in self.predicates if predicate.within(members)), start=1.0
        )

    def leads_to(self, outer: Sequence[int], target: int) -> bool:
        return any(predicate.equality and predicate.between(outer, target) for predicate in self.predicates)

    def ties(self, outer: Sequence[int], target: int) -> bool:
        """Whether any predicate, of whatever kind, ties the target to the outer streams."""
        return any(predicate.between(outer, target) for predicate in self.predicates)


def most_selective_next(graph: JoinGraph, origin: int, intervals: Intervals = EAGER) -> Found:
    """Heuristic for different attributes: the origin first, then at each step the predicate that leaves the fewest
    rows.

    Only windows the join graph reaches are looked at; where it reaches none, the smallest window is multiplied in.

    >>> chain = JoinGraph((Stream(1, 10), Stream(1, 20), Stream(1, 30)), (Predicate(0, 1, 0.5), Predicate(1, 2, 0.1)))
    >>> most_selective_next(chain, origin=2)
    Found(order=(2, 1, 0), cost=40.0, looked_at=1)

    References: Golab, Özsu, section 5.4.
    """
    order = _from(graph, origin)
    while windows := reachable(graph, order):
        order = min(
            ((*order, window) for window in windows), key=partial(intermediate_rows, graph, intervals=intervals)
        )
    return Found(order, origin_comparisons(graph, origin, order, intervals), looked_at=1)


def exhaustive_from(graph: JoinGraph, origin: int, intervals: Intervals = EAGER) -> Found:
    """The cheapest of all orders that start at this origin and follow the graph."""
    orders = [_from(graph, origin)]
    for _ in range(len(graph.streams) - 1):
        orders = [(*order, window) for order in orders for window in reachable(graph, order)]
    return Trials(lambda order: origin_comparisons(graph, origin, order, intervals)).best(orders)


def reachable(graph: JoinGraph, order: Order) -> list[int]:
    """The windows that may come next: those a predicate ties to the order so far, or all that are left where there is
    none.
    """
    left = [each for each in range(len(graph.streams)) if each not in order]
    return [each for each in left if graph.ties(order, each)] or left


def _from(graph: JoinGraph, origin: int) -> Order:
    if not 0 <= origin < len(graph.streams):
        raise PlanError(f"there is no stream {origin} among {len(graph.streams)}")
    return (origin,)

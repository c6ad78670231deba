"""The continuous knapsack: of each item as much as wanted may be taken, best value for its cost first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.errors import PlanError
from watersmeet.planner.models.checks import check_not_negative, check_share


@dataclass(frozen=True, slots=True)
class Item:
    """Taken whole it gains `gain` and costs `cost`; at least the share `least` must be taken."""

    gain: float
    cost: float
    least: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(self.gain, "the gain of an item", PlanError)
        check_not_negative(self.cost, "the cost of an item", PlanError)
        check_share(self.least, "the least share of an item", PlanError)


def continuous_knapsack(items: Sequence[Item], capacity: float) -> tuple[float, ...]:
    """The shares of the items that gain the most within the capacity: first what must be taken, then by gain per cost.

    >>> continuous_knapsack([Item(gain=10, cost=5), Item(gain=9, cost=3)], capacity=5)
    (0.4, 1.0)

    References: Ayad, Naughton, section 5.2, after eq. 29.
    """
    check_not_negative(capacity, "the capacity", PlanError)
    shares = [item.least for item in items]
    left = capacity - sum(item.cost * item.least for item in items)
    if left < -1e-9 * max(capacity, 1.0):
        raise PlanError(f"what must be kept costs {capacity - left:g}, and there is only {capacity:g}")
    for number in sorted(range(len(items)), key=lambda number: -_value(items[number])):
        item = items[number]
        room = max(left, 0.0) / item.cost if item.cost else 1.0
        more = min(1.0 - item.least, room)
        shares[number] = item.least + more if more < 1.0 - item.least else 1.0
        left -= item.cost * more
    return tuple(shares)


def _value(item: Item) -> float:
    return item.gain / item.cost if item.cost else float("inf")

"""Parameter sets of the paper's tables, and the lines of its figures from the cost model.

References: Golab, Özsu, Tables 5 to 7, Figures 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from watersmeet.planner.models.golab import (
    CommonAttribute,
    Intervals,
    WindowedStream,
    eager_nlj,
    naive_eager_nlj,
    naive_lazy_nlj,
)
from watersmeet.planner.models.golab_orders import search_all_orders, search_all_orders_per_origin
from watersmeet_lab.papers.exhibit import FigureLines, figure_from_points

TABLE_5 = CommonAttribute(
    (WindowedStream(10, 100, 500), WindowedStream(1, 100, 50), WindowedStream(1, 200, 40), WindowedStream(3, 100, 5))
)
TABLE_6 = CommonAttribute(
    (WindowedStream(100, 100, 200), WindowedStream(1, 100, 200), WindowedStream(1, 100, 20), WindowedStream(3, 100, 2))
)
TABLE_7 = CommonAttribute(
    (WindowedStream(11, 100, 200), WindowedStream(10, 100, 100), WindowedStream(1, 100, 65), WindowedStream(1, 100, 20))
)

EQUAL_STREAM = WindowedStream(1, 100, 50)
FOUR_EQUAL = CommonAttribute((EQUAL_STREAM,) * 4)
ONE_FAST = CommonAttribute((EQUAL_STREAM,) * 3 + (WindowedStream(10, 100, 50),))


def figure_2(windows: Sequence[int] = range(2, 11)) -> FigureLines:
    """Compute eager evaluation of 2, 3, … equal windows: MULTI-WAY against NAIVE."""
    return figure_from_points("windows", {count: _eager_costs(count) for count in windows})


def figure_3a(taus_s: Sequence[float] = range(1, 51)) -> FigureLines:
    """Compute the best order of NAIVE, LAZY and GENERAL over four equal windows as τ grows."""
    return figure_from_points("tau_s", {tau_s: lazy_costs(FOUR_EQUAL, tau_s) for tau_s in taus_s})


def figure_3b(taus_s: Sequence[float] = range(1, 51)) -> FigureLines:
    """Compute the same with the fourth stream ten times as fast."""
    return figure_from_points("tau_s", {tau_s: lazy_costs(ONE_FAST, tau_s) for tau_s in taus_s})


def lazy_costs(join: CommonAttribute, tau_s: float) -> dict[str, float]:
    """Return the cost of the best order of each lazy algorithm."""
    intervals = Intervals(tau_s)
    orders = permutations(range(len(join.streams)))
    return {
        "NAIVE": min(sum(naive_lazy_nlj(join, order, intervals)) for order in orders),
        "LAZY": search_all_orders(join, intervals).cost,
        "GENERAL": sum(found.cost for found in search_all_orders_per_origin(join, intervals)),
    }


def _eager_costs(count: int) -> dict[str, float]:
    join = CommonAttribute((EQUAL_STREAM,) * count)
    order = tuple(range(count))
    return {"MULTI-WAY": sum(eager_nlj(join, order)), "NAIVE": sum(naive_eager_nlj(join, order))}

"""Workloads of the paper's Table 3, and the bars and lines of its figures from the cost model.

References: Kang, Naughton, Viglas, Table 3, Figures 2, 5, 6 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.planner.models.kang import PAPER_WEIGHTS, TwoStreams, Weights, pair_cost
from watersmeet.planner.models.kang_limited import (
    CPU_STRATEGIES,
    MEMORY_STRATEGIES,
    LimitedJoin,
    Pair,
    allocate,
    kept_rows,
    output_rows_per_s,
    served_rates,
)
from watersmeet_lab.papers.exhibit import FigureLines, figure_from_points

TABLE_3 = (TwoStreams(9500, 500, 2, 998), TwoStreams(7000, 3000, 800, 200), TwoStreams(4000, 6000, 550, 450))
PAIRS = ("HH", "TT", "HT", "TH", "HN", "NH", "TN", "NT")

FIGURE_5 = LimitedJoin(Pair(800, 200), Pair(100, 200), 0.01)
FIGURE_6 = LimitedJoin(Pair(10, 50), Pair(1000, 1000), 0.005)
FIGURE_7 = LimitedJoin(Pair(10, 10), Pair(100, 100), 0.01)


def figure_2(
    a_rates_per_s: Sequence[float] = (0.5, 1, 5, 10, *range(50, 951, 50), 990, 995, 999, 999.5),
    weights: Weights = PAPER_WEIGHTS,
) -> FigureLines:
    """Compute the cost of the eight pairs over the share of A in 1000 arrivals per second, windows of 5000 rows."""
    points = {}
    for a_per_s in a_rates_per_s:
        streams = TwoStreams(5000, 5000, a_per_s, 1000 - a_per_s)
        points[a_per_s] = {pair: pair_cost(pair, streams, weights) for pair in PAIRS}
    return figure_from_points("a_per_s", points)


def figure_5(service_per_s: float = 100) -> dict[str, float]:
    """Compute the output rate by strategy when CPU is limited.

    >>> {name: round(rate, 1) for name, rate in figure_5().items()}
    {'MaxA': 200.0, 'MaxB': 100.0, 'by rate': 180.0, 'by window': 133.3, 'equal': 150.0}
    """
    served = {name: served_rates(FIGURE_5, service_per_s, name) for name in CPU_STRATEGIES}
    return {
        name: output_rows_per_s(rates, FIGURE_5.window_rows, FIGURE_5.selectivity) for name, rates in served.items()
    }


def figure_6(memory_rows: float = 1000) -> dict[str, float]:
    """Compute the output rate by strategy when memory is limited.

    >>> {name: round(rate, 1) for name, rate in figure_6().items()}
    {'MaxA': 250.0, 'MaxB': 50.0, 'proportional': 83.3, 'inverse': 216.7, 'equal': 150.0}
    """
    kept = {name: kept_rows(FIGURE_6, memory_rows, name) for name in MEMORY_STRATEGIES}
    return {name: output_rows_per_s(FIGURE_6.rows_per_s, rows, FIGURE_6.selectivity) for name, rows in kept.items()}


def figure_7(service_per_s: float = 10, memory_rows: float = 100) -> dict[str, float]:
    """Compute the output rate by strategy when both are limited.

    The first name is the stream whose window is kept, the second the stream whose rows probe.

    >>> figure_7()
    {'MaxA/MaxB': 10.0, 'MaxB/MaxA': 10.0, 'MaxA/MaxA': 0.0, 'MaxB/MaxB': 0.0, 'equal': 5.0}
    """
    strategies = [("MaxA", "MaxB"), ("MaxB", "MaxA"), ("MaxA", "MaxA"), ("MaxB", "MaxB"), ("equal", "equal")]
    bars = {}
    for windows, probes in strategies:
        served, kept = served_rates(FIGURE_7, service_per_s, probes), kept_rows(FIGURE_7, memory_rows, windows)
        bars["equal" if windows == "equal" else f"{windows}/{probes}"] = allocate(
            FIGURE_7, served, kept
        ).output_rows_per_s
    return bars

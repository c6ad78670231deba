"""Check of the demo's rows: in the busiest hours, every combination of three flights is tested in plain Python."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.cli.demo.flights import Tables, instants_us

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
        """Agreeing on nothing would be no check at all."""
        return self.rows > 0 and self.lost == 0 and self.invented == 0


def checked(rows: pa.Table, departures: Tables) -> Verdict:
    """The engine's rows that lie in the busiest hours against every combination of those hours' flights."""
    since_us = busiest_us(rows)
    hours = {airport: within(table, ["departed"], since_us) for airport, table in departures.items()}
    wanted = Counter(_join_by_loops(hours))
    found = count_rows(within(rows, OUTPUT_TIMES, since_us))
    combinations = int(np.prod([table.num_rows for table in hours.values()]))
    return Verdict(
        _clock(since_us),
        _clock(since_us + CHECKED_HOURS * _HOUR_US),
        combinations,
        found.total(),
        (wanted - found).total(),
        (found - wanted).total(),
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


def busiest_us(rows: pa.Table) -> int:
    """The start of the hours with the most results."""
    hours, counts = np.unique(instants_us(rows, OUTPUT_TIMES[0]) // _HOUR_US, return_counts=True)
    together = [counts[(hours >= hour) & (hours < hour + CHECKED_HOURS)].sum() for hour in hours]
    return int(hours[int(np.argmax(together))]) * _HOUR_US


def within(table: pa.Table, times: tuple[str, ...] | list[str], since_us: int) -> pa.Table:
    """The rows whose times all lie in the hours that start then."""
    inside = np.ones(table.num_rows, np.bool_)
    for name in times:
        at = instants_us(table, name)
        inside &= (at >= since_us) & (at < since_us + CHECKED_HOURS * _HOUR_US)
    return table.filter(pa.array(inside))


def _clock(instant_us: int) -> str:
    return str(np.datetime64(instant_us, "us").astype("datetime64[m]")).replace("T", " ")

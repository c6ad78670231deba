"""Check of the demo's join by a plain loop, and comparison of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.cli.demo.flights import Tables, times_us
from watersmeet.cli.demo.replay import AIRCRAFT_WINDOW_US

Row = tuple[Any, ...]
#: Instants of departure in microseconds, by aircraft.
DeparturesByAircraft = dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Comparison of the engine's rows with those of the plain loop."""

    combinations: int
    rows: int
    lost: int
    invented: int

    @property
    def holds(self) -> bool:
        """Return whether the rows agree. An empty result would prove nothing."""
        return self.rows > 0 and self.lost == 0 and self.invented == 0


def check_aircraft(rows: pa.Table, departures: Tables) -> CheckResult:
    """Compare the engine's rows with every combination of three departures of one aircraft, one from each airport."""
    by_aircraft = {airport: _group_by_aircraft(table) for airport, table in departures.items()}
    expected, actual = Counter(_join_by_loops(**by_aircraft)), count_rows(rows)
    combinations = sum(
        len(first) * len(by_aircraft["jfk"].get(aircraft, ())) * len(by_aircraft["lga"].get(aircraft, ()))
        for aircraft, first in by_aircraft["ewr"].items()
    )
    return CheckResult(combinations, actual.total(), (expected - actual).total(), (actual - expected).total())


def _group_by_aircraft(table: pa.Table) -> DeparturesByAircraft:
    groups: DeparturesByAircraft = {}
    for aircraft, departed_us in zip(
        table.column("aircraft").to_pylist(), times_us(table, "departed").tolist(), strict=True
    ):
        groups.setdefault(str(aircraft), []).append(departed_us)
    return groups


def _join_by_loops(ewr: DeparturesByAircraft, jfk: DeparturesByAircraft, lga: DeparturesByAircraft) -> Iterator[Row]:
    """Yield the rows of the join without the engine. A pair that is too far apart has no third departure."""
    for aircraft in ewr:
        for e in ewr[aircraft]:
            for j in jfk.get(aircraft, ()):
                if abs(e - j) > AIRCRAFT_WINDOW_US:
                    continue
                for l in lga.get(aircraft, ()):  # noqa: E741 - the names are those of the query
                    if abs(e - l) <= AIRCRAFT_WINDOW_US and abs(j - l) <= AIRCRAFT_WINDOW_US:
                        yield aircraft, e, j, l


def have_same_rows(first: pa.Table, second: pa.Table) -> bool:
    return count_rows(first) == count_rows(second)


def count_rows(table: pa.Table) -> Counter[Row]:
    """Return the rows of a table with their multiplicities; instants as microseconds."""
    return Counter(zip(*(_to_values(column) for column in table.columns), strict=True))


def _to_values(column: pa.ChunkedArray[Any]) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()

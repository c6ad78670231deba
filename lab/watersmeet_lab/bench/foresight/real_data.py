"""Queries over real data: network logs, orders and trades, taxi trips, and the flights of the demo.

The data lies next to the project, in `../shared/data`, and is read in place. Data that is absent is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.cli.demo.replay import (
    Replay,
    load_flights,
    write_aircraft_query,
    write_delay_query,
    write_punctuality_query,
)
from watersmeet.errors import WatersmeetError
from watersmeet.sources.declarations import Sources

DATA = Path(__file__).parents[5] / "shared" / "data"
#: A host that scans all others; it alone has a billion results.
SCANNER = "10.128.0.241"

_PAIR = "SELECT a.id AS a, b.id AS b FROM"


@dataclass(frozen=True, slots=True)
class RealCase:
    """A query over real streams."""

    name: str
    query: str
    sources: Callable[[], Sources]


def list_real_cases() -> Iterator[RealCase]:
    """Yield the queries over the data that is present."""
    if DATA.is_dir():
        yield from (RealCase(f"network: {name}", query, _read_logs) for name, query in _LOGS.items())
        yield from (RealCase(f"shares: {name}", query, _read_shares) for name, query in _SHARES.items())
        yield from (RealCase(f"taxis: {name}", query, _read_trips) for name, query in _TRIPS.items())
    try:
        replay = Replay(load_flights(), speedup=60_000)
    except WatersmeetError:
        return  # the demo's data is not installed
    for name, write in (
        ("aircraft at three airports", write_aircraft_query),
        ("late together", write_delay_query),
        ("punctuality", write_punctuality_query),
    ):
        yield RealCase(f"flights: {name}", write(replay), lambda: _declare(replay.tables, "replayed"))


def describe_missing_data() -> str | None:
    """Describe the data that is absent; None if all is present."""
    return None if DATA.is_dir() else f"skipped: queries over real data, because {DATA} is absent"


_LOGS = {
    "requests and connections of a host": f"{_PAIR} dns [RANGE 1 SECOND] AS a, ssl [RANGE 1 SECOND] AS b"
    " WHERE a.orig_h = b.orig_h",
    "a connection after a request": f"{_PAIR} dns AS a, ssl AS b DWINDOW (a, b) = 200 MILLISECONDS"
    " WHERE a.orig_h = b.orig_h",
    "three logs": "SELECT d.id AS d, s.id AS s, w.id AS w FROM dns AS d, ssl AS s, weird AS w WINDOW = 2 SECONDS"
    " WHERE d.orig_h = s.orig_h AND s.orig_h = w.orig_h",
    "same pair again": f"{_PAIR} ssl [RANGE 10 SECONDS] AS a, ssl [RANGE 10 SECONDS] AS b"
    " WHERE a.orig_h = b.orig_h AND a.resp_h = b.resp_h AND a.id < b.id",
    "answers by code": "SELECT rcode, COUNT(*) AS n FROM dns [RANGE 1 MINUTE] GROUP BY rcode EVERY 10 SECONDS",
}
_SHARES = {
    "orders and trades": f"{_PAIR} orders [RANGE 20 MILLISECONDS] AS a, trades [RANGE 20 MILLISECONDS] AS b"
    " WHERE a.key = b.key",
    "last trades of an order": f"{_PAIR} orders [ROWS 2000] AS a, trades [ROWS 500] AS b WHERE a.key = b.key",
    "trades of neighbouring shares": f"{_PAIR} orders [RANGE 5 MILLISECONDS] AS a, trades [RANGE 5 MILLISECONDS] AS b"
    " WHERE a.key BETWEEN b.key - 20000 AND b.key + 20000",
}
_TRIPS = {
    "pick-ups after a drop-off": f"{_PAIR} ends AS a, starts AS b DWINDOW (a, b) = 2 MINUTES WHERE a.zone = b.zone",
    "pick-ups after an expensive drop-off": f"{_PAIR} ends AS a, starts AS b DWINDOW (a, b) = 10 MINUTES"
    " WHERE a.zone = b.zone AND a.fare > 60",
    "pick-ups per zone": "SELECT zone, COUNT(*) AS n, AVG(fare) AS fare FROM starts [RANGE 1 HOUR] GROUP BY zone"
    " EVERY 10 MINUTES",
    "similar fares in a zone": f"{_PAIR} ends [RANGE 10 MINUTES] AS a, starts [RANGE 10 MINUTES] AS b"
    " WHERE a.zone = b.zone AND ABS(a.fare - b.fare) < 1",
}


@cache
def _load_logs() -> dict[str, pa.Table]:
    tables = {name: pq.read_table(DATA / "zeek" / f"{name}.parquet") for name in ("dns", "ssl", "weird")}
    return {
        name: _number(rows.filter(pc.not_equal(rows["orig_h"], pa.scalar(SCANNER))), "ts")
        for name, rows in tables.items()
    }


def _read_logs() -> Sources:
    return _declare(_load_logs(), "ts")


@cache
def _load_shares() -> dict[str, pa.Table]:
    files = {"orders": "sb", "trades": "cj"}
    tables = {name: pq.read_table(DATA / "stock" / f"{file}_low_delay.parquet") for name, file in files.items()}
    return {
        name: _number(rows.append_column("ts", pc.multiply(rows["event_ms"], 1000).cast(pa.timestamp("us"))), "ts")
        for name, rows in tables.items()
    }


def _read_shares() -> Sources:
    return _declare(_load_shares(), "ts")


@cache
def _load_trips() -> dict[str, pa.Table]:
    trips = pq.read_table(DATA / "taxi" / "trips_2022_12_09.parquet")
    named = {
        name: trips.select([f"tpep_{event}_datetime", zone, "total_amount"]).rename_columns(["ts", "zone", "fare"])
        for name, event, zone in (("ends", "dropoff", "DOLocationID"), ("starts", "pickup", "PULocationID"))
    }
    return {name: _number(rows, "ts") for name, rows in named.items()}


def _read_trips() -> Sources:
    return _declare(_load_trips(), "ts")


def _number(rows: pa.Table, time: str) -> pa.Table:
    ordered = rows.sort_by(time)
    return ordered.append_column("id", pa.array(range(ordered.num_rows)))


def _declare(tables: dict[str, pa.Table], time: str) -> Sources:
    return {name: wm.stream(table, time=time) for name, table in tables.items()}

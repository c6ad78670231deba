"""Window joins over the real data that lies beside the project, and what DuckDB says their answers are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

DATA = Path(__file__).parents[4] / "shared" / "data"
#: All rows, or the first so many microseconds of each data set, which is what fits into a usual test run.
WHOLE = os.environ.get("WATERSMEET_REAL_DATA") == "whole"

#: A host that tries every other one; within five seconds of each other its rows alone make 1,462,876,834 results.
SCANNER = "10.128.0.241"

MS_US, SECOND_US, MINUTE_US = 1_000, 1_000_000, 60_000_000

Tables = dict[str, pa.Table]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class RealJoin:
    """A query over streams of `(id, ts, k)` as they arrive. Rows of a result are at most `window_us` apart, in order if
    directed.
    """

    query: str
    tables: Tables
    window_us: int
    directed: bool = False
    lateness_us: int = 0

    def answer(self, batches: dict[str, list[pa.Table]]) -> Int64s:
        """The ids of the results over rows that are in time, sorted."""
        return _joined(kept(batches, self.lateness_us), self.window_us, directed=self.directed)


def zeek() -> RealJoin:
    """Three logs of one network: what a host asked, whom it called, and what was odd about it, within five seconds."""
    names = ("dns", "ssl", "weird")
    read = {name: pq.read_table(DATA / "zeek" / f"{name}.parquet") for name in names}
    tables = {
        name: _numbered(rows.filter(pc.not_equal(rows["orig_h"], SCANNER)), "ts", "orig_h")
        for name, rows in read.items()
    }
    windows = ", ".join(f"{name} [RANGE 5 SECONDS]" for name in names)
    query = (
        f"SELECT dns.id AS dns, ssl.id AS ssl, weird.id AS weird FROM {windows} WHERE dns.k = ssl.k AND ssl.k = weird.k"
    )
    return RealJoin(query, tables, 5 * SECOND_US)


def stock() -> RealJoin:
    """Orders and trades of a share, replayed as they arrived: far out of order, and more so than the lateness allows."""
    tables = {}
    for name, file in (("orders", "sb"), ("trades", "cj")):
        rows = pq.read_table(DATA / "stock" / f"{file}_high_delay.parquet").sort_by("arrival_us")
        tables[name] = _numbered(rows.append_column("ts", pc.multiply(rows["event_ms"], MS_US)), "ts", "key")
    query = """SELECT orders.id AS orders, trades.id AS trades
        FROM orders [RANGE 5 MILLISECONDS], trades [RANGE 5 MILLISECONDS] WHERE orders.k = trades.k"""
    return RealJoin(query, _until(tables, 500 * MS_US), 5 * MS_US, lateness_us=20 * MS_US)


def taxi() -> RealJoin:
    """A cab lets someone out, and within ten minutes cabs are hailed in the same zone."""
    trips = pq.read_table(DATA / "taxi" / "trips_2022_12_09.parquet")
    ends = _numbered(trips.sort_by("tpep_dropoff_datetime"), "tpep_dropoff_datetime", "DOLocationID")
    starts = _numbered(trips.sort_by("tpep_pickup_datetime"), "tpep_pickup_datetime", "PULocationID")
    starts = starts.filter(pc.greater_equal(starts["ts"], ends["ts"][0]))  # a trip or two began the day before
    query = "SELECT d.id AS d, p.id AS p FROM ends AS d, starts AS p DWINDOW (d, p) = 10 MINUTES WHERE d.k = p.k"
    return RealJoin(query, _until({"ends": ends, "starts": starts}, 180 * MINUTE_US), 10 * MINUTE_US, directed=True)


def cut(table: pa.Table, batches: int) -> list[pa.Table]:
    """The table in batches of unequal length, in the order of its rows."""
    bounds = [round(table.num_rows * (n / batches) ** 1.3) for n in range(batches + 1)]
    return [table.slice(start, stop - start) for start, stop in pairwise(bounds)]


def kept(batches: dict[str, list[pa.Table]], lateness_us: int) -> Tables:
    """The rows that are not late, by the definition: the watermark is what every stream has reached in earlier batches,
    less lateness.
    """
    newest: dict[str, int] = {}
    rows: dict[str, list[pa.Table]] = {name: [] for name in batches}
    watermark_us = -(2**62)
    for number in range(max(len(tables) for tables in batches.values())):
        now = {name: tables[number] for name, tables in batches.items() if number < len(tables)}
        for name, table in now.items():
            rows[name].append(table.filter(pc.greater_equal(table["ts"], watermark_us)))
        for name, table in now.items():
            if table.num_rows:
                newest[name] = max(newest.get(name, -(2**62)), pc.max(table["ts"]).as_py())
        if len(newest) == len(batches):
            watermark_us = max(watermark_us, min(time_us // MS_US * MS_US - lateness_us for time_us in newest.values()))
    return {name: pa.concat_tables(tables) for name, tables in rows.items()}


def sorted_ids(table: pa.Table) -> Int64s:
    """Rows of ids in one order, so that two answers can be compared."""
    ids = (
        np.stack([column.to_numpy() for column in table.itercolumns()], axis=1)
        if table.num_rows
        else np.empty((0, table.num_columns))
    )
    return ids[np.lexsort(ids.T[::-1])].astype(np.int64)


def _joined(tables: Tables, window_us: int, *, directed: bool) -> Int64s:
    """Every row is looked for in its own stretch of time and its neighbours, so that DuckDB has an equality to hash."""
    connection = duckdb.connect(config={"threads": 1})
    for name, table in tables.items():
        connection.register(name, table)
    first, *others = tables
    conditions = [f"{first}.k = {name}.k AND {first}.ts // {window_us} = {name}.near" for name in others]
    conditions += [
        _within(one, other, window_us, directed=directed)
        for n, one in enumerate(tables)
        for other in list(tables)[n + 1 :]
    ]
    near = f"unnest([ts // {window_us} - 1, ts // {window_us}, ts // {window_us} + 1]) AS near"
    sources = [first, *(f"(SELECT *, {near} FROM {name}) AS {name}" for name in others)]
    ids = ", ".join(f"{name}.id AS {name}" for name in tables)
    text = f"SELECT {ids} FROM {', '.join(sources)} WHERE {' AND '.join(conditions)}"
    return sorted_ids(connection.sql(text).to_arrow_table())


def _within(one: str, other: str, window_us: int, *, directed: bool) -> str:
    return f"{other}.ts - {one}.ts BETWEEN {0 if directed else -window_us} AND {window_us}"


def _numbered(rows: pa.Table, time: str, key: str) -> pa.Table:
    return pa.table({"id": np.arange(rows.num_rows), "ts": rows[time].cast(pa.int64()), "k": rows[key]})


def _until(tables: Tables, span_us: int) -> Tables:
    if WHOLE:
        return tables
    start_us = min(pc.min(table["ts"]).as_py() for table in tables.values())
    return {name: table.filter(pc.less(table["ts"], start_us + span_us)) for name, table in tables.items()}


def in_batches(tables: Tables, numbers: Sequence[int]) -> dict[str, list[pa.Table]]:
    return {name: cut(table, number) for (name, table), number in zip(tables.items(), numbers, strict=False)}

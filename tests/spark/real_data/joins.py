"""Window joins over the real data next to the project, and their results according to DuckDB."""

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
#: Whether to use all rows. By default only the first part of each data set is used, which fits into a usual test run.
ALL_ROWS = os.environ.get("WATERSMEET_REAL_DATA") == "whole"

#: A host that scans all others. Its rows alone have 1,462,876,834 results within five seconds.
SCANNER = "10.128.0.241"

MS_US, SECOND_US, MINUTE_US = 1_000, 1_000_000, 60_000_000

Tables = dict[str, pa.Table]
Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class RealJoin:
    """A query over streams of `(id, ts, k)` in arrival order.

    Rows of a result are at most `window_us` apart, and in time order if `directed`.
    """

    query: str
    tables: Tables
    window_us: int
    directed: bool = False
    lateness_us: int = 0

    def expected_ids(self, batches: dict[str, list[pa.Table]]) -> Int64s:
        """Return the sorted ids of the results over rows that are not late."""
        return _join_with_duckdb(drop_late_rows(batches, self.lateness_us), self.window_us, directed=self.directed)


def build_zeek_join() -> RealJoin:
    """Build a join of three logs of one network: DNS requests, TLS connections and anomalies within five seconds."""
    names = ("dns", "ssl", "weird")
    read = {name: pq.read_table(DATA / "zeek" / f"{name}.parquet") for name in names}
    tables = {
        name: _number_rows(rows.filter(pc.not_equal(rows["orig_h"], pa.scalar(SCANNER))), "ts", "orig_h")
        for name, rows in read.items()
    }
    windows = ", ".join(f"{name} [RANGE 5 SECONDS]" for name in names)
    query = (
        f"SELECT dns.id AS dns, ssl.id AS ssl, weird.id AS weird FROM {windows} WHERE dns.k = ssl.k AND ssl.k = weird.k"
    )
    return RealJoin(query, tables, 5 * SECOND_US)


def build_stock_join() -> RealJoin:
    """Build a join of orders and trades of a share in arrival order: more out of order than the lateness allows."""
    tables = {}
    for name, file in (("orders", "sb"), ("trades", "cj")):
        rows = pq.read_table(DATA / "stock" / f"{file}_high_delay.parquet").sort_by("arrival_us")
        tables[name] = _number_rows(rows.append_column("ts", pc.multiply(rows["event_ms"], MS_US)), "ts", "key")
    query = """SELECT orders.id AS orders, trades.id AS trades
        FROM orders [RANGE 5 MILLISECONDS], trades [RANGE 5 MILLISECONDS] WHERE orders.k = trades.k"""
    return RealJoin(query, _limit_time_span(tables, 500 * MS_US), 5 * MS_US, lateness_us=20 * MS_US)


def build_taxi_join() -> RealJoin:
    """Build a join of taxi drop-offs with the pick-ups in the same zone within the next ten minutes."""
    trips = pq.read_table(DATA / "taxi" / "trips_2022_12_09.parquet")
    ends = _number_rows(trips.sort_by("tpep_dropoff_datetime"), "tpep_dropoff_datetime", "DOLocationID")
    starts = _number_rows(trips.sort_by("tpep_pickup_datetime"), "tpep_pickup_datetime", "PULocationID")
    starts = starts.filter(pc.greater_equal(starts["ts"], ends["ts"][0]))  # a few trips began the day before
    query = "SELECT d.id AS d, p.id AS p FROM ends AS d, starts AS p DWINDOW (d, p) = 10 MINUTES WHERE d.k = p.k"
    return RealJoin(
        query, _limit_time_span({"ends": ends, "starts": starts}, 180 * MINUTE_US), 10 * MINUTE_US, directed=True
    )


def cut_into_batches(table: pa.Table, batches: int) -> list[pa.Table]:
    """Cut the table into batches of unequal length, in the order of its rows."""
    bounds = [round(table.num_rows * (n / batches) ** 1.3) for n in range(batches + 1)]
    return [table.slice(start, stop - start) for start, stop in pairwise(bounds)]


def drop_late_rows(batches: dict[str, list[pa.Table]], lateness_us: int) -> Tables:
    """Return the rows that are not late, by definition.

    The watermark is the time that every stream has reached in earlier batches, minus the lateness.
    """
    newest: dict[str, int] = {}
    rows: dict[str, list[pa.Table]] = {name: [] for name in batches}
    watermark_us = -(2**62)
    for number in range(max(len(tables) for tables in batches.values())):
        now = {name: tables[number] for name, tables in batches.items() if number < len(tables)}
        for name, table in now.items():
            rows[name].append(table.filter(pc.greater_equal(table["ts"], pa.scalar(watermark_us))))
        for name, table in now.items():
            if table.num_rows:
                newest[name] = max(newest.get(name, -(2**62)), pc.max(table["ts"]).as_py())
        if len(newest) == len(batches):
            watermark_us = max(watermark_us, min(time_us // MS_US * MS_US - lateness_us for time_us in newest.values()))
    return {name: pa.concat_tables(tables) for name, tables in rows.items()}


def sort_ids(table: pa.Table) -> Int64s:
    """Return rows of ids in a canonical order, so that two results can be compared."""
    ids = (
        np.stack([column.to_numpy() for column in table.itercolumns()], axis=1)
        if table.num_rows
        else np.empty((0, table.num_columns))
    )
    return ids[np.lexsort(ids.T[::-1])].astype(np.int64)


def _join_with_duckdb(tables: Tables, window_us: int, *, directed: bool) -> Int64s:
    """Join with DuckDB. Each row looks up its own time bucket and both neighbours, which allows a hash join."""
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
    return sort_ids(connection.sql(text).to_arrow_table())


def _within(one: str, other: str, window_us: int, *, directed: bool) -> str:
    return f"{other}.ts - {one}.ts BETWEEN {0 if directed else -window_us} AND {window_us}"


def _number_rows(rows: pa.Table, time: str, key: str) -> pa.Table:
    ids = pa.array(np.arange(rows.num_rows))
    return pa.Table.from_arrays([ids, rows[time].cast(pa.int64()), rows[key]], ["id", "ts", "k"])


def _limit_time_span(tables: Tables, span_us: int) -> Tables:
    if ALL_ROWS:
        return tables
    start_us = min(pc.min(table["ts"]).as_py() for table in tables.values())
    return {name: table.filter(pc.less(table["ts"], start_us + span_us)) for name, table in tables.items()}


def cut_all_into_batches(tables: Tables, numbers: Sequence[int]) -> dict[str, list[pa.Table]]:
    return {
        name: cut_into_batches(table, number) for (name, table), number in zip(tables.items(), numbers, strict=False)
    }

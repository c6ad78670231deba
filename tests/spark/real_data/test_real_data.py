"""Real data: DuckDB, the embedded engine and Spark agree for any batches, buckets and partitions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import run_available

from .joins import (
    DATA,
    Int64s,
    RealJoin,
    build_stock_join,
    build_taxi_join,
    build_zeek_join,
    cut_all_into_batches,
    drop_late_rows,
    sort_ids,
)

pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the real data is missing: {DATA}"),
]

FEW, MANY = (3, 2, 3), (9, 13, 7)
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(
    scope="module", params=[build_zeek_join, build_stock_join, build_taxi_join], ids=["zeek", "stock", "taxi"]
)
def join(request: pytest.FixtureRequest) -> RealJoin:
    made: RealJoin = request.param()
    return made


@pytest.fixture(scope="module")
def batches(join: RealJoin) -> dict[str, list[pa.Table]]:
    return cut_all_into_batches(join.tables, FEW)


@pytest.fixture(scope="module")
def expected_ids(join: RealJoin, batches: dict[str, list[pa.Table]]) -> Int64s:
    return join.expected_ids(batches)


def sources(join: RealJoin, feeds: dict[str, Any], **how: Any) -> dict[str, wm.Stream]:
    return {
        name: wm.stream(feed, time="ts", lateness=f"{join.lateness_us} microseconds", **how)
        for name, feed in feeds.items()
    }


def test_the_embedded_engine_agrees_with_duckdb(
    join: RealJoin, batches: dict[str, list[pa.Table]], expected_ids: Int64s
) -> None:
    print(f"\n{ {name: table.num_rows for name, table in join.tables.items()} }: {len(expected_ids)} results")
    assert len(expected_ids) > 1000
    np.testing.assert_array_equal(sort_ids(wm.collect(join.query, sources(join, batches))), expected_ids)


def test_the_embedded_engine_agrees_with_duckdb_in_other_batches(join: RealJoin) -> None:
    batches = cut_all_into_batches(join.tables, MANY)
    np.testing.assert_array_equal(sort_ids(wm.collect(join.query, sources(join, batches))), join.expected_ids(batches))


@pytest.mark.parametrize(("buckets", "partitions"), [(1, 2), (5, 3)])
def test_spark_agrees_in_any_number_of_buckets_and_partitions(
    spark: SparkSession,
    join: RealJoin,
    batches: dict[str, list[pa.Table]],
    expected_ids: Int64s,
    buckets: int,
    partitions: int,
) -> None:
    session = spark.newSession()
    session.conf.set(PARTITIONS, partitions)
    found = wm.on_spark(join.query, sources(join, batches), session=session, buckets=buckets)
    np.testing.assert_array_equal(sort_ids(found.toArrow()), expected_ids)


def test_spark_agrees_file_by_file(
    spark: SparkSession, join: RealJoin, batches: dict[str, list[pa.Table]], expected_ids: Int64s, tmp_path: Path
) -> None:
    for name, tables in batches.items():
        (tmp_path / name).mkdir()
        for number, table in enumerate(tables):
            file = tmp_path / name / f"{number}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1_700_000_000 + number,) * 2)  # Spark processes the older file first
    streams = sources(join, {name: tmp_path / name for name in batches}, follow=True, files_per_batch=1)
    run_available(wm.on_spark(join.query, streams, session=spark), tmp_path)
    np.testing.assert_array_equal(sort_ids(spark.read.parquet(str(tmp_path / "out")).toArrow()), expected_ids)


def test_some_orders_and_trades_are_late() -> None:
    join = build_stock_join()
    batches = cut_all_into_batches(join.tables, FEW)
    late = {
        name: join.tables[name].num_rows - table.num_rows
        for name, table in drop_late_rows(batches, join.lateness_us).items()
    }
    assert all(late.values())
    run = wm.run(join.query, sources(join, batches))
    run.collect()
    assert {name: entry.late for name, entry in run.ledger.items()} == late

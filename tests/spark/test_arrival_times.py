"""Streams stamped on arrival, on Spark: frames, followed directories and finite paths."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import forget_batch, run_available
from watersmeet.runtime.spark import host
from watersmeet.sources.times import ARRIVAL_COLUMN

QUERY = f"""SELECT a.k, a.{ARRIVAL_COLUMN} AS left_at, b.{ARRIVAL_COLUMN} AS right_at
FROM a [RANGE 1 HOUR] AS a, b [RANGE 1 HOUR] AS b WHERE a.k = b.k"""
ROWS = pa.table({"k": [1, 2, 3]})


def test_followed_directories_get_one_time_per_batch_and_a_replay_gets_it_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(2):
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(ROWS, tmp_path / name / f"{number}.parquet")
        _run_followed(spark, tmp_path)
    rows = _read_rows(tmp_path)
    assert len(rows) == 12  # each of two files with each of two
    assert len({instant for row in rows for instant in row[1:]}) == 2  # one per batch, the same for both streams
    forget_batch(tmp_path, 1)
    for file in (tmp_path / "out").glob("*.parquet"):
        if pq.read_metadata(file).num_rows == 9:
            file.unlink()
    _run_followed(spark, tmp_path)
    assert _read_rows(tmp_path) == rows


def _run_followed(spark: SparkSession, folder: Path) -> None:
    streams = {name: wm.stream(folder / name, time=wm.ARRIVAL, follow=True) for name in "ab"}
    run_available(host.on_spark(QUERY, streams, session=spark, buckets=1), folder)


def _read_rows(folder: Path) -> list[tuple[Any, ...]]:
    table = pq.read_table(folder / "out", columns=["k", "left_at", "right_at"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_frame_and_a_finite_path_are_stamped(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    before_us = time.time_ns() // 1_000
    streams = {
        "a": wm.stream(tmp_path / "a.parquet", time=wm.ARRIVAL),
        "b": wm.stream(spark.createDataFrame([(1,), (3,)], "k long"), time=wm.ARRIVAL),
    }
    rows = wm.on_spark(QUERY, streams, session=spark).toArrow()
    assert rows.sort_by("k").column("k").to_pylist() == [1, 3]
    for column in ("left_at", "right_at"):
        (instant_us,) = set(rows.column(column).cast(pa.int64()).to_numpy().tolist())
        assert before_us // 1_000 * 1_000 <= instant_us <= time.time_ns() // 1_000

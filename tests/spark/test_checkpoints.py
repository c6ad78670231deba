"""A checkpoint belongs to one query, one grid of buckets, and one process at a time; its plan may change."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, run_available, table_to_rows
from watersmeet.checkpoint.store import lock_checkpoint
from watersmeet.cli.spark import SparkJob, run_streaming_query
from watersmeet.runtime.buckets.execution_plan import build_execution_plan
from watersmeet.runtime.spark.spark_errors import translate_errors
from watersmeet.sources.declarations import bind_query

from .sessions import open_small_session

QUERY = "SELECT a.k, b.v FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
TOTALS = "SELECT a.k, COUNT(*) AS n FROM a [RANGE 1 SECOND] GROUP BY a.k EVERY 1 SECOND"
PARTITIONS = "spark.sql.shuffle.partitions"


def rows(number: int) -> pa.Table:
    times = pa.array([number * 1_000_000 + i * 100_000 for i in range(8)], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "at": times, "k": [i % 3 for i in range(8)], "v": list(range(8))})


def write_files(folder: Path, number: int, table: pa.Table | None = None) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(rows(number) if table is None else table, folder / name / f"{number}.parquet")


def follow_files(folder: Path, time: str = "ts") -> dict[str, wm.Stream]:
    return {name: wm.stream(folder / name, time=time, follow=True) for name in ("a", "b")}


@dataclass(frozen=True)
class FirstRun:
    """A query that has run once over the first files. Every test continues it with a copy of its checkpoint."""

    folder: Path

    def copy_checkpoint(self, folder: Path) -> Path:
        """Copy the checkpoint and return the folder of the files, which cannot move: Spark remembers their paths."""
        shutil.copytree(self.folder / "checkpoint", folder / "checkpoint")
        return self.folder


@pytest.fixture(scope="module")
def first_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., FirstRun]:
    """Return a function that runs a query once per module, and then adds files for the next batch."""

    @cache
    def run_first(text: str, buckets: int | None = None) -> FirstRun:
        folder = tmp_path_factory.mktemp("first")
        write_files(folder, 0)
        run_once(open_small_session(), folder, text, buckets=buckets)
        write_files(folder, 1)
        return FirstRun(folder)

    return run_first


def run_once(
    spark: SparkSession, folder: Path, text: str = QUERY, time: str = "ts", files: Path | None = None, **how: Any
) -> None:
    run_available(wm.on_spark(text, follow_files(files or folder, time), session=spark, **how), folder)


@pytest.mark.parametrize("text", [QUERY, TOTALS])
def test_another_query_is_refused_and_the_difference_is_named(
    spark: SparkSession, tmp_path: Path, first_runs: Callable[..., FirstRun], text: str
) -> None:
    files = first_runs(text).copy_checkpoint(tmp_path)
    other = text.replace("1 SECOND]", "2 SECONDS]", 1)
    with (
        pytest.raises(wm.InputError, match=r"belongs to another query: the query was .*1 SECOND.*, and is .*2 SECONDS"),
        translate_errors(),
    ):
        run_once(spark, tmp_path, other, files=files)


def test_a_query_with_other_sources_is_refused(
    spark: SparkSession, tmp_path: Path, first_runs: Callable[..., FirstRun]
) -> None:
    files = first_runs(QUERY).copy_checkpoint(tmp_path)
    with (
        pytest.raises(wm.InputError, match="belongs to another query: it has 2 sources, and this query has 1"),
        translate_errors(),
    ):
        run_once(spark, tmp_path, TOTALS, files=files)


def test_another_time_column_is_refused(
    spark: SparkSession, tmp_path: Path, first_runs: Callable[..., FirstRun]
) -> None:
    files = first_runs(QUERY).copy_checkpoint(tmp_path)
    with pytest.raises(wm.InputError, match='the time of "a" was ts, and is at'), translate_errors():
        run_once(spark, tmp_path, time="at", files=files)


def test_columns_of_another_type_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path, 0)
    run_once(spark, tmp_path)
    changed = rows(1).set_column(2, "k", pa.array([0.5] * 8))
    for number in (0, 1):
        write_files(tmp_path, number, changed)
    with pytest.raises(wm.InputError, match=r'"a" was .*k int64.*, and is .*k double'), translate_errors():
        run_once(spark, tmp_path)


def test_another_number_of_buckets_is_refused(
    spark: SparkSession, tmp_path: Path, first_runs: Callable[..., FirstRun]
) -> None:
    files = first_runs(QUERY).copy_checkpoint(tmp_path)
    with pytest.raises(wm.InputError, match="the number of buckets was 2, and is 3"), translate_errors():
        run_once(spark, tmp_path, files=files, buckets=3)


def test_another_number_of_partitions_is_refused_where_it_would_move_buckets(
    spark: SparkSession, tmp_path: Path, first_runs: Callable[..., FirstRun]
) -> None:
    files = first_runs(QUERY, buckets=4).copy_checkpoint(tmp_path)
    other = spark.newSession()
    other.conf.set(PARTITIONS, 3)
    with pytest.raises(wm.InputError, match=r"spark\.sql\.shuffle\.partitions was 2, and is 3"), translate_errors():
        run_once(other, tmp_path, files=files, buckets=4)


def test_another_plan_continues_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    for number, plan in enumerate([None, wm.plan("eager-nlj", order=["a", "b"]), None]):
        write_files(tmp_path, number)
        run_once(spark, tmp_path, plan=plan)
    batched = {name: wm.stream([rows(0), rows(1), rows(2)], time="ts") for name in ("a", "b")}
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == table_to_rows(wm.collect(QUERY, batched))


def test_a_checkpoint_in_use_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_files(tmp_path, 0)
    job = SparkJob(
        wm.sql(QUERY), follow_files(tmp_path), tmp_path / "checkpoint", tmp_path / "out", "parquet", follow=False
    )
    with lock_checkpoint(tmp_path / "checkpoint"), pytest.raises(wm.InputError, match="is in use by another process"):
        run_streaming_query(job, None, threading.Event(), lambda figures: None, lambda batch, table: None)
    assert run_streaming_query(job, None, threading.Event(), lambda figures: None, lambda batch, table: None) > 0


@pytest.mark.parametrize("early", [(), ("a",), ("b",), ("a", "b")])
def test_early_aggregation_is_not_part_of_the_checkpoint(early: tuple[str, ...]) -> None:
    text = """
        SELECT a.v, COUNT(*) AS n FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k
        GROUP BY a.v EVERY 1 SECOND
    """
    sources = {name: wm.stream(rows(0), time="ts") for name in ("a", "b")}
    one, other = (
        build_execution_plan(bind_query(text, sources), sources, plan, 6, 2) for plan in (None, wm.plan(early=early))
    )
    assert one.signature == other.signature
    assert one.signature["the grid of its buckets"] == "6 by equality 0 of a, b"

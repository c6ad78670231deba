"""Many queries in one session leave no more memory, threads, file descriptors and local files than one query."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from watersmeet.runtime.buckets.state_store import cached_runs
from watersmeet.runtime.spark.python_steps import check_workers, local_directories

#: A leak of one query's state in each query after the second would exceed the limit of the test.
QUERIES = 5
ROWS = 150_000
QUERY = """
    SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id
    FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR], c [RANGE 1 HOUR] WHERE a.k = b.k AND b.k = c.k
"""


@dataclass(frozen=True)
class Worker:
    """One worker process: the number of runs whose state it caches, and its resources."""

    pid: int
    runs: int
    resident_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Resources:
    workers: tuple[Worker, ...]
    cached_runs: int
    driver_files: int
    driver_threads: int

    @property
    def max_resident_bytes(self) -> int:
        return max(worker.resident_bytes for worker in self.workers)


def test_many_queries_leave_no_more_than_one(spark: SparkSession, tmp_path: Path) -> None:
    files = {name: _write_rows(tmp_path / name, seed) for seed, name in enumerate("ab")}
    early = late = None
    for number in range(1, QUERIES + 1):
        _start_query(files, number, tmp_path / f"checkpoint-{number}", follow=False).awaitTermination()
        if number == 2:
            early = _measure(spark)
        late = _measure(spark) if number == QUERIES else None
    assert early is not None
    assert late is not None
    print(f"\nafter query 2: {early}\nafter query {QUERIES}: {late}")
    assert late.cached_runs <= 1
    assert max(worker.runs for worker in late.workers) <= 1
    assert late.max_resident_bytes < early.max_resident_bytes + (25 << 20)  # one query's state is 10 MB
    assert len(late.workers) <= len(early.workers) + 1
    assert max(worker.descriptors for worker in late.workers) <= max(worker.descriptors for worker in early.workers) + 2
    assert max(worker.threads for worker in late.workers) <= max(worker.threads for worker in early.workers) + 2
    assert late.driver_files <= early.driver_files + 1
    assert late.driver_threads <= early.driver_threads + 1  # a thread of Py4J may not have ended yet


def test_only_runs_that_ended_lose_their_cache(spark: SparkSession, tmp_path: Path) -> None:
    files = {name: _write_rows(tmp_path / name, seed, rows=10) for seed, name in enumerate("ab")}
    running = _start_query(files, 1, tmp_path / "running", follow=True, rows=10)
    try:
        running.processAllAvailable()
        ended = _start_query(files, 2, tmp_path / "ended", follow=False, rows=10)
        ended.awaitTermination()
        assert _cached_runs(spark) == {str(running.runId), str(ended.runId)}
        wm.on_spark(QUERY, _sources(files, 3, rows=10))
        assert _cached_runs(spark) == {str(running.runId)}
    finally:
        running.stop()


def _write_rows(folder: Path, seed: int, rows: int = ROWS) -> Path:
    folder.mkdir()
    pq.write_table(_rows(seed, rows), folder / "0.parquet")
    return folder


def _rows(seed: int, rows: int = ROWS) -> pa.Table:
    times = pa.array(1_000_000 + np.arange(rows) * 1000).cast(pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "ts": times,
            "k": pa.array(np.random.default_rng(seed).integers(0, rows, rows)),
            "id": pa.array(np.arange(rows)),
        }
    )


def _sources(files: dict[str, Path], number: int, rows: int) -> dict[str, Any]:
    """Return two growing directories, and a table that is different in every query."""
    sources: dict[str, Any] = {name: wm.stream(folder, time="ts", follow=True) for name, folder in files.items()}
    return sources | {"c": wm.stream(_rows(100 + number, rows), time="ts")}


def _start_query(
    files: dict[str, Path], number: int, checkpoint: Path, *, follow: bool, rows: int = ROWS
) -> StreamingQuery:
    writer = (
        wm.on_spark(QUERY, _sources(files, number, rows))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
    )
    query: StreamingQuery = (writer if follow else writer.trigger(availableNow=True)).start()
    return query


def _measure(spark: SparkSession) -> Resources:
    gc.collect()
    temporary = Path(spark.sparkContext._temp_dir)  # functions that are too large are sent through files in it
    return Resources(
        tuple(_workers(spark)), len(_cached_runs(spark)), sum(1 for _ in temporary.rglob("*")), threading.active_count()
    )


def _cached_runs(spark: SparkSession) -> set[str]:
    return {run for local in local_directories(check_workers(spark)) for run in cached_runs(local)}


def _workers(spark: SparkSession) -> list[Worker]:
    # A nested function is pickled by value: workers cannot import the tests.
    def measure_worker(_: Iterable[int]) -> Iterator[tuple[int, ...]]:
        from watersmeet.runtime.buckets.state_store import _decoded_states

        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        threads = len(os.listdir("/proc/self/task"))
        yield (
            os.getpid(),
            len({key[0].run for key in _decoded_states}),
            resident,
            len(os.listdir("/proc/self/fd")),
            threads,
        )

    found = spark.sparkContext.parallelize(range(8), 8).mapPartitions(measure_worker).collect()
    return [Worker(*each) for each in {each[0]: each for each in found}.values()]

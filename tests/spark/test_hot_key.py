"""A hot key with half of all rows: a worker emits results in pieces, so its memory does not grow with them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.runtime.spark.batch_metrics import list_batches

from .faults.kills import list_children, read_command_line

QUERY = "SELECT a.id AS a, b.id AS b, a.ts AS at FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
RESULT_BYTES = 3 * 8


def make_rows(count: int) -> pa.Table:
    ids = np.arange(count)
    return pa.table({"ts": pa.array(ids), "k": pa.array(np.where(ids % 2, -1, ids)), "id": pa.array(ids)})


def run_join(spark: SparkSession, folder: Path, count: int) -> tuple[int, int]:
    """Join `count` rows per stream; return the number of results and the peak memory of a worker."""
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        pq.write_table(make_rows(count), folder / name / "0.parquet")
    sources = {name: wm.stream(folder / name, time="ts", follow=True) for name in ("a", "b")}
    for pid in list_workers():
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # reset the peak
    writer = wm.on_spark(QUERY, sources, session=spark).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    (batch,) = list_batches(query)
    return batch.results, max(read_peak_bytes(pid) for pid in list_workers())


def list_workers() -> list[int]:
    jvms = [pid for pid in list_children(os.getpid()) if "java" in read_command_line(pid)]
    daemons = [pid for jvm in jvms for pid in list_children(jvm) if "spark.daemon" in read_command_line(pid)]
    return [pid for daemon in daemons for pid in list_children(daemon)]


def read_peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak memory of a process is read from /proc"
)
def test_memory_does_not_grow_with_the_results_of_a_hot_key(spark: SparkSession, tmp_path: Path) -> None:
    run_join(spark, tmp_path / "first", 100)  # start the workers and load the kernels
    few, small_peak = run_join(spark, tmp_path / "few", 2_000)
    many, large_peak = run_join(spark, tmp_path / "many", 7_000)
    assert (few, many) == (1_000**2 + 1_000, 3_500**2 + 3_500)
    assert large_peak - small_peak < (many - few) * RESULT_BYTES // 4

"""Ours and Spark's own join on the same files, in turns, with where our time goes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.bench.spark.native import PROVIDER, PROVIDERS, SCHEMA, native_join
from watersmeet.bench.spark.runs import Ran, best, check_same, run
from watersmeet.bench.workloads import CommonKey

BATCH_ROWS = 500_000

#: Phases of a batch as the metrics name them. Reading files and packing them is one task, so their times are one.
PHASES = {"scan and pack": "pack_us", "state read": "state_read_us", "join": "join_us", "state write": "state_write_us"}


@dataclass(frozen=True, slots=True)
class BesideSpark:
    """Ours over files, ours over DataFrames of the same files, and the best of Spark's own."""

    workload: str
    files: Ran
    frames: Ran
    native: Ran

    @property
    def ratio(self) -> float:
        return self.files.rows_per_s / self.native.rows_per_s

    @property
    def frames_ratio(self) -> float:
        return self.frames.rows_per_s / self.native.rows_per_s

    def profile(self, ran: Ran) -> dict[str, float]:
        """Seconds of a batch by phase, on average. Phases run on several cores; what is left of the trigger is shuffle and output."""
        count = max(1, len(ran.batches))
        cores = os.cpu_count() or 1
        spent = {phase: sum(getattr(each, name) for each in ran.batches) / count / 1e6 / cores for phase, name in PHASES.items()}
        whole = sum(each.trigger_ms for each in ran.batches) / count / 1000
        return {**spent, "shuffle, output and the rest": whole - sum(spent.values()), "whole trigger": whole}

    def to_dict(self) -> dict[str, Any]:
        runs = (self.files, self.frames, self.native)
        return {
            "workload": self.workload,
            "rows_out": self.native.rows_out,
            "systems": [{"name": each.name, "rows_per_s": each.rows_per_s} for each in runs],
            "ratio": {"spark": self.ratio, "spark, ours over DataFrames": self.frames_ratio},
            "profile_s": self.profile(self.files),
        }

    def __str__(self) -> str:
        lines = [f"{self.workload}: the same {self.native.rows_out:,} rows from all"]
        lines += [f"  {each.name:<38} {each.rows_per_s:>11,.0f} rows per s" for each in (self.files, self.frames, self.native)]
        lines.append(f"  {self.ratio:.1f} times Spark's own over files, {self.frames_ratio:.1f} times over DataFrames")
        lines += [f"    {phase:<30} {seconds:6.2f} s per batch" for phase, seconds in self.profile(self.files).items()]
        return "\n".join(lines)


def beside_spark(name: str, workload: CommonKey, batch_rows: int = BATCH_ROWS) -> BesideSpark:
    """Runs the workload on both in one session, and refuses to give figures when their rows differ."""
    spark = wm.session()
    per_batch = batch_rows * workload.streams
    with _written(workload, batch_rows) as folder:
        files = run("watersmeet", wm.on_spark(workload.query(), _over_files(workload, folder), session=spark), per_batch)
        frames = run("watersmeet over DataFrames", wm.on_spark(workload.query(), _over_frames(spark, workload, folder)), per_batch)
        native = best([partial(_native, spark, workload, folder, provider, per_batch) for provider in PROVIDERS])
        check_same([files, frames, native])
    return BesideSpark(name, files, frames, native)


def _native(spark: SparkSession, workload: CommonKey, folder: Path, provider: str, rows_per_batch: int) -> Ran:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, PROVIDERS[provider])
    try:
        return run(f"Spark's own join, {provider}", native_join(spark, workload, folder), rows_per_batch)
    finally:
        spark.conf.set(PROVIDER, str(before))


def _over_files(workload: CommonKey, folder: Path) -> dict[str, wm.Stream]:
    return {alias: wm.stream(folder / alias, time="ts", follow=True, files_per_batch=1) for alias in workload.aliases}


def _over_frames(spark: SparkSession, workload: CommonKey, folder: Path) -> dict[str, wm.Stream]:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return {alias: wm.stream(reader.parquet(str(folder / alias)), time="ts") for alias in workload.aliases}


@contextmanager
def _written(workload: CommonKey, batch_rows: int) -> Iterator[Path]:
    """The streams as directories of parquet files, one per batch, in the order of their times."""
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        for alias, table in workload.tables().items():
            (folder / alias).mkdir()
            timed = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", "UTC")))
            for number, start in enumerate(range(0, table.num_rows, batch_rows)):
                path = folder / alias / f"{number:05d}.parquet"
                pq.write_table(timed.slice(start, batch_rows), path)
                os.utime(path, (1_700_000_000 + number,) * 2)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

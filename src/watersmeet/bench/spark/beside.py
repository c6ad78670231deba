"""Ours and Spark's own join on the same files, in turns, with where our time goes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.bench.peers.flink import FlinkMissingError
from watersmeet.bench.peers.flink_common_key import flink_common_key
from watersmeet.bench.results import Comparison, System
from watersmeet.bench.spark.native import PROVIDER, PROVIDERS, SCHEMA, native_join
from watersmeet.bench.spark.runs import Ran, check_same, checksum, run
from watersmeet.bench.workloads import CommonKey
from watersmeet.errors import WatersmeetError

BATCH_ROWS = 500_000
WARM_UP_ROWS, WARM_UP_BATCHES = 50_000, 4

#: Phases of a batch as the metrics name them. Reading files and packing them is one task, so their times are one.
PHASES = {"scan and pack": "pack_us", "state read": "state_read_us", "join": "join_us", "state write": "state_write_us"}


@dataclass(frozen=True, slots=True)
class BesideSpark:
    """Ours over files, ours over DataFrames of the same files, Spark's own with each state store, and Flink's where it can be had."""

    workload: str
    seed: int
    rows_in: int
    files: Ran
    frames: Ran
    native: tuple[Ran, ...]
    flink: System | None
    skipped: Mapping[str, str]

    @property
    def comparison(self) -> Comparison:
        systems = [each.system for each in (self.files, self.frames, *self.native)]
        systems += [self.flink] if self.flink is not None else []
        return Comparison(self.workload, self.rows_in, self.files.rows_out, self.seed, tuple(systems), self.skipped)

    def profile(self, ran: Ran) -> dict[str, float]:
        """Seconds of a batch by phase, on average. Phases run on several cores; what is left of the trigger is shuffle and output."""
        count = max(1, len(ran.batches))
        cores = os.cpu_count() or 1
        spent = {phase: sum(getattr(each, name) for each in ran.batches) / count / 1e6 / cores for phase, name in PHASES.items()}
        whole = sum(each.trigger_ms for each in ran.batches) / count / 1000
        return {**spent, "shuffle, output and the rest": whole - sum(spent.values()), "whole trigger": whole}

    def to_dict(self) -> dict[str, Any]:
        return {**self.comparison.to_dict(), "profile_s": self.profile(self.files)}

    def __str__(self) -> str:
        found = self.comparison
        lines = [f"{self.workload}: the same {found.rows_out:,} rows from all"]
        lines += [f"  {each.name:<38} {each.rows_per_s:>11,.0f} rows per s" for each in found.systems]
        lines += [f"  {peer} is left out: {reason}" for peer, reason in found.skipped.items()]
        lines.append("  ours is " + ", ".join(f"{ratio:.1f} times {peer}'s best" for peer, ratio in found.ratio.items()))
        lines += [f"    {phase:<30} {seconds:6.2f} s per batch" for phase, seconds in self.profile(self.files).items()]
        return "\n".join(lines)


def beside_spark(name: str, workload: CommonKey, batch_rows: int = BATCH_ROWS) -> BesideSpark:
    """Runs the workload on all in turn, and refuses to give figures when their rows differ."""
    spark = wm.session()
    _in_turn(spark, replace(workload, rows=WARM_UP_BATCHES * WARM_UP_ROWS), WARM_UP_ROWS)  # all have run before any is measured
    files, frames, *native = _in_turn(spark, workload, batch_rows)
    flink, skipped = _flink(workload, files)
    return BesideSpark(name, workload.seed, workload.rows * workload.streams, files, frames, tuple(native), flink, skipped)


def _in_turn(spark: SparkSession, workload: CommonKey, batch_rows: int) -> list[Ran]:
    per_batch = batch_rows * workload.streams
    with _written(workload, batch_rows) as folder:
        files = run("watersmeet-spark", wm.on_spark(workload.query(), _over_files(workload, folder), session=spark), per_batch)
        frames = run("watersmeet-spark-frames", wm.on_spark(workload.query(), _over_frames(spark, workload, folder)), per_batch)
        found = [files, frames, *(_native(spark, workload, folder, provider, per_batch) for provider in PROVIDERS)]
    check_same(found)
    return found


def _flink(workload: CommonKey, ours: Ran) -> tuple[System | None, dict[str, str]]:
    """Flink's interval join over the same rows, or why it is left out."""
    if workload.streams != 2:
        return None, {"flink": "its interval join takes two streams"}
    try:
        ran = flink_common_key(workload)
    except FlinkMissingError as error:
        return None, {"flink": str(error)}
    if (ran.rows.num_rows, checksum(ran.rows)) != (ours.rows_out, ours.checksum):
        raise WatersmeetError(
            f"Flink gives {ran.rows.num_rows:,} rows where ours are {ours.rows_out:,}, or others; there is nothing to compare"
        )
    return System("flink", workload.rows * workload.streams / ran.seconds, peak_bytes=ran.peak_bytes), {}


def _native(spark: SparkSession, workload: CommonKey, folder: Path, provider: str, rows_per_batch: int) -> Ran:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, PROVIDERS[provider])
    try:
        return run(f"spark-{provider}", native_join(spark, workload, folder), rows_per_batch)
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

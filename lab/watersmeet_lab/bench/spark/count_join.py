"""A count per group over a window join, against Spark's stream-stream join with a windowed count.

This is the closest query that Spark itself can run, but the two differ. Every second, Watersmeet counts the pairs that
are inside both sliding windows at that instant. Spark counts each pair once, in the second of its left row. So their
rows cannot be compared. Instead, each is checked by its own definition. Our rows must equal those of the embedded
engine. Spark's rows must equal the counts of a plain join in the seconds it has emitted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet.sources.directories import write_numbered_files
from watersmeet_lab.bench.expected_rows import row_checksum
from watersmeet_lab.bench.results import PeerComparison
from watersmeet_lab.bench.spark.native_joins import STATE_STORE_PROVIDER, STATE_STORES
from watersmeet_lab.bench.spark.streaming_run import SparkRunResult, benchmark_session, run_to_end

WARM_UP_ROWS = 2_000
STREAM_SCHEMA = "ts timestamp, k long, g long"


@dataclass(frozen=True, slots=True)
class CountJoinWorkload:
    """Two streams in which a probe finds `rows_per_s · window_s / keys` rows, counted by group of the left stream.

    A batch is as large as Spark's own join can process in minutes: its time grows with the matches, ten million per
    batch. Our time grows with the rows, so Spark's fixed cost of a batch dominates it.
    """

    batches: int = 3
    batch_rows: int = 50_000
    rows_per_s: int = 1_000
    window_s: int = 10
    keys: int = 100
    groups: int = 150
    seed: int = 0

    @property
    def rows_in(self) -> int:
        return 2 * self.batches * self.batch_rows

    def table(self, number: int) -> pa.Table:
        rng = np.random.default_rng([self.seed, number])
        rows = self.batches * self.batch_rows
        # From 1 s on, because Spark treats a row at the epoch as late.
        times = (np.arange(rows) + self.rows_per_s) * 1_000_000 // self.rows_per_s
        groups = rng.integers(0, self.groups, rows)
        return pa.table(
            {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, self.keys, rows)),
                "g": pa.array(groups),
            }
        )

    def query(self) -> str:
        window = f"[RANGE {self.window_s} SECONDS]"
        return f"SELECT a.g, COUNT(*) AS n FROM a {window}, b {window} WHERE a.k = b.k GROUP BY a.g EVERY 1 SECOND"

    def counts(self) -> pa.Table:
        """Return the counts that Spark must emit: pairs by second of the left row and group, in time order."""
        left, right = self.table(0), self.table(1)
        pairs = np.zeros(left.num_rows, np.int64)
        times, others = (table.column("ts").cast(pa.int64()).to_numpy() for table in (left, right))
        mine, theirs = (table.column("k").to_numpy() for table in (left, right))
        for key in range(self.keys):
            here, there = np.flatnonzero(mine == key), others[theirs == key]  # streams are in time order
            last = np.searchsorted(there, times[here] + self.window_s * 1_000_000, side="right")
            pairs[here] = last - np.searchsorted(there, times[here] - self.window_s * 1_000_000, side="left")
        seconds = pc.floor_temporal(left.column("ts"), unit="second")
        rows = pa.Table.from_arrays([seconds, left.column("g"), pa.array(pairs)], ["second", "a_g", "n"])
        counted = rows.filter(pc.field("n") > 0).group_by(["second", "a_g"]).aggregate([("n", "sum")])
        return counted.rename_columns({"n_sum": "n"}).sort_by("second")


@dataclass(frozen=True, slots=True)
class CountComparison:
    """Results of Watersmeet over DataFrames, and of Spark on the same files with each state store."""

    workload: CountJoinWorkload
    ours: SparkRunResult
    native: tuple[SparkRunResult, ...]

    @property
    def comparison(self) -> PeerComparison:
        systems = tuple(each.system for each in (self.ours, *self.native))
        return PeerComparison(
            "aggregation-join", self.workload.rows_in, self.ours.rows_out, self.workload.seed, systems
        )

    def to_dict(self) -> dict[str, Any]:
        return self.comparison.to_dict()

    def __str__(self) -> str:
        matches = self.workload.rows_per_s * self.workload.window_s // self.workload.keys
        rows = f"{self.workload.batch_rows:,} rows per stream and batch"
        lines = [f"aggregation-join: {self.workload.groups} groups, {matches} matches per probe, {rows}"]
        lines += [f"  {each.name:<38} {each.rows_per_s:>11,.0f} rows per s" for each in self.comparison.systems]
        lines.append(f"  Watersmeet is {self.comparison.ratio['spark']:.1f} times as fast as Spark's best")
        lines.append(
            "  Watersmeet counts the pairs inside both sliding windows every second; Spark counts each pair once, in "
            "the second of its left row"
        )
        return "\n".join(lines)


def compare_counts_with_spark(workload: CountJoinWorkload) -> CountComparison:
    """Run both in one session, and raise an error if either counted other pairs.

    All systems run on a few rows before any is measured.
    """
    spark = benchmark_session()
    _run_all_systems(spark, replace(workload, batch_rows=min(WARM_UP_ROWS, workload.batch_rows)))
    ours, native = _run_all_systems(spark, workload)
    _check_ours(workload, ours)
    _check_native(workload, native)
    return CountComparison(workload, ours, native)


def _run_all_systems(
    spark: SparkSession, workload: CountJoinWorkload
) -> tuple[SparkRunResult, tuple[SparkRunResult, ...]]:
    with _write_streams(workload) as folder:
        streams = {name: wm.stream(_read_stream(spark, folder, name), time="ts") for name in "ab"}
        ours = run_to_end(
            "watersmeet-spark", wm.on_spark(workload.query(), streams, session=spark), 2 * workload.batch_rows
        )
        return ours, tuple(_run_native_count(spark, workload, folder, provider) for provider in STATE_STORES)


def _check_ours(workload: CountJoinWorkload, ours: SparkRunResult) -> None:
    """Compare our rows with the embedded engine's.

    A Spark stream has no end, so evaluations after the last watermark are ignored on both sides.
    """
    size = workload.batch_rows
    pieces = {
        name: [workload.table(i).slice(at * size, size) for at in range(workload.batches)]
        for i, name in enumerate("ab")
    }
    run = wm.run(workload.query(), {name: wm.stream(each, time="ts") for name, each in pieces.items()})
    found = [
        batch
        for at in range(workload.batches)
        for batch in run.advance({name: each[at] for name, each in pieces.items()})
    ]
    rows = pa.Table.from_batches(found, run.result)
    if (rows.num_rows, row_checksum(rows)) != (ours.rows_out, ours.checksum):
        raise WatersmeetError(
            f"on Spark {ours.rows_out:,} rows, embedded {rows.num_rows:,}, or the rows differ, so there is nothing to "
            "compare"
        )


def _check_native(workload: CountJoinWorkload, native: tuple[SparkRunResult, ...]) -> None:
    """Compare Spark's counts with the plain join.

    Spark emits a second after the watermark has passed it, so only the first counts are compared.
    """
    expected = workload.counts()
    for ran in native:
        if ran.rows_out > expected.num_rows or row_checksum(expected.slice(0, ran.rows_out)) != ran.checksum:
            raise WatersmeetError(f"{ran.name} counts other pairs, so there is nothing to compare")


def _run_native_count(spark: SparkSession, workload: CountJoinWorkload, folder: Path, provider: str) -> SparkRunResult:
    before = spark.conf.get(STATE_STORE_PROVIDER)
    spark.conf.set(STATE_STORE_PROVIDER, STATE_STORES[provider])
    try:
        return run_to_end(f"spark-{provider}", native_count_frame(spark, workload, folder), 2 * workload.batch_rows)
    finally:
        spark.conf.set(STATE_STORE_PROVIDER, str(before))


def native_count_frame(spark: SparkSession, workload: CountJoinWorkload, folder: Path) -> DataFrame:
    """Return Spark's own join, followed by a count per group and second of the left stream."""
    a, b = (_with_alias(_read_stream(spark, folder, name), name) for name in "ab")
    window = F.expr(f"INTERVAL {workload.window_s} SECONDS")
    near = (F.col("a_ts") >= F.col("b_ts") - window) & (F.col("a_ts") <= F.col("b_ts") + window)
    joined = a.join(b, (F.col("a_k") == F.col("b_k")) & near).select("a_ts", "a_g")
    counted = joined.groupBy(F.window("a_ts", "1 second"), "a_g").agg(F.count(F.lit(1)).alias("n"))
    return counted.select(F.col("window.start").alias("second"), "a_g", "n")


def _with_alias(frame: DataFrame, alias: str) -> DataFrame:
    return frame.select(*(F.col(name).alias(f"{alias}_{name}") for name in frame.columns)).withWatermark(
        f"{alias}_ts", "0 seconds"
    )


def _read_stream(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    return spark.readStream.schema(STREAM_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))


@contextmanager
def _write_streams(workload: CountJoinWorkload) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        for number, name in enumerate("ab"):
            table, rows = workload.table(number), workload.batch_rows
            write_numbered_files(folder / name, (table.slice(batch * rows, rows) for batch in range(workload.batches)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

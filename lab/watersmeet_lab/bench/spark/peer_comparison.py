"""All systems on one workload, over the same rows, in one run.

The systems are Watersmeet on Spark and embedded, Spark's own joins, Flink's SQL and DuckDB.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.sources.directories import write_numbered_files
from watersmeet_lab.bench import flink
from watersmeet_lab.bench.duckdb_comparison import run_on_finite_tables, slice_batch
from watersmeet_lab.bench.expected_rows import ExpectedRows
from watersmeet_lab.bench.flink import flink_select
from watersmeet_lab.bench.join_workloads import MIN_BATCHES, TIME_COLUMNS, JoinWorkload, first_rows
from watersmeet_lab.bench.results import PeerComparison, SystemResult
from watersmeet_lab.bench.spark.native_joins import (
    STATE_STORES,
    native_join_frame,
    read_parquet_stream,
    use_state_store,
)
from watersmeet_lab.bench.spark.streaming_run import SparkRunResult, benchmark_session, mean_phase_seconds, run_to_end

WARM_UP_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class PeerComparisonRun:
    """A comparison with our runs on Spark, whose batches show where their time went."""

    comparison: PeerComparison
    ours: tuple[SparkRunResult, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.comparison.to_dict(), "profile_s": mean_phase_seconds(self.ours[0])}

    def __str__(self) -> str:
        lines = [
            f"    {phase:<30} {seconds:7.3f} s per batch" for phase, seconds in mean_phase_seconds(self.ours[0]).items()
        ]
        return "\n".join([str(self.comparison), *lines])


def compare_with_peers(workload: JoinWorkload) -> PeerComparisonRun:
    """Run the workload on all systems in turn, and raise an error if their rows differ."""
    tables = workload.tables()
    known = run_on_finite_tables(workload, tables)
    runs, skipped = _run_on_spark(workload, tables, known.expected)
    in_flink, why, scanned = _run_flink(workload, tables, known.expected)
    ours = tuple(each for each in runs if each.name.startswith("watersmeet"))
    systems = (*(each.system for each in runs), *known.systems, *in_flink)
    rows_in = _total_rows(tables)
    missing = {**known.skipped, **skipped, **why}
    note = "; ".join(filter(None, (workload.note, scanned)))
    return PeerComparisonRun(
        PeerComparison(workload.name, rows_in, known.expected.rows, workload.seed, systems, missing, note), ours
    )


def _run_on_spark(
    workload: JoinWorkload, tables: Mapping[str, pa.Table], expected: ExpectedRows
) -> tuple[list[SparkRunResult], dict[str, str]]:
    """Run our join and Spark's own in one session; all run on a few rows before any is measured."""
    spark = benchmark_session()
    with write_batches(first_rows(tables, WARM_UP_ROWS), MIN_BATCHES) as folder:
        refused = workload.excluded_peers.get("spark") or _find_spark_refusal(spark, workload, folder)
        for ours in (_run_over_files, _run_over_frames):
            ours(spark, workload, folder, rows_per_batch=1)
    with write_batches(tables, workload.batches) as folder:
        per_batch = _total_rows(tables) // workload.batches
        runs = [ours(spark, workload, folder, per_batch) for ours in (_run_over_files, _run_over_frames)]
        if refused is None:
            runs += _run_native_joins(spark, workload, folder, per_batch)
    for each in runs:
        expected.check(each.name, each.rows_out, each.checksum)
    return runs, {} if refused is None else {"spark": refused}


def run_watersmeet_on_spark(spark: SparkSession, workload: JoinWorkload) -> SparkRunResult:
    """Run Watersmeet alone over files, after a run on a few rows."""
    tables = workload.tables()
    with write_batches(first_rows(tables, WARM_UP_ROWS), MIN_BATCHES) as folder:
        _run_over_files(spark, workload, folder, rows_per_batch=1)
    with write_batches(tables, workload.batches) as folder:
        return _run_over_files(spark, workload, folder, _total_rows(tables) // workload.batches)


def _run_over_files(spark: SparkSession, workload: JoinWorkload, folder: Path, rows_per_batch: int) -> SparkRunResult:
    streams = {
        name: wm.stream(folder / name, time="ts", follow=True, files_per_batch=1) for name in workload.join.streams
    }
    return run_to_end(
        "watersmeet-spark", wm.on_spark(workload.join.to_watersmeet_sql(), streams, session=spark), rows_per_batch
    )


def _run_over_frames(spark: SparkSession, workload: JoinWorkload, folder: Path, rows_per_batch: int) -> SparkRunResult:
    streams = {name: wm.stream(read_parquet_stream(spark, folder / name), time="ts") for name in workload.join.streams}
    return run_to_end(
        "watersmeet-spark-frames",
        wm.on_spark(workload.join.to_watersmeet_sql(), streams, session=spark),
        rows_per_batch,
    )


def _run_native_joins(
    spark: SparkSession, workload: JoinWorkload, folder: Path, rows_per_batch: int
) -> list[SparkRunResult]:
    found = []
    for provider in STATE_STORES:
        with use_state_store(spark, provider):
            found.append(
                run_to_end(f"spark-{provider}", native_join_frame(spark, workload.join, folder), rows_per_batch)
            )
    return found


def _find_spark_refusal(spark: SparkSession, workload: JoinWorkload, folder: Path) -> str | None:
    """Return the reason why Spark cannot run the join; None if it ran on a few rows."""
    try:
        _run_native_joins(spark, workload, folder, rows_per_batch=1)
    except PySparkException as error:
        return f"Spark cannot run it: {(error.getCondition() or str(error)).splitlines()[0]}"
    return None


def _run_flink(
    workload: JoinWorkload, tables: Mapping[str, pa.Table], expected: ExpectedRows
) -> tuple[list[SystemResult], dict[str, str], str]:
    """Return Flink's figures or the reason why it is missing, and a note on the time it spends reading."""
    if "flink" in workload.excluded_peers:
        return [], {"flink": workload.excluded_peers["flink"]}, ""
    try:
        ran = flink.run_flink_query(tables, flink_select(workload.join), _flink_schema(workload, expected.schema))
    except flink.FlinkUnavailableError as error:
        return [], {"flink": str(error)}, ""
    expected.check_table("flink", ran.rows)
    note = f"Flink took {ran.seconds:.1f} s; reading its input alone took {ran.scan_seconds:.1f} s"
    return [SystemResult("flink", _total_rows(tables) / ran.seconds, peak_bytes=ran.peak_bytes)], {}, note


def _flink_schema(workload: JoinWorkload, schema: pa.Schema) -> pa.Schema:
    """Return the result columns in the order of the SELECT for Flink."""
    join = workload.join
    names = [
        *(["as_of"] if join.aggregates else []),
        *(name for _, name in join.outputs),
        *(each.name for each in join.aggregates),
    ]
    return pa.schema([schema.field(name) for name in names])


@contextmanager
def write_batches(tables: Mapping[str, pa.Table], batches: int) -> Iterator[Path]:
    """Write the streams as directories of Parquet files, one per batch, in time order."""
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        for name, table in tables.items():
            typed = _with_timestamps(table)
            write_numbered_files(folder / name, (slice_batch(typed, number, batches) for number in range(batches)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_timestamps(table: pa.Table) -> pa.Table:
    """Convert time columns to timestamps."""
    instant = pa.timestamp("us", "UTC")
    return table.cast(
        pa.schema([(field.name, instant if field.name in TIME_COLUMNS else field.type) for field in table.schema])
    )


def _total_rows(tables: Mapping[str, pa.Table]) -> int:
    return sum(table.num_rows for table in tables.values())

"""All systems on one workload: ours on Spark and embedded, Spark's own joins, Flink's SQL and DuckDB, over the same
rows, in one run.
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
from watersmeet.sources.numbered_files import write_numbered
from watersmeet_lab.bench.answers import Answer
from watersmeet_lab.bench.embedded import batch_of, finite
from watersmeet_lab.bench.peers import flink
from watersmeet_lab.bench.peers.flink_sql import flink_select
from watersmeet_lab.bench.results import Comparison, System
from watersmeet_lab.bench.spark.native import PROVIDERS, native_join, state_in, stream_of
from watersmeet_lab.bench.spark.profile import phases
from watersmeet_lab.bench.spark.runs import Ran, run
from watersmeet_lab.bench.spark.session import session
from watersmeet_lab.bench.workloads import FEWEST_BATCHES, INSTANTS, Workload, opening

WARM_UP_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Beside:
    """What was found, with our runs on Spark, whose batches tell where their time went."""

    comparison: Comparison
    ours: tuple[Ran, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**self.comparison.to_dict(), "profile_s": phases(self.ours[0])}

    def __str__(self) -> str:
        lines = [f"    {phase:<30} {seconds:7.3f} s per batch" for phase, seconds in phases(self.ours[0]).items()]
        return "\n".join([str(self.comparison), *lines])


def beside(workload: Workload) -> Beside:
    """Runs the workload on all in turn, and refuses to give figures when their rows differ."""
    tables = workload.tables()
    known = finite(workload, tables)
    runs, skipped = _on_spark(workload, tables, known.answer)
    in_flink, why, scanned = _flink(workload, tables, known.answer)
    ours = tuple(each for each in runs if each.name.startswith("watersmeet"))
    systems = (*(each.system for each in runs), *known.systems, *in_flink)
    rows_in = _rows_in(tables)
    missing = {**known.skipped, **skipped, **why}
    said = "; ".join(filter(None, (workload.said, scanned)))
    return Beside(Comparison(workload.name, rows_in, known.answer.rows, workload.seed, systems, missing, said), ours)


def _on_spark(workload: Workload, tables: Mapping[str, pa.Table], answer: Answer) -> tuple[list[Ran], dict[str, str]]:
    """All have run before any is measured."""
    spark = session()
    with written(opening(tables, WARM_UP_ROWS), FEWEST_BATCHES) as folder:
        refused = workload.without.get("spark") or _refused(spark, workload, folder)
        for ours in (_over_files, _over_frames):
            ours(spark, workload, folder, rows_per_batch=1)
    with written(tables, workload.batches) as folder:
        per_batch = _rows_in(tables) // workload.batches
        runs = [ours(spark, workload, folder, per_batch) for ours in (_over_files, _over_frames)]
        if refused is None:
            runs += _native(spark, workload, folder, per_batch)
    for each in runs:
        answer.check(each.name, each.rows_out, each.checksum)
    return runs, {} if refused is None else {"spark": refused}


def ours_on_spark(spark: SparkSession, workload: Workload) -> Ran:
    """Ours alone, over files, after a run on a few rows."""
    tables = workload.tables()
    with written(opening(tables, WARM_UP_ROWS), FEWEST_BATCHES) as folder:
        _over_files(spark, workload, folder, rows_per_batch=1)
    with written(tables, workload.batches) as folder:
        return _over_files(spark, workload, folder, _rows_in(tables) // workload.batches)


def _over_files(spark: SparkSession, workload: Workload, folder: Path, rows_per_batch: int) -> Ran:
    streams = {
        name: wm.stream(folder / name, time="ts", follow=True, files_per_batch=1) for name in workload.join.streams
    }
    return run("watersmeet-spark", wm.on_spark(workload.join.ours(), streams, session=spark), rows_per_batch)


def _over_frames(spark: SparkSession, workload: Workload, folder: Path, rows_per_batch: int) -> Ran:
    streams = {name: wm.stream(stream_of(spark, folder / name), time="ts") for name in workload.join.streams}
    return run("watersmeet-spark-frames", wm.on_spark(workload.join.ours(), streams, session=spark), rows_per_batch)


def _native(spark: SparkSession, workload: Workload, folder: Path, rows_per_batch: int) -> list[Ran]:
    found = []
    for provider in PROVIDERS:
        with state_in(spark, provider):
            found.append(run(f"spark-{provider}", native_join(spark, workload.join, folder), rows_per_batch))
    return found


def _refused(spark: SparkSession, workload: Workload, folder: Path) -> str | None:
    """Why Spark does not run the join, if it does not; else it has run once on a few rows."""
    try:
        _native(spark, workload, folder, rows_per_batch=1)
    except PySparkException as error:
        return f"Spark refuses it: {(error.getCondition() or str(error)).splitlines()[0]}"
    return None


def _flink(
    workload: Workload, tables: Mapping[str, pa.Table], answer: Answer
) -> tuple[list[System], dict[str, str], str]:
    """Flink's figures, or why it is left out; and how much of its time it only reads."""
    if "flink" in workload.without:
        return [], {"flink": workload.without["flink"]}, ""
    try:
        ran = flink.run(tables, flink_select(workload.join), _shown(workload, answer.schema))
    except flink.FlinkMissingError as error:
        return [], {"flink": str(error)}, ""
    answer.check_table("flink", ran.rows)
    said = f"Flink took {ran.seconds:.1f} s, and {ran.scan_seconds:.1f} s to read its input and do nothing else"
    return [System("flink", _rows_in(tables) / ran.seconds, peak_bytes=ran.peak_bytes)], {}, said


def _shown(workload: Workload, schema: pa.Schema) -> pa.Schema:
    """The result's columns in the order in which Flink is asked for them."""
    join = workload.join
    names = [
        *(["as_of"] if join.aggregates else []),
        *(name for _, name in join.outputs),
        *(each.name for each in join.aggregates),
    ]
    return pa.schema([schema.field(name) for name in names])


@contextmanager
def written(tables: Mapping[str, pa.Table], batches: int) -> Iterator[Path]:
    """The streams as directories of parquet files, one per batch, in the order of their times."""
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        for name, table in tables.items():
            timed = _timed(table)
            write_numbered(folder / name, (batch_of(timed, number, batches) for number in range(batches)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _timed(table: pa.Table) -> pa.Table:
    """Instants as Spark knows them."""
    instant = pa.timestamp("us", "UTC")
    return table.cast(
        pa.schema([(field.name, instant if field.name in INSTANTS else field.type) for field in table.schema])
    )


def _rows_in(tables: Mapping[str, pa.Table]) -> int:
    return sum(table.num_rows for table in tables.values())

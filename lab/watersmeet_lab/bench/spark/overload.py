"""A query on Spark that receives twice the rows it can sustain.

The controller must bring batches back under their trigger interval and keep most of the result.

The benchmark first finds the sustained rate: it doubles the rate until a batch of one trigger interval takes longer
than the interval. Then files of twice that rate appear while the query runs, as fast as their event times advance, and
the controller chooses what to shed. The files are written in advance and appear by a hard link, so that the load
generator itself takes no time.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet.planner.controller import SheddingDecision
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.planning import choose_spark_plan
from watersmeet.runtime.spark.batch_metrics import SparkBatchMetrics, list_batches
from watersmeet.runtime.spark.load_controller import LoadController
from watersmeet.sources.declarations import bind_query
from watersmeet_lab.bench.spark.streaming_run import benchmark_session

#: Event time that one file covers.
FILE_SPAN_S = 0.5
#: Batches after which all later ones must meet the trigger interval.
SETTLING_BATCHES = 5
_STREAMS = ("a", "b")


@dataclass(frozen=True, slots=True)
class OverloadWorkload:
    """Two streams of equal rate over windows of ten seconds.

    A row matches `rows_per_s · window_s / keys` others.
    """

    batches: int = 20
    trigger_s: float = 10.0
    first_rows_per_s: int = 2_500
    window_s: int = 10
    keys: int = 5_000
    seed: int = 0

    def query(self) -> str:
        window = f"[RANGE {self.window_s} SECONDS]"
        return f"SELECT a.id AS a, b.id AS b FROM a {window}, b {window} WHERE a.k = b.k"

    def write(self, folder: Path, rows_per_s: float, seconds: float) -> int:
        """Write numbered files of both streams; return the number of files per stream."""
        pieces, rows = math.ceil(seconds / FILE_SPAN_S), round(rows_per_s * FILE_SPAN_S)
        for stream, name in enumerate(_STREAMS):
            (folder / name).mkdir(parents=True)
            for piece in range(pieces):
                rng = np.random.default_rng([self.seed, stream, piece])
                times = (np.arange(rows) / rows + piece) * FILE_SPAN_S * 1e6
                table = pa.table(
                    {
                        "ts": pa.array(times.astype(np.int64)).cast(pa.timestamp("us", "UTC")),
                        "k": pa.array(rng.integers(0, self.keys, rows)),
                        "id": pa.array(np.arange(piece * rows, (piece + 1) * rows)),
                    }
                )
                pq.write_table(table, folder / name / f"{piece:05d}.parquet")
        return pieces


@dataclass(frozen=True, slots=True)
class OverloadResult:
    """Batches, decisions and output of an overloaded query.

    `most_rows_out_per_s` is the highest output that the cost model considers possible on this machine, at the speed
    measured after each batch, with batches that fill their interval. For `most_rows_out_with_margin_per_s`, batches
    leave a margin of their interval unused: the measured prediction error.
    """

    workload: OverloadWorkload
    sustained_rows_per_s: float
    batches: tuple[SparkBatchMetrics, ...]
    decisions: tuple[SheddingDecision, ...]
    most_rows_out_per_s: float
    most_rows_out_with_margin_per_s: float

    @property
    def settled_after(self) -> int | None:
        """Batches until all later ones took less than the trigger interval; None if the last did not."""
        limit_ms = self.workload.trigger_s * 1e3
        last_overrun = max((n for n, batch in enumerate(self.batches) if batch.trigger_ms > limit_ms), default=-1)
        return None if last_overrun == len(self.batches) - 1 else last_overrun + 1

    @property
    def rows_out_per_s(self) -> float:
        """Results per second of input, over all batches after the first `SETTLING_BATCHES`."""
        settled = self.batches[SETTLING_BATCHES:]
        seconds = sum(each.arrived["a"] for each in settled) / (2 * self.sustained_rows_per_s)
        return sum(each.results for each in settled) / seconds

    def to_dict(self) -> dict[str, Any]:
        return {
            "workload": "overload",
            "trigger_s": self.workload.trigger_s,
            "sustained_rows_per_s": self.sustained_rows_per_s,
            "flooded_rows_per_s": 2 * self.sustained_rows_per_s,
            "settled_after_batches": self.settled_after,
            "rows_out_per_s": self.rows_out_per_s,
            "share_of_the_optimum": self.rows_out_per_s / self.most_rows_out_with_margin_per_s,
            "share_of_the_optimum_with_nothing_free": self.rows_out_per_s / self.most_rows_out_per_s,
            "batches": [
                {
                    "batch": each.batch,
                    "seconds": each.trigger_ms / 1e3,
                    "arrived": dict(each.arrived),
                    "shed": dict(each.shed),
                    "late": dict(each.late),
                    "rows_out": each.results,
                    "state_bytes": each.state_bytes,
                }
                for each in self.batches
            ],
            "decisions": [each.to_dict() for each in self.decisions],
        }

    def __str__(self) -> str:
        rate = f"{self.sustained_rows_per_s:,.0f}"
        lines = [
            f"overload: sustained {rate} rows/s per stream with batches of {self.workload.trigger_s:g} s; input is "
            "twice that"
        ]
        for each in self.batches:
            arrived, shed = sum(each.arrived.values()), sum(each.shed.values())
            lines.append(
                f"  batch {each.batch:>2}  {each.trigger_ms / 1e3:5.1f} s  {arrived:>9,} rows, "
                f"{shed / max(arrived, 1):4.0%} shed  {each.results:>10,} out  state {each.state_bytes / 1e6:6.1f} MB"
            )
        settled = (
            "not settled" if self.settled_after is None else f"under the interval from batch {self.settled_after} on"
        )
        lines.append(f"  {settled}; after {SETTLING_BATCHES} batches, {self.rows_out_per_s:,.0f} results per s:")
        margin = "with the prediction error as margin"
        for most, how in (
            (self.most_rows_out_with_margin_per_s, margin),
            (self.most_rows_out_per_s, "without a margin"),
        ):
            lines.append(
                f"  {self.rows_out_per_s / most:.1%} of the {most:,.0f} that the model considers possible on this "
                f"machine, {how}"
            )
        return "\n".join(lines)


def run_overload(workload: OverloadWorkload) -> OverloadResult:
    """Find the sustained rate, then run the query at twice that rate."""
    spark = benchmark_session()
    sustained = _find_sustained_rate(spark, workload)
    with _temporary_folder() as folder:
        pieces = workload.write(folder / "ready", 2 * sustained, workload.batches * workload.trigger_s)
        ran, controller = _run_overloaded_query(spark, workload, folder, pieces)
    most = controller.estimate_max_rows_out_per_s(dict.fromkeys(_STREAMS, 2 * sustained), SETTLING_BATCHES)
    return OverloadResult(workload, sustained, ran, tuple(controller.decisions), *most)


def _find_sustained_rate(spark: SparkSession, workload: OverloadWorkload) -> float:
    """Return the rate, in rows per second per stream, at which a batch takes exactly one trigger interval.

    The rate is interpolated between two measured rates.
    """
    _measure_batch_s(spark, workload, workload.first_rows_per_s)  # starts the processes and loads the kernels
    slower, slower_s = 0.0, 0.0  # the last measured rate, and the seconds of its batch
    for doubling in range(10):
        rate = float(workload.first_rows_per_s * 2**doubling)
        seconds = _measure_batch_s(spark, workload, rate)
        if seconds > workload.trigger_s and not doubling:
            raise WatersmeetError(f"{rate:,.0f} rows/s already take {seconds:.1f} s: the trigger interval is too short")
        if seconds > workload.trigger_s:
            return slower + (workload.trigger_s - slower_s) / (seconds - slower_s) * (rate - slower)
        slower, slower_s = rate, seconds
    raise WatersmeetError(f"even {slower:,.0f} rows/s do not overload the query")


def _measure_batch_s(spark: SparkSession, workload: OverloadWorkload, rows_per_s: float) -> float:
    """Return the seconds of a batch of one trigger interval once the windows are full."""
    with _temporary_folder() as folder:
        workload.write(folder / "in", rows_per_s, workload.window_s + 2 * workload.trigger_s)
        sources = {
            n: wm.stream(folder / "in" / n, time="ts", follow=True, files_per_batch=_files_per_trigger(workload))
            for n in _STREAMS
        }
        writer = wm.on_spark(workload.query(), sources, session=spark).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        full = [each for each in list_batches(query) if each.arrived["a"] >= rows_per_s * workload.trigger_s * 0.99]
        return full[-1].trigger_ms / 1e3


def _files_per_trigger(workload: OverloadWorkload) -> int:
    return round(workload.trigger_s / FILE_SPAN_S)


def _run_overloaded_query(
    spark: SparkSession, workload: OverloadWorkload, folder: Path, pieces: int
) -> tuple[tuple[SparkBatchMetrics, ...], LoadController]:
    for name in _STREAMS:
        (folder / "in" / name).mkdir(parents=True)
    _link_file(folder, 0)
    sources = {name: wm.stream(folder / "in" / name, time="ts", follow=True) for name in _STREAMS}
    bound = bind_query(workload.query(), sources)
    controller = LoadController(
        bound,
        PlanLog(folder / "plans"),
        folder / "checkpoint",
        workload.trigger_s,
        choose_spark_plan(bound, sources),
        stats={name: wm.stats(distinct={"k": workload.keys}) for name in _STREAMS},
    )
    frame = wm.on_spark(workload.query(), sources, session=spark, plans=folder / "plans")
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(processingTime=f"{round(workload.trigger_s * 1e3)} milliseconds").start()
    controller_thread = controller.start(query, spark)
    start_s = time.monotonic()
    pause = threading.Event()
    for piece in range(1, pieces):
        # Files follow the wall clock, however far behind the query is.
        pause.wait(max(0.0, start_s + piece * FILE_SPAN_S - time.monotonic()))
        if not query.isActive:
            break
        _link_file(folder, piece)
    query.processAllAvailable()
    query.stop()
    controller_thread.join()
    return tuple(list_batches(query)), controller


def _link_file(folder: Path, piece: int) -> None:
    for name in _STREAMS:
        file = f"{piece:05d}.parquet"
        os.link(folder / "ready" / name / file, folder / "in" / name / file)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""Forecasts of micro-batches on Spark, against measured steady batches.

A workload is a query over generated streams. Its files hold the rows of one trigger interval each, and every batch
reads one file per stream. Batches follow each other at once, so that a measurement does not wait for its trigger
intervals. A second run has files with several times the rows. The line through both runs is the measured
sustained rate: the rows per second at which a batch takes the whole interval.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.runtime.background import BackgroundThread
from watersmeet.runtime.spark.batch_metrics import list_batches
from watersmeet.runtime.spark.session import session
from watersmeet.sources.directories import write_numbered_files

#: Batches of a run, and how many of them are steady: in the first ones, processes start and windows fill.
BATCHES, STEADY_BATCHES = 8, 4
#: Rows of the second run relative to the first.
LARGER_RUN = 3.0
MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class SparkWorkload:
    """A query over streams that have the same rate and two integer keys, `k` and `j`."""

    name: str
    query: str
    rows_per_s: float
    keys: int
    trigger_s: float = 5.0
    text_bytes: int = 0

    @property
    def streams(self) -> list[str]:
        """Names of the streams that the query reads."""
        return sorted({source.name for source in wm.sql(self.query).sources})

    def table(self, stream: str, batch: int, factor: float) -> pa.Table:
        """Return the rows of a stream that arrive during one trigger interval."""
        rng = np.random.default_rng([batch, ord(stream[-1]), int(factor)])
        rows, span_us = int(self.rows_per_s * factor * self.trigger_s), self.trigger_s * MICROSECONDS
        times = (batch * span_us + np.sort(rng.integers(0, int(span_us), rows))).astype(np.int64)
        # The matches of a row stay the same: there are more keys if there are more rows.
        keys = max(1, int(self.keys * factor))
        columns: dict[str, Any] = {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "k": rng.integers(0, keys, rows),
            "j": rng.integers(0, keys, rows),
        }
        if self.text_bytes:
            columns["note"] = pa.array([f"{number:0{self.text_bytes}d}" for number in rng.integers(0, 10**9, rows)])
        return pa.table(columns)


#: Two-way and three-way joins, text payload, many results, and an aggregation.
WORKLOADS = (
    SparkWorkload(
        "two-way",
        "SELECT a.k, a.ts AS a_ts, b.ts AS b_ts FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
        10_000,
        100_000,
    ),
    SparkWorkload(
        "many results",
        "SELECT a.k, a.ts AS a_ts, b.ts AS b_ts FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
        4_000,
        4_000,
    ),
    SparkWorkload(
        "text payload",
        "SELECT a.k, a.note AS a_note, b.note AS b_note FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] "
        "WHERE a.k = b.k",
        5_000,
        50_000,
        text_bytes=100,
    ),
    SparkWorkload(
        "three-way",
        "SELECT a.k, c.ts AS c_ts FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS] "
        "WHERE a.k = b.k AND b.k = c.k",
        5_000,
        25_000,
    ),
    SparkWorkload(
        "chain",
        "SELECT a.k, c.j FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS] "
        "WHERE a.k = b.k AND b.j = c.j",
        5_000,
        50_000,
    ),
    SparkWorkload(
        "aggregation",
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k "
        "GROUP BY a.k EVERY 1 SECOND",
        2_000,
        500,
    ),
)


@dataclass(frozen=True, slots=True)
class SteadyRun:
    """Steady batches of one run: seconds per batch, rows in and out, and peak memory of one worker."""

    batch_s: tuple[float, ...]
    rows_in: float
    rows_out: float
    worker_bytes: float

    @property
    def median_s(self) -> float:
        """Median time of a batch."""
        return statistics.median(self.batch_s)


@dataclass(frozen=True, slots=True)
class SparkForecastResult:
    """Predicted and measured figures of one workload. `noise` is the slowest by the fastest steady batch."""

    name: str
    predicted_batch_s: float
    measured_batch_s: float
    predicted_rows_per_s: float
    measured_rows_per_s: float
    predicted_worker_bytes: float
    measured_worker_bytes: float
    noise: float

    @property
    def errors(self) -> dict[str, float]:
        """Factors between predicted and measured figures, at least 1."""
        return {
            "batch time": error_factor(self.predicted_batch_s, self.measured_batch_s),
            "sustained rate": error_factor(self.predicted_rows_per_s, self.measured_rows_per_s),
            "memory of a worker": error_factor(self.predicted_worker_bytes, self.measured_worker_bytes),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {**asdict(self), "errors": self.errors}


def error_factor(one: float, other: float) -> float:
    """Return the ratio of the larger figure to the smaller one.

    >>> error_factor(2.0, 4.0), error_factor(4.0, 2.0)
    (2.0, 2.0)
    """
    low, high = sorted((one, other))
    return high / low if low > 0 else float("inf")


def measure_workload(spark: SparkSession, workload: SparkWorkload) -> SparkForecastResult:
    """Predict the micro-batches of a workload, then run it."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-foresight-") as name:
        small = _write_streams(Path(name) / "small", workload, 1.0)
        large = _write_streams(Path(name) / "large", workload, LARGER_RUN)
        about = wm.explain(workload.query, small, engine="spark", trigger=f"{workload.trigger_s:g} seconds")
        assert about.micro_batch is not None
        usual = _run(spark, workload, small, Path(name) / "first")
        larger = _run(spark, workload, large, Path(name) / "second")
    return SparkForecastResult(
        workload.name,
        about.micro_batch.micro_batch_s,
        usual.median_s,
        about.micro_batch.sustained_rows_per_s,
        estimate_sustained_rate(usual, larger, workload.trigger_s),
        about.micro_batch.worker_bytes,
        usual.worker_bytes,
        max(usual.batch_s) / min(usual.batch_s),
    )


def estimate_sustained_rate(usual: SteadyRun, larger: SteadyRun, trigger_s: float) -> float:
    """Return the rate at which the line through both runs reaches the trigger interval."""
    per_row_s = max((larger.median_s - usual.median_s) / (larger.rows_in - usual.rows_in), 1e-9)
    return max(0.0, usual.rows_in + (trigger_s - usual.median_s) / per_row_s) / trigger_s


def _write_streams(place: Path, workload: SparkWorkload, factor: float) -> dict[str, wm.Stream]:
    for stream in workload.streams:
        write_numbered_files(place / stream, (workload.table(stream, batch, factor) for batch in range(BATCHES)))
    return {stream: wm.stream(place / stream, time="ts", follow=True, files_per_batch=1) for stream in workload.streams}


def _run(spark: SparkSession, workload: SparkWorkload, streams: Mapping[str, wm.Stream], place: Path) -> SteadyRun:
    with watch_largest_worker() as largest:
        running = wm.start(
            workload.query, streams, format="noop", checkpoint=place, trigger="availableNow", session=spark
        )
        running.await_termination()
    steady = list_batches(running.spark_query)[:BATCHES][-STEADY_BATCHES:]
    return SteadyRun(
        tuple(each.trigger_ms / 1e3 for each in steady),
        statistics.mean(sum(each.arrived.values()) for each in steady),
        statistics.mean(each.results for each in steady),
        largest.size_bytes,
    )


#: Interval between two looks at the workers.
_SAMPLE_INTERVAL_S = 0.2


@dataclass
class LargestWorker:
    """The most memory that one of Spark's Python workers has held; pages in common are divided among processes."""

    size_bytes: float = 0.0

    def sample(self) -> None:
        """Read the memory in use now. A worker is a Python process that the daemon has forked."""
        for process in psutil.Process().children(recursive=True):
            try:
                parent = process.parent()
                is_forked = parent is not None and parent.pid != os.getpid() and "python" in parent.name()
                if is_forked and "python" in process.name():
                    self.size_bytes = max(self.size_bytes, float(process.memory_full_info().pss))
            except psutil.Error:  # it has ended since it was listed
                continue


@contextmanager
def watch_largest_worker() -> Iterator[LargestWorker]:
    """Measure the memory of the largest worker while the context is open."""
    largest, done = LargestWorker(), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_INTERVAL_S):
            largest.sample()

    watcher = BackgroundThread("the watch of the workers", watch).start()
    try:
        yield largest
    finally:
        done.set()
        watcher.join()
    watcher.raise_failure()


def summarize(results: Iterable[SparkForecastResult]) -> dict[str, dict[str, float]]:
    """Return the median and the worst factor of each figure."""
    errors: dict[str, list[float]] = {}
    for result in results:
        for figure, factor in result.errors.items():
            errors.setdefault(figure, []).append(factor)
    return {name: {"median": statistics.median(each), "worst": max(each)} for name, each in errors.items()}


def measure_workloads(
    report: Callable[[str], None], workloads: Iterable[SparkWorkload] = WORKLOADS, spark: SparkSession | None = None
) -> list[SparkForecastResult]:
    """Measure workloads one after another, and report each of them in one line."""
    results = []
    for workload in workloads:
        found = measure_workload(spark or session(), workload)
        report(describe_result(found))
        results.append(found)
    return results


def describe_result(found: SparkForecastResult) -> str:
    """Describe a result on one line: predicted against measured figures."""
    return (
        f"{found.name}: batch {found.predicted_batch_s:.2f} s, measured {found.measured_batch_s:.2f} s; "
        f"sustains {found.predicted_rows_per_s:,.0f} rows/s, measured {found.measured_rows_per_s:,.0f}; "
        f"worker {found.predicted_worker_bytes / 1e6:.0f} MB, measured {found.measured_worker_bytes / 1e6:.0f} MB; "
        f"noise {found.noise:.2f}"
    )


if __name__ == "__main__":
    found = measure_workloads(lambda line: print(line, flush=True))
    print(json.dumps({"results": [each.to_dict() for each in found], "summary": summarize(found)}))

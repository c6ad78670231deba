"""One streaming query, run to its end: batch times, output rows with an order-independent checksum, and phases.

Spark's own joins keep their state on the Java heap, so the session gets half of the machine's memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the customary name

from watersmeet.runtime.spark.batch_metrics import SparkBatchMetrics, parse_progress
from watersmeet.runtime.spark.session import session as local_session
from watersmeet.runtime.spark.versions import java_machine
from watersmeet_lab.bench.resource_usage import watch_peak_memory
from watersmeet_lab.bench.results import SystemResult

_ROW_COUNT, _CHECKSUM = "rows", "checksum"
#: Share of the machine's memory for Java; workers, other peers and the expected rows need the rest.
HEAP_SHARE = 0.5
#: Phases of a batch by metric. Reading files and packing them is one task, so they share one time.
TASK_PHASES = {
    "scan and pack": "pack_us",
    "ingest": "receive_us",
    "state read": "state_read_us",
    "kernel": "join_us",
    "state write": "state_write_us",
}
#: Other parts of a trigger, as Spark names them.
TRIGGER_PHASES = {
    "planning": ("latestOffset", "getBatch", "queryPlanning"),
    "logs and commit": ("walCommit", "commitOffsets", "commitBatch"),
}


@dataclass(frozen=True, slots=True)
class SparkRunResult:
    """Result of a streaming run.

    `seconds` and `rows_in` exclude the first batch, in which the processes warm up. `state_bytes` is the state that the
    operators report: ours, or the state store with its files. `durations_ms` are the parts of each trigger as Spark
    names them.
    """

    name: str
    rows_in: int
    seconds: float
    rows_out: int
    checksum: int
    batches: tuple[SparkBatchMetrics, ...]
    trigger_ms: tuple[int, ...] = ()
    state_bytes: int | None = None
    peak_bytes: int | None = None
    durations_ms: tuple[Mapping[str, int], ...] = ()

    @property
    def rows_per_s(self) -> float:
        return self.rows_in / self.seconds

    @property
    def system(self) -> SystemResult:
        """The figures for the report; latency runs from the start of a batch until its rows are written."""
        p50_ms, p99_ms = np.percentile(self.trigger_ms, [50, 99]).tolist() if self.trigger_ms else (None, None)
        return SystemResult(self.name, self.rows_per_s, p50_ms, p99_ms, self.peak_bytes, self.state_bytes)


def run_to_end(name: str, frame: DataFrame, rows_per_batch: int) -> SparkRunResult:
    """Run a streaming frame over all available input, into a sink that discards the rows."""
    names = sorted(frame.columns)
    hashed = F.xxhash64(*names).bitwiseAND(0xFFFFFFFF)
    counted = frame.observe("bench", F.count(F.lit(1)).alias(_ROW_COUNT), F.sum(hashed).alias(_CHECKSUM))
    checkpoint = Path(tempfile.mkdtemp(prefix="watersmeet-bench-"))
    try:
        writer = counted.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        _collect_garbage(frame)
        with watch_peak_memory() as memory:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        return replace(_to_result(name, query.recentProgress, rows_per_batch), peak_bytes=memory.peak_bytes)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _collect_garbage(frame: DataFrame) -> None:
    """Collect garbage of the previous query in the Java process, which would count as memory of this one."""
    java_machine(frame.sparkSession).java.lang.System.gc()


def _to_result(name: str, progress: list[Any], rows_per_batch: int) -> SparkRunResult:
    full = [each for each in progress if each["numInputRows"]]
    observed = [each["observedMetrics"]["bench"].asDict() for each in progress if "bench" in each["observedMetrics"]]
    return SparkRunResult(
        name,
        rows_in=rows_per_batch * (len(full) - 1),
        seconds=sum(each["durationMs"]["triggerExecution"] for each in full[1:]) / 1000,
        rows_out=sum(each[_ROW_COUNT] for each in observed),
        checksum=sum(each[_CHECKSUM] or 0 for each in observed),
        batches=tuple(parse_progress(full))[1:],
        trigger_ms=tuple(each["durationMs"]["triggerExecution"] for each in full[1:]),
        state_bytes=max(map(_operator_state_bytes, full), default=None),
        durations_ms=tuple(dict(each["durationMs"]) for each in full[1:]),
    )


def _operator_state_bytes(progress: Any) -> int:
    ours = list(parse_progress([progress]))
    return ours[0].state_bytes if ours else sum(map(_state_store_bytes, progress["stateOperators"]))


def _state_store_bytes(store: Any) -> int:
    return int(store["memoryUsedBytes"]) + int(store["customMetrics"].get("rocksdbSstFileSize", 0))


def benchmark_session() -> SparkSession:
    """Return a local session with half of the machine's memory; an active session is returned unchanged."""
    settings: dict[str, Any] = {"spark.driver.memory": f"{int(psutil.virtual_memory().total * HEAP_SHARE) >> 20}m"}
    return local_session(**settings)


def mean_phase_seconds(ran: SparkRunResult) -> dict[str, float]:
    """Return the mean seconds of a batch by phase.

    The phases of a task run on several cores. The rest of the trigger is shuffle and output.
    """
    count = max(1, len(ran.batches))
    cores = os.cpu_count() or 1
    spent = {
        phase: sum(getattr(each, name) for each in ran.batches) / count / 1e6 / cores
        for phase, name in TASK_PHASES.items()
    }
    for part, names in TRIGGER_PHASES.items():
        spent[part] = sum(each.get(name, 0) for each in ran.durations_ms for name in names) / count / 1000
    whole = sum(each.trigger_ms for each in ran.batches) / count / 1000
    return {**spent, "shuffle, output and the rest": whole - sum(spent.values()), "whole trigger": whole}


def phase_seconds_by_batch(ran: SparkRunResult) -> list[dict[str, float]]:
    """Return the seconds of every batch by task phase, summed over cores, and the whole trigger."""
    return [
        {
            **{phase: getattr(each, name) / 1e6 for phase, name in TASK_PHASES.items()},
            "whole trigger": each.trigger_ms / 1000,
        }
        for each in ran.batches
    ]

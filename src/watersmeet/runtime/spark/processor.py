"""Processors of the stateful steps: load the state of a bucket, process the batch, save the changes.

`BucketProcessor` joins or aggregates. Where buckets have partial groups, `MergeProcessor` adds them up in a second
stateful step. `run_finite` and `merge_finite` do the same for finite input, without Spark's state store.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from watersmeet.algebra.windows import FOREVER_US
from watersmeet.runtime.buckets.bucket import MERGE_METRICS, Bucket, BucketState, Merger, Metrics
from watersmeet.runtime.buckets.execution_plan import SparkExecutionPlan
from watersmeet.runtime.buckets.packets import PACKED, Packet
from watersmeet.runtime.buckets.plan_log import PlanLog, check_drop_seed
from watersmeet.runtime.buckets.state_store import (
    LiveRuns,
    MapState,
    StatefulStep,
    StateStore,
    ValueState,
    forget_ended_runs,
)
from watersmeet.runtime.spark.emission import (
    BLOB,
    BUCKET,
    ROUND,
    BatchedRows,
    Emission,
    to_arrow_backed_frame,
    to_spark_schema,
)
from watersmeet.runtime.spark.python_steps import task_batch_id, task_run_id

_PACKET_COLUMNS = [name for name in PACKED.names if name != "bucket"]


class BucketProcessor:
    """Processor of the first stateful step. Spark calls it once per bucket and batch."""

    def __init__(
        self,
        execution_plan: SparkExecutionPlan,
        emission: Emission,
        live: LiveRuns,
        *,
        cache_state: bool,
        plans: PlanLog | None = None,
    ) -> None:
        self._bucket = execution_plan.bucket
        self._signature = execution_plan.signature
        self._emission = emission
        self._live = live
        self._plans = plans
        self._cache_state = cache_state

    def open_state(self, header: ValueState, entries: MapState) -> None:
        self._plan = None if self._plans is None else self._plans.settle_plan(task_batch_id())
        if self._plan is not None:
            check_drop_seed(self._bucket.config.plan, self._plan)
        run = task_run_id()
        forget_ended_runs(self._live, run)
        self._store = StateStore(
            header, entries, self._bucket, self._signature, StatefulStep(run, "buckets"), self._cache_state
        )

    def process(self, label: int, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return (to_arrow_backed_frame(batch) for batch in self._batches(label, frames))

    def _batches(self, label: int, frames: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        start = time.perf_counter_ns()
        packets = [
            Packet(label, *values) for frame in frames for values in frame[_PACKET_COLUMNS].itertuples(index=False)
        ]
        received = time.perf_counter_ns()
        before = self._store.load(label)
        loaded = time.perf_counter_ns()
        state, metrics = yield from self._run_rounds_of_batch(label, before.state, packets)
        joined = time.perf_counter_ns()
        after = self._store.save(label, before, state)
        saved = time.perf_counter_ns()
        metrics |= {
            "state_rows": after.rows,
            "state_bytes": after.size,
            "watermark_us": state.watermark.value_us,
            "newest_us": max(state.watermark.newest_us.values(), default=-FOREVER_US),
            "receive_us": (received - start) // 1000,
            "state_read_us": (loaded - received) // 1000,
            "state_write_us": (saved - joined) // 1000,
        }
        yield self._emission.metrics_row(metrics)

    def _run_rounds_of_batch(
        self, label: int, state: BucketState, packets: list[Packet]
    ) -> Generator[pa.RecordBatch, None, tuple[BucketState, Metrics]]:
        """Run the rounds of a micro-batch in order, and add up their metrics.

        There is more than one round only if a finite source has all its rounds in one micro-batch.
        """
        totals: Counter[str] = Counter()
        for number in sorted({packet.round for packet in packets}):
            of_round = (packet for packet in packets if packet.round == number)
            results = self._bucket.advance(label, state, of_round, last=False, plan=self._plan)
            state, metrics = yield from self._emission.emit(results, number)
            totals.update(metrics)
        return state, dict(totals)


def run_finite(bucket: Bucket, emission: Emission, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the buckets of one partition of a finite input, one by one."""
    forget_ended_runs()
    by_label: dict[int, list[Packet]] = {}
    for batch in batches:
        for values in batch.to_pylist():
            by_label.setdefault(values["bucket"], []).append(Packet(**values))
    for label in list(by_label):
        yield from _run_rounds(bucket, emission, label, by_label.pop(label))


def _run_rounds(bucket: Bucket, emission: Emission, label: int, packets: list[Packet]) -> Iterator[pa.RecordBatch]:
    """Run all batches of one bucket of a finite input, starting from an empty state."""
    state = bucket.empty()
    numbers = sorted({packet.round for packet in packets})
    for number in numbers:
        of_round = (packet for packet in packets if packet.round == number)
        results = bucket.advance(label, state, of_round, last=number == numbers[-1])
        state, metrics = yield from emission.emit(results, number)
        yield emission.metrics_row(metrics)


def merge_emission(merger: Merger) -> BatchedRows:
    """Return the form in which whole groups leave the second step."""
    return BatchedRows(MERGE_METRICS, to_spark_schema(merger.config.result))


class MergeProcessor:
    """Processor of the second stateful step. Spark calls it once per bucket and batch in which its groups changed."""

    def __init__(self, merger: Merger, signature: Mapping[str, str], live: LiveRuns, *, cache_state: bool) -> None:
        self._merger = merger
        self._emission = merge_emission(merger)
        self._signature = signature
        self._live = live
        self._cache_state = cache_state

    def open_state(self, header: ValueState, entries: MapState) -> None:
        run = task_run_id()
        forget_ended_runs(self._live, run)
        self._store = StateStore(
            header, entries, self._merger, self._signature, StatefulStep(run, "groups"), self._cache_state
        )

    def process(self, label: int, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return (to_arrow_backed_frame(batch) for batch in self._batches(label, frames))

    def _batches(self, label: int, frames: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        start = time.perf_counter_ns()
        parts = [values for frame in frames for values in frame[[ROUND, BLOB]].itertuples(index=False, name=None)]
        before = self._store.load(label)
        loaded = time.perf_counter_ns()
        counter = _RowCounter(self._merger.advance(before.state, parts))
        state = yield from self._emission.emit(counter.batches())
        joined = time.perf_counter_ns()
        after = self._store.save(label, before, state)
        saved = time.perf_counter_ns()
        yield self._emission.metrics_row(
            {
                "results": counter.rows,
                "state_rows": after.rows,
                "state_bytes": after.size,
                "state_read_us": (loaded - start) // 1000,
                "join_us": (joined - loaded) // 1000,
                "state_write_us": (saved - joined) // 1000,
            }
        )


def merge_finite(merger: Merger, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the partial groups of one partition of a finite input, bucket by bucket."""
    emission = merge_emission(merger)
    by_label: dict[int, list[tuple[int, Any]]] = {}
    for batch in batches:
        for values in batch.to_pylist():
            by_label.setdefault(values[BUCKET], []).append((values[ROUND], values[BLOB]))
    for label in list(by_label):
        counter = _RowCounter(merger.advance(merger.empty(), by_label.pop(label)))
        yield from emission.emit(counter.batches())
        yield emission.metrics_row({"results": counter.rows})


class _RowCounter:
    """Passes batches through and counts their rows."""

    def __init__(self, results: Generator[pa.RecordBatch, None, BucketState]) -> None:
        self._results = results
        self.rows = 0

    def batches(self) -> Generator[pa.RecordBatch, None, BucketState]:
        while True:
            try:
                batch = next(self._results)
            except StopIteration as end:
                state: BucketState = end.value
                return state
            self.rows += batch.num_rows
            yield batch

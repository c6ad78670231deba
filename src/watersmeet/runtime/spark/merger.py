"""The second stateful step of an aggregation whose buckets have parts of groups: one bucket per share of the groups
adds them up.

All buckets of the first step evaluate the same instants in the same batch, because their watermarks are equal. So
everything that is to be added up for an instant arrives here in one batch, and whole groups are shown in the batch
their parts are.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.merging import merge
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.runtime.spark.bucket import BucketState
from watersmeet.runtime.spark.bucket_operators import AggregateOperator
from watersmeet.runtime.spark.emission import BLOB, BUCKET, ROUND, ListedRows
from watersmeet.runtime.spark.packets import table_from_bytes
from watersmeet.runtime.spark.spark_types import arrow_frame, spark_fields
from watersmeet.runtime.spark.state_store import StatefulStep, Store, drop_ended_runs
from watersmeet.runtime.spark.task_batch import run_of_task
from watersmeet.runtime.spark.worker_cache import LiveRuns
from watersmeet.runtime.watermark import Lateness, Watermark

#: What the second step counts, beside what the buckets do.
MERGE_METRICS = ("results", "state_rows", "state_bytes", "state_read_us", "join_us", "state_write_us")


@dataclass(frozen=True)
class Merger:
    """What adds up parts of groups. `labels` are its buckets."""

    config: AggregateConfig
    labels: tuple[int, ...]

    @property
    def operator(self) -> AggregateOperator:
        return AggregateOperator(self.config, {})

    @property
    def lateness(self) -> Mapping[str, Lateness]:
        """Time is decided before: there is no watermark here."""
        return {}

    @property
    def emission(self) -> ListedRows:
        return ListedRows(MERGE_METRICS, spark_fields(self.config.result))

    def empty(self) -> BucketState:
        return BucketState(self.operator.empty(), Watermark.start(self.lateness))

    def advance(
        self, state: BucketState, parts: Iterable[tuple[int, Any]]
    ) -> Generator[pa.RecordBatch, None, BucketState]:
        """Adds up parts, given as blobs with their rounds, round after round."""
        by_round: dict[int, list[pa.Table]] = {}
        for number, blob in parts:
            by_round.setdefault(number, []).append(table_from_bytes(blob))
        inner = state.inner
        if not isinstance(inner, AggregateState):
            raise InternalError("a merger's state is an aggregation's")
        for number in sorted(by_round):
            shown, inner = merge(self.config, inner, pa.concat_tables(by_round[number]))
            yield from shown
        return BucketState(inner, state.watermark)


class MergeProcessor(StatefulProcessor):
    """One call per bucket of groups and batch in which any of them changed."""

    def __init__(self, merger: Merger, signature: Mapping[str, str], live: LiveRuns, *, remembers: bool) -> None:
        self._merger = merger
        self._emission = merger.emission
        self._signature = signature
        self._live = live
        self._remembers = remembers

    def init(self, handle: StatefulProcessorHandle) -> None:
        header = handle.getValueState("header", "value string")
        entries = handle.getMapState("entries", "place long", "blob binary")
        run = run_of_task()
        drop_ended_runs(self._live, run)
        self._store = Store(
            header, entries, self._merger, self._signature, StatefulStep(run, "groups"), self._remembers
        )

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        return (arrow_frame(batch) for batch in self._batches(int(key[0]), rows))

    def _batches(self, label: int, frames: Iterator[pd.DataFrame]) -> Iterator[pa.RecordBatch]:
        start = time.perf_counter_ns()
        parts = [values for frame in frames for values in frame[[ROUND, BLOB]].itertuples(index=False, name=None)]
        before = self._store.load(label)
        loaded = time.perf_counter_ns()
        counted = _Counted(self._merger.advance(before.state, parts))
        state = yield from self._emission.emitted(counted.batches())
        joined = time.perf_counter_ns()
        after = self._store.save(label, before, state)
        saved = time.perf_counter_ns()
        yield self._emission.metrics_row(
            {
                "results": counted.rows,
                "state_rows": after.rows,
                "state_bytes": after.size,
                "state_read_us": (loaded - start) // 1000,
                "join_us": (joined - loaded) // 1000,
                "state_write_us": (saved - joined) // 1000,
            }
        )

    def close(self) -> None:
        pass


def merge_finite(merger: Merger, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A partition of a finite input's parts: its buckets of groups one after the other."""
    by_label: dict[int, list[tuple[int, Any]]] = {}
    for batch in batches:
        for values in batch.to_pylist():
            by_label.setdefault(values[BUCKET], []).append((values[ROUND], values[BLOB]))
    for label in list(by_label):
        counted = _Counted(merger.advance(merger.empty(), by_label.pop(label)))
        yield from merger.emission.emitted(counted.batches())
        yield merger.emission.metrics_row({"results": counted.rows})


class _Counted:
    """Batches on their way, and how many rows they had."""

    def __init__(self, results: Generator[pa.RecordBatch, None, BucketState]) -> None:
        self._results = results
        self.rows = 0

    def batches(self) -> Generator[pa.RecordBatch, None, BucketState]:
        while True:
            try:
                batch = next(self._results)
            except StopIteration as over:
                state: BucketState = over.value
                return state
            self.rows += batch.num_rows
            yield batch

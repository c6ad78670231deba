"""One bucket of a query: it takes the packets of a batch and emits results. A merger adds up partial groups.

The watermark needs the newest time of every stream over the whole batch, and a bucket sees only its own rows. So every
task that reads a part of a stream sends its clock to every bucket, and every bucket keeps its own copy of the
watermark. All copies are equal, because they are the same function of the same clocks. They do not depend on when or
where a bucket runs, so a replay decides the same.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.merging import merge_partials
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.operators.aggregate.step import AggregateOperator
from watersmeet.operators.narrow_integers import restore_integers
from watersmeet.operators.protocol import BatchCounters, Clock, InputBatch, Operator, OperatorConfig
from watersmeet.operators.shed.aggregation import TIME
from watersmeet.operators.window_join.work_counters import ALL_INPUTS
from watersmeet.runtime.buckets.bucket_grid import BucketGrid, Int64s
from watersmeet.runtime.buckets.packets import (
    CLOCK,
    ROW_COPIES,
    ROWS,
    SHED,
    UNSELECTED,
    WITHOUT_ROLE,
    Packet,
    decode_table,
)
from watersmeet.runtime.watermark import Lateness, Watermark
from watersmeet.sources.times import extract_event_times_us, refuse_undeclared_unit

Metrics = dict[str, int]


@dataclass(frozen=True)
class BucketState:
    """The operator of the last batch, its state, and the watermark at the start of the next batch."""

    operator: Operator[Any]
    inner: Any
    watermark: Watermark


@dataclass(frozen=True)
class Bucket:
    """The part of a query that every bucket runs. `operator` has the query's own plan.

    `streams` are the physical streams; several inputs may read one. `packed_schemas` are the columns of each input that
    arrive in packets.
    """

    operator: Operator[Any]
    packed_schemas: Mapping[int, pa.Schema]
    streams: tuple[str, ...]
    lateness: Mapping[str, Lateness]
    grid: BucketGrid
    labels: tuple[int, ...]

    @property
    def config(self) -> OperatorConfig:
        return self.operator.config

    def empty(self) -> BucketState:
        return BucketState(self.operator, self.operator.empty(), Watermark.start(self.lateness))

    def advance(
        self, label: int, state: BucketState, packets: Iterable[Packet], *, last: bool, plan: Plan | None = None
    ) -> Generator[pa.RecordBatch, None, tuple[BucketState, Metrics]]:
        """Run one batch, by another plan if there is one.

        `last` means that no batch follows, so rows that wait for the watermark are released.
        """
        unpacked = _UnpackedBatch(self, self.labels.index(label))
        for packet in packets:
            unpacked.add(packet)
        self._check_units(state.watermark, unpacked.seen_us)
        following = state.watermark.after_batch(unpacked.seen_us)
        input_batches = unpacked.input_batches()
        start = time.perf_counter_ns()
        clock = Clock(state.watermark.value_us, FOREVER_US if last else following.value_us, following.largest_us)
        operator, inner = (state.operator, state.inner) if plan is None else state.operator.replan(state.inner, plan)
        advanced, counters = yield from operator.advance(inner, input_batches, clock)
        trimmed = operator.trim(inner, advanced, clock)
        metrics = unpacked.metrics(input_batches, clock.watermark_us, counters)
        metrics["join_us"] = (time.perf_counter_ns() - start) // 1000
        return BucketState(operator, trimmed, following), metrics

    def _check_units(self, watermark: Watermark, seen_us: Mapping[str, tuple[int, int]]) -> None:
        """Check the time unit on the first rows of each stream.

        The clocks cover the whole batch, so all buckets and the embedded host decide alike.
        """
        for number, name in enumerate(self.streams):
            if name in seen_us and name not in watermark.newest_us:
                source = self.config.inputs[self.first_input(number)]
                refuse_undeclared_unit(name, source.time or "", source.fields, source.unit, *seen_us[name])

    def first_input(self, stream: int) -> int:
        """Return the input that is counted for a stream in the ledger: a self join has one input per alias."""
        return next(i for i in self.config.stream_inputs if self.config.inputs[i].name == self.streams[stream])


@dataclass
class _UnpackedBatch:
    """Packets of one batch, sorted by kind."""

    bucket: Bucket
    cell: int
    tables: dict[int, list[pa.Table]] = field(default_factory=dict)
    copies: dict[int, list[pa.Table]] = field(default_factory=dict)  # those of `tables` that count elsewhere
    only_times: dict[tuple[int, int], list[Int64s]] = field(default_factory=dict)
    seen_us: dict[str, tuple[int, int]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    pack_us: int = 0

    def add(self, packet: Packet) -> None:
        if packet.kind in (ROWS, ROW_COPIES):
            table = decode_table(packet.blob)
            self.tables.setdefault(packet.source, []).append(table)
            if packet.kind == ROW_COPIES:
                self.copies.setdefault(packet.source, []).append(table)
        elif packet.kind == CLOCK:
            self._add_clock(packet)
        else:
            times = decode_table(packet.blob).column(TIME).combine_chunks().to_numpy()
            self.only_times.setdefault((packet.kind, packet.source), []).append(times)

    def _add_clock(self, packet: Packet) -> None:
        if not packet.rows:
            return
        name = self.bucket.streams[packet.source]
        oldest, newest = self.seen_us.get(name, (packet.oldest_us, packet.newest_us))
        self.seen_us[name] = min(oldest, packet.oldest_us), max(newest, packet.newest_us)
        if self.cell == 0:
            self.arrived[packet.source] = self.arrived.get(packet.source, 0) + packet.rows
            self.pack_us += packet.spent_us

    def input_batches(self) -> dict[int, InputBatch]:
        return {i: self._build_input_batch(i, self.tables.get(i)) for i in self.bucket.packed_schemas}

    def _build_input_batch(self, number: int, tables: list[pa.Table] | None) -> InputBatch:
        source, schema = self.bucket.config.inputs[number], self.bucket.packed_schemas[number]
        table = restore_integers(tables, schema) if tables else schema.empty_table()
        return InputBatch(table, extract_event_times_us(source.name, table, source.time or "", source.unit))

    def _times(self, kind: int, stream: int) -> Int64s:
        return np.concatenate([np.empty(0, np.int64), *self.only_times.get((kind, stream), [])])

    def metrics(self, input_batches: dict[int, InputBatch], watermark_us: int, counters: BatchCounters) -> Metrics:
        """Count every row once over all buckets.

        A row that has copies counts in the first of its cells. Every copy counts as a shuffled row.
        """
        metrics: Metrics = {"results": counters.results, "pack_us": self.pack_us}
        for number in range(len(self.bucket.streams)):
            i = self.bucket.first_input(number)
            late = 0
            if self.bucket.grid.is_first_copy(i, self.cell):
                copied = self._build_input_batch(i, self.copies.get(i)).times
                late = counters.late[i] - int(np.count_nonzero(copied < watermark_us))
            unselected, shed, counted = (self._times(kind, number) for kind in (UNSELECTED, SHED, WITHOUT_ROLE))
            late += int(np.count_nonzero(unselected < watermark_us)) + int(np.count_nonzero(shed < watermark_us))
            metrics[f"arrived_{number}"] = self.arrived.get(number, 0)
            metrics[f"late_{number}"] = late
            metrics[f"shed_{number}"] = sum(int(np.count_nonzero(each >= watermark_us)) for each in (shed, counted))
        metrics |= {f"shuffled_{i}": len(input_batch) for i, input_batch in input_batches.items()}
        for name in ("probes", "comparisons", "touched"):
            counted = getattr(counters.tally, name)
            metrics |= {
                f"{name}_{i}_{j}": int(counted[i, j])
                for i in range(len(counted))
                for j in range(len(counted))
                if i != j
            }
        return metrics | {
            time_metric_name(*what): round(seconds * 1e6) for what, seconds in counters.tally.timer.spent_s.items()
        }


def time_metric_name(operator: str, number: int) -> str:
    """Return the name of the metric for an operator's time on one input, or on all inputs."""
    return f"{operator.replace(' ', '_')}_{'all' if number == ALL_INPUTS else number}_us"


#: Metrics of the second step, in addition to those of the buckets.
MERGE_METRICS = ("results", "state_rows", "state_bytes", "state_read_us", "join_us", "state_write_us")


@dataclass(frozen=True)
class Merger:
    """The second step of an aggregation whose buckets have partial groups. `labels` are the buckets of this step.

    All buckets of the first step evaluate the same instants in the same batch, because their watermarks are equal. So
    all partial groups of an instant arrive in one batch, and whole groups are emitted in that batch.
    """

    bound: BoundQuery
    config: AggregateConfig
    labels: tuple[int, ...]

    @property
    def operator(self) -> AggregateOperator:
        return AggregateOperator(self.bound, self.config, {})

    @property
    def lateness(self) -> Mapping[str, Lateness]:
        """Lateness settings: none, because the first step has already applied the watermark."""
        return {}

    def empty(self) -> BucketState:
        return BucketState(self.operator, self.operator.empty(), Watermark.start(self.lateness))

    def advance(
        self, state: BucketState, parts: Iterable[tuple[int, Any]]
    ) -> Generator[pa.RecordBatch, None, BucketState]:
        """Add up partial groups, round by round. Each comes as a round number and a blob."""
        by_round: dict[int, list[pa.Table]] = {}
        for number, blob in parts:
            by_round.setdefault(number, []).append(decode_table(blob))
        inner = state.inner
        if not isinstance(inner, AggregateState):
            raise InternalError("the state of a merger is an aggregation state")
        for number in sorted(by_round):
            results, inner = merge_partials(self.config, inner, pa.concat_tables(by_round[number]))
            yield from results
        return BucketState(state.operator, inner, state.watermark)

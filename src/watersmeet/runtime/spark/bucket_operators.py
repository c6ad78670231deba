"""Operators of a bucket: join, aggregation and shedding aggregation behind one protocol.

The state of an operator is a list of parts that are serialized one by one. A part that a batch does not change is the
same object afterwards. So the host writes only new parts and deletes only parts that the state no longer contains.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.operators.aggregate import serialization as aggregate_parts
from watersmeet.operators.aggregate import state as aggregate_state
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.serialization import AggregatePart
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.operators.aggregate.step import step as aggregate_step
from watersmeet.operators.shed.aggregation import ShedAggregation, ShedConfig
from watersmeet.operators.window_join.admission import InputBatch
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import BatchCounters as JoinCounters
from watersmeet.operators.window_join.driver import add_relation, exhaust, iter_join_batch
from watersmeet.operators.window_join.serialization import SavedPart, list_state_parts, restore_state
from watersmeet.operators.window_join.state import JoinState, empty_state, evict_expired_rows
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.runtime.spark.packets import decode_table


class StatePart(Protocol):
    """A part of the state of an input. A batch has changed it if and only if `value` is another object."""

    @property
    def input_number(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def value(self) -> Any: ...

    @property
    def rows(self) -> int: ...

    def to_bytes(self) -> bytes: ...


class StepCounters(Protocol):
    """Counters of one batch, per input."""

    @property
    def late(self) -> tuple[int, ...]: ...

    @property
    def results(self) -> int: ...

    @property
    def tally(self) -> WorkCounters: ...


StepResults = Generator[pa.RecordBatch, None, tuple[Any, StepCounters]]


class BucketOperator(Protocol):
    """A function from a state and a batch to results and the next state. Time is an argument."""

    def empty(self) -> Any: ...

    def advance(
        self, state: Any, input_batches: dict[int, InputBatch], watermark_us: int, future_us: int, largest_us: int
    ) -> StepResults:
        """Yield results in batches of bounded size; return the next state and the counters.

        `largest_us` is the largest event time that any bucket has seen.
        """

    def parts(self, state: Any) -> Sequence[StatePart]: ...

    def restore(self, saved: Sequence[SavedPart]) -> Any: ...


@dataclass(frozen=True)
class JoinBucketOperator:
    """The window join. Relations are not part of its state: they are sent with the query, as blobs."""

    config: JoinConfig
    relations: Mapping[int, bytes]

    def empty(self) -> JoinState:
        return self._add_relations(empty_state(self.config))

    def advance(
        self, state: JoinState, input_batches: dict[int, InputBatch], watermark_us: int, future_us: int, largest_us: int
    ) -> Generator[pa.RecordBatch, None, tuple[JoinState, JoinCounters]]:
        following, counters = yield from iter_join_batch(self.config, state, input_batches, watermark_us, future_us)
        return evict_expired_rows(self.config, following, state, future_us), counters

    def parts(self, state: JoinState) -> Sequence[StatePart]:
        return list_state_parts(self.config, state)

    def restore(self, saved: Sequence[SavedPart]) -> JoinState:
        return self._add_relations(restore_state(self.config, saved))

    def _add_relations(self, state: JoinState) -> JoinState:
        for number, table in self._tables.items():
            state = add_relation(self.config, state, number, table)
        return state

    @cached_property
    def _tables(self) -> dict[int, pa.Table]:
        return {number: decode_table(blob) for number, blob in self.relations.items()}


@dataclass(frozen=True)
class AggregateBucketOperator:
    """The aggregation. Its state contains the relations from the start."""

    config: AggregateConfig
    relations: Mapping[int, bytes]

    def empty(self) -> AggregateState:
        state = aggregate_state.empty_state(self.config)
        for number, blob in self.relations.items():
            state = aggregate_state.load_relation(self.config, state, number, decode_table(blob))
        return state

    def advance(
        self,
        state: AggregateState,
        input_batches: dict[int, InputBatch],
        watermark_us: int,
        future_us: int,
        largest_us: int,
    ) -> StepResults:
        stepped = aggregate_step(self.config, state, input_batches, watermark_us, future_us, largest_us)
        yield from stepped.results
        return stepped.state, stepped.counters

    def parts(self, state: AggregateState) -> Sequence[StatePart]:
        return aggregate_parts.split_into_parts(state)

    def restore(self, saved: Sequence[SavedPart]) -> AggregateState:
        return aggregate_parts.restore_from_parts(self.config, saved)


ESTIMATES = "estimates"


@dataclass(frozen=True)
class SheddingBucketState:
    """Windows of the join, and the combinations that are or will be inside them."""

    join: JoinState
    aggregation: ShedAggregation


@dataclass(frozen=True)
class SheddingBucketOperator:
    """An aggregation that sheds rows: the join over the rows that were kept, and estimates on top of it.

    `join` emits combinations with the identity and the time of each of their rows. The estimate of a group needs all
    its combinations, so such a query runs in one bucket. A query that sheds rows to save time has few combinations, so
    all of them are saved with every batch.
    """

    join: JoinBucketOperator
    shed: ShedConfig

    def empty(self) -> SheddingBucketState:
        return SheddingBucketState(self.join.empty(), ShedAggregation(self.shed))

    def advance(
        self,
        state: SheddingBucketState,
        input_batches: dict[int, InputBatch],
        watermark_us: int,
        future_us: int,
        largest_us: int,
    ) -> StepResults:
        combinations, (join, counters) = exhaust(
            self.join.advance(state.join, input_batches, watermark_us, future_us, largest_us)
        )
        # A shallow copy is enough: a step assigns new values to the fields and never changes the old ones.
        aggregation = replace(state.aggregation)
        results = aggregation.step(combinations, largest_us, future_us)
        yield from results
        result_rows = sum(batch.num_rows for batch in results)
        return SheddingBucketState(join, aggregation), replace(counters, results=result_rows)

    def parts(self, state: SheddingBucketState) -> Sequence[StatePart]:
        combinations = state.aggregation
        saved = AggregatePart(0, ESTIMATES, combinations, combinations.begins_us.size, combinations.to_bytes)
        return [saved, *self.join.parts(state.join)]

    def restore(self, saved: Sequence[SavedPart]) -> SheddingBucketState:
        first, *rest = saved
        return SheddingBucketState(self.join.restore(rest), ShedAggregation.from_bytes(self.shed, first.blob))

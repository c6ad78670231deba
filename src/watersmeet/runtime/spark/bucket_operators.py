"""What a bucket runs, as the host sees it: an operator whose state is parts that turn into bytes one by one.

Parts that a step leaves alone are the same objects afterwards, so the host writes only what is new and deletes only
what is gone.
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
from watersmeet.operators.aggregate.serialization import AggregatePart as SavedWhole
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.operators.aggregate.step import step as aggregate_step
from watersmeet.operators.shed.aggregation import ShedAggregation, ShedConfig
from watersmeet.operators.window_join.admission import InputBatch
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import BatchCounters as MeetCounters
from watersmeet.operators.window_join.driver import add_relation, exhaust, iter_join_batch
from watersmeet.operators.window_join.serialization import SavedPart, list_state_parts, restore_state
from watersmeet.operators.window_join.state import JoinState, empty_state, evict_expired_rows
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.runtime.spark.packets import decode_table


class StatePart(Protocol):
    """A piece of state of input `number`; `value` is the object whose identity tells whether the piece has changed."""

    @property
    def number(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def value(self) -> Any: ...

    @property
    def rows(self) -> int: ...

    def bytes(self) -> bytes: ...


class StepCounters(Protocol):
    """What a step did, per input."""

    @property
    def late(self) -> tuple[int, ...]: ...

    @property
    def results(self) -> int: ...

    @property
    def tally(self) -> WorkCounters: ...


StepResults = Generator[pa.RecordBatch, None, tuple[Any, StepCounters]]


class BucketOperator(Protocol):
    """A function from state and a batch to results and the next state. Time is an argument."""

    def empty(self) -> Any: ...

    def advance(
        self, state: Any, deltas: dict[int, InputBatch], watermark_us: int, future_us: int, largest_us: int
    ) -> StepResults:
        """Yields results in bounded pieces; returns the next state and what was counted. `largest_us` is of all
        buckets' rows.
        """

    def parts(self, state: Any) -> Sequence[StatePart]: ...

    def restore(self, saved: Sequence[SavedPart]) -> Any: ...


@dataclass(frozen=True)
class JoinBucketOperator:
    """The meet. Relations are not state: they travel with the query, as blobs."""

    config: JoinConfig
    relations: Mapping[int, bytes]

    def empty(self) -> JoinState:
        return self._with_relations(empty_state(self.config))

    def advance(
        self, state: JoinState, deltas: dict[int, InputBatch], watermark_us: int, future_us: int, largest_us: int
    ) -> Generator[pa.RecordBatch, None, tuple[JoinState, MeetCounters]]:
        following, counters = yield from iter_join_batch(self.config, state, deltas, watermark_us, future_us)
        return evict_expired_rows(self.config, following, state, future_us), counters

    def parts(self, state: JoinState) -> Sequence[StatePart]:
        return list_state_parts(self.config, state)

    def restore(self, saved: Sequence[SavedPart]) -> JoinState:
        return self._with_relations(restore_state(self.config, saved))

    def _with_relations(self, state: JoinState) -> JoinState:
        for number, table in self._tables.items():
            state = add_relation(self.config, state, number, table)
        return state

    @cached_property
    def _tables(self) -> dict[int, pa.Table]:
        return {number: decode_table(blob) for number, blob in self.relations.items()}


@dataclass(frozen=True)
class AggregateBucketOperator:
    """The aggregation. Relations are in its state from the start."""

    config: AggregateConfig
    relations: Mapping[int, bytes]

    def empty(self) -> AggregateState:
        state = aggregate_state.empty_state(self.config)
        for number, blob in self.relations.items():
            state = aggregate_state.load_relation(self.config, state, number, decode_table(blob))
        return state

    def advance(
        self, state: AggregateState, deltas: dict[int, InputBatch], watermark_us: int, future_us: int, largest_us: int
    ) -> StepResults:
        stepped = aggregate_step(self.config, state, deltas, watermark_us, future_us, largest_us)
        yield from stepped.results
        return stepped.state, stepped.counters

    def parts(self, state: AggregateState) -> Sequence[StatePart]:
        return aggregate_parts.split_into_parts(state)

    def restore(self, saved: Sequence[SavedPart]) -> AggregateState:
        return aggregate_parts.restore_from_parts(self.config, saved)


ESTIMATES = "estimates"


@dataclass(frozen=True)
class SheddingBucketState:
    """The join's windows, and the combinations that are or will be inside them."""

    meet: JoinState
    aggregation: ShedAggregation


@dataclass(frozen=True)
class SheddingBucketOperator:
    """`join` gives combinations, with the identity and the time of each of their rows."""

    join: JoinBucketOperator
    shed: ShedConfig

    def empty(self) -> SheddingBucketState:
        return SheddingBucketState(self.join.empty(), ShedAggregation(self.shed))

    def advance(
        self,
        state: SheddingBucketState,
        deltas: dict[int, InputBatch],
        watermark_us: int,
        future_us: int,
        largest_us: int,
    ) -> StepResults:
        found, (meet, counters) = exhaust(self.join.advance(state.meet, deltas, watermark_us, future_us, largest_us))
        aggregation = replace(
            state.aggregation
        )  # its fields are set anew, never changed, so the state before stays as it was
        shown = aggregation.step(found, largest_us, future_us)
        yield from shown
        return SheddingBucketState(meet, aggregation), replace(counters, results=sum(batch.num_rows for batch in shown))

    def parts(self, state: SheddingBucketState) -> Sequence[StatePart]:
        combinations = state.aggregation
        saved = SavedWhole(0, ESTIMATES, combinations, combinations.begins_us.size, combinations.to_bytes)
        return [saved, *self.join.parts(state.meet)]

    def restore(self, saved: Sequence[SavedPart]) -> SheddingBucketState:
        first, *rest = saved
        return SheddingBucketState(self.join.restore(rest), ShedAggregation.from_bytes(self.shed, first.blob))

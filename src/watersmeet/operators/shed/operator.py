"""The aggregation of a query that sheds rows, as an operator: a join of the kept rows, and estimates on top of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.algebra.plan import Plan
from watersmeet.operators.protocol import BatchResults, Clock, InputBatch, SavedPart, StatePart, exhaust
from watersmeet.operators.shed.aggregation import ROW, ShedAggregation, ShedConfig, add_hidden_columns
from watersmeet.operators.shed.sampling import fixed_drop_rates_error
from watersmeet.operators.shed.serialization import (
    COMBINATIONS,
    INSTANTS,
    restore_estimates,
    split_estimates,
)
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.operator import WindowJoinOperator
from watersmeet.operators.window_join.state import JoinState


@dataclass(frozen=True)
class SheddingState:
    """Windows of the join, and the combinations that are or will be inside them."""

    join: JoinState
    aggregation: ShedAggregation

    @property
    def rows(self) -> int:
        return self.join.rows + self.aggregation.rows

    @property
    def nbytes(self) -> int:
        return self.join.nbytes + self.aggregation.nbytes


@dataclass(frozen=True)
class SheddingAggregateOperator:
    """Estimates the aggregates of a query from the kept rows.

    `join` emits combinations with the identity and the time of each of their rows. The estimate of a group needs all
    its combinations, so such a query runs in one bucket.
    """

    join: WindowJoinOperator
    shed: ShedConfig

    @property
    def config(self) -> JoinConfig:
        """The join, with the result of the aggregation."""
        return replace(self.join.config, result=self.shed.result)

    def empty(self) -> SheddingState:
        return SheddingState(self.join.empty(), ShedAggregation(self.shed))

    def advance(
        self, state: SheddingState, batches: Mapping[int, InputBatch], clock: Clock
    ) -> BatchResults[SheddingState]:
        identified = {number: _identify_rows(batch) for number, batch in batches.items()}
        combinations, (join, counters) = exhaust(self.join.advance(state.join, identified, clock))
        aggregation = replace(state.aggregation)  # a new object, because its instants are saved with every batch
        results = aggregation.step(combinations, clock.newest_us, clock.next_watermark_us)
        yield from results
        result_rows = sum(batch.num_rows for batch in results)
        return SheddingState(join, aggregation), replace(counters, results=result_rows)

    def trim(self, before: SheddingState, after: SheddingState, clock: Clock) -> SheddingState:
        return replace(after, join=self.join.trim(before.join, after.join, clock))

    def parts(self, state: SheddingState) -> Sequence[StatePart]:
        return [*split_estimates(state.aggregation), *self.join.parts(state.join)]

    def restore(self, saved: Sequence[SavedPart]) -> SheddingState:
        estimates = [part for part in saved if part.kind in (INSTANTS, COMBINATIONS)]
        windows = [part for part in saved if part.kind not in (INSTANTS, COMBINATIONS)]
        restored = restore_estimates(self.shed, estimates)  # first, because it names the format of an earlier version
        return SheddingState(self.join.restore(windows), restored)

    def replan(self, state: SheddingState, plan: Plan) -> tuple[SheddingAggregateOperator, SheddingState]:
        """Return the operator with another plan. Drop rates stay, because estimates need one share per stream."""
        current = self.join.config.plan
        if (plan.drop, plan.drop_seed) != (current.drop, current.drop_seed):
            raise fixed_drop_rates_error()
        join, join_state = self.join.replan(state.join, plan)
        return replace(self, join=join), replace(state, join=join_state)


def _identify_rows(batch: InputBatch) -> InputBatch:
    """Add the hidden columns, unless the host has added them: packets on Spark contain only some of the columns."""
    return batch if ROW in batch.table.column_names else add_hidden_columns(batch)

"""The aggregation over a join as an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.operators.aggregate.config import AggregateConfig, build_aggregate_config
from watersmeet.operators.aggregate.serialization import AggregatePart, restore_from_parts, split_into_parts
from watersmeet.operators.aggregate.state import AggregateState, empty_state, load_relation, rebuild_tables
from watersmeet.operators.aggregate.step import step
from watersmeet.operators.protocol import BatchResults, Clock, InputBatch, SavedPart
from watersmeet.operators.shed.sampling import build_drop_boxes, fixed_drop_rates_error
from watersmeet.operators.window_join.operator import drop_selections


@dataclass(frozen=True)
class AggregateOperator:
    """Joins the inputs of `bound` and aggregates the matches.

    The rows of the relations are part of the state from the start. `selected` has the same meaning as for the window
    join.
    """

    bound: BoundQuery
    config: AggregateConfig
    relations: Mapping[int, pa.Table]
    selected: frozenset[int] = frozenset()

    def empty(self) -> AggregateState:
        state = empty_state(self.config)
        for number, table in self.relations.items():
            state = load_relation(self.config, state, number, table)
        return state

    def advance(
        self, state: AggregateState, batches: Mapping[int, InputBatch], clock: Clock
    ) -> BatchResults[AggregateState]:
        outcome = step(self.config, state, batches, clock.watermark_us, clock.next_watermark_us, clock.newest_us)
        yield from outcome.results
        return outcome.state, outcome.counters

    def trim(self, before: AggregateState, after: AggregateState, clock: Clock) -> AggregateState:
        """Return the state unchanged: a step has already evicted all expired rows."""
        return after

    def parts(self, state: AggregateState) -> Sequence[AggregatePart]:
        return split_into_parts(state)

    def restore(self, saved: Sequence[SavedPart]) -> AggregateState:
        return restore_from_parts(self.config, saved)

    def replan(self, state: AggregateState, plan: Plan) -> tuple[AggregateOperator, AggregateState]:
        """Return the aggregation with another plan. Early aggregates are rebuilt from the windows.

        Refuse a plan that sheds rows: exact aggregates need all of them.
        """
        if build_drop_boxes(self.bound, plan):
            raise fixed_drop_rates_error()
        config = build_aggregate_config(self.bound, replace(plan, drop=()), every_row=self.config.every_row)
        config = replace(config, join=drop_selections(config.join, self.selected), partial=self.config.partial)
        if (config.early, config.join.orders) != (self.config.early, self.config.join.orders):
            state = rebuild_tables(config, state)
        return replace(self, config=config), state

"""The window join as an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.operators.protocol import BatchResults, Clock, InputBatch, SavedPart, exhaust
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import add_relation, iter_join_batch
from watersmeet.operators.window_join.serialization import WindowPart, list_state_parts, restore_state
from watersmeet.operators.window_join.state import JoinState, empty_state, evict_expired_rows
from watersmeet.operators.window_join.tactics.registry import compile_join_config


@dataclass(frozen=True)
class WindowJoinOperator:
    """Joins the streams and relations of `bound`.

    `relations` are tables by input number. They never change, so they are no part of the saved state. If the host has
    applied the selections of some inputs before, `selected` names these inputs. `saved_every_batch` says that the host
    saves the parts of the state after every batch. Then rows are saved only once, even if panes are merged later.
    """

    bound: BoundQuery
    config: JoinConfig
    relations: Mapping[int, pa.Table]
    selected: frozenset[int] = frozenset()
    saved_every_batch: bool = False

    def empty(self) -> JoinState:
        return self._add_relations(empty_state(self.config, in_segments=self.saved_every_batch))

    def advance(self, state: JoinState, batches: Mapping[int, InputBatch], clock: Clock) -> BatchResults[JoinState]:
        return iter_join_batch(self.config, state, batches, clock.watermark_us, clock.next_watermark_us)

    def store(self, batches: Mapping[int, InputBatch], clock: Clock) -> JoinState:
        """Return the state after these rows, without joining them: each input is alone, so no row finds a match."""
        windows = list(self.empty().inputs)
        for number, batch in batches.items():
            _, (alone, _) = exhaust(self.advance(self.empty(), {number: batch}, clock))
            windows[number] = alone.inputs[number]
        return JoinState(tuple(windows))

    def trim(self, before: JoinState, after: JoinState, clock: Clock) -> JoinState:
        joined_us = self.config.release_before_us(clock.next_watermark_us)
        return evict_expired_rows(self.config, after, before, self.config.evict_before_us(joined_us))

    def parts(self, state: JoinState) -> Sequence[WindowPart]:
        return list_state_parts(self.config, state)

    def restore(self, saved: Sequence[SavedPart]) -> JoinState:
        return self._add_relations(restore_state(self.config, saved, in_segments=self.saved_every_batch))

    def replan(self, state: JoinState, plan: Plan) -> tuple[WindowJoinOperator, JoinState]:
        """Return the join with another plan. There is nothing to migrate: the state is the windows for every plan."""
        return self.with_plan(plan), state

    def with_plan(self, plan: Plan) -> WindowJoinOperator:
        """Return the join with another plan."""
        config = drop_selections(compile_join_config(self.bound, plan), self.selected)
        return replace(self, config=replace(config, emits_every_batch=self.config.emits_every_batch))

    def _add_relations(self, state: JoinState) -> JoinState:
        for number, table in self.relations.items():
            state = add_relation(self.config, state, number, table)
        return state


def drop_selections(config: JoinConfig, selected: frozenset[int]) -> JoinConfig:
    """Return the join without the selections of these inputs."""
    inputs = (replace(each, selection=None) if each.number in selected else each for each in config.inputs)
    return replace(config, inputs=tuple(inputs))

"""Driver of an aggregation: one batch in, the rows of its evaluations out.

Rows enter and leave windows at evaluation instants. Rows that come and go between two instants are never touched.
Within an instant rows leave first, so that entering rows match fewer. Every final instant lies before all future rows.
Without EVERY, a batch is evaluated at the watermark itself, which later rows may still reach. So the rows of that
instant are removed again afterwards.

The operator runs these steps for a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.config import AggregateConfig, build_aggregate_config
from watersmeet.operators.aggregate.encoding import encode_rows
from watersmeet.operators.aggregate.input_window import CountedWindow, WindowChanges
from watersmeet.operators.aggregate.serialization import AggregatePart, restore_from_parts, split_into_parts
from watersmeet.operators.aggregate.state import (
    AggregateState,
    compact_state,
    empty_state,
    load_relation,
    needs_compaction,
    rebuild_tables,
)
from watersmeet.operators.aggregate.window_changes import apply_window_changes, find_window_changes, recompute_extremes
from watersmeet.operators.aggregate.window_rows import find_evaluation_instants
from watersmeet.operators.protocol import BatchCounters, BatchResults, Clock, InputBatch, SavedPart
from watersmeet.operators.shed.sampling import build_drop_boxes, fixed_drop_rates_error
from watersmeet.operators.window_join.admission import (
    ReleasedRows,
    buffer_until_watermark,
    count_rows,
    drop_late_rows,
    prepend_waiting,
)
from watersmeet.operators.window_join.operator import drop_selections
from watersmeet.operators.window_join.work_counters import WorkCounters

Int64s = NDArray[np.int64]

#: Rows of all inputs in one time range of a large batch.
SLICE_ROWS = 1 << 16


@dataclass(frozen=True)
class AggregateStepResult:
    """Outcome of a step."""

    results: list[pa.RecordBatch]
    state: AggregateState
    counters: BatchCounters


def step(
    config: AggregateConfig,
    state: AggregateState,
    input_batches: Mapping[int, InputBatch],
    watermark_us: int,
    future_us: int,
    largest_us: int = -FOREVER_US,
) -> AggregateStepResult:
    """Aggregate a batch. Rows before `watermark_us` are late, and no later row comes before `future_us`.

    A future of FOREVER_US means that the input has ended. `largest_us` is the largest known time, for callers that do
    not pass all rows.

    """
    kept = {i: drop_late_rows(input_batch, watermark_us) for i, input_batch in input_batches.items()}
    tally = WorkCounters(len(state.inputs))
    state.largest_us = max(
        [
            state.largest_us,
            largest_us,
            *(int(input_batch.times.max()) for input_batch in kept.values() if len(input_batch)),
        ]
    )
    results: list[pa.RecordBatch] = []
    for slice_batches, before_us in _split_by_time(config, kept, future_us):
        state.result.start_snapshots()
        results += _advance_to(config, state, slice_batches, before_us, tally)
        state = _remove_garbage(config, state)
    counters = BatchCounters(
        arrived=tuple(len(input_batches[i]) if i in input_batches else 0 for i in range(len(state.inputs))),
        late=tuple(len(input_batches[i]) - len(kept[i]) if i in input_batches else 0 for i in range(len(state.inputs))),
        results=sum(batch.num_rows for batch in results),
        tally=tally,
    )
    return AggregateStepResult(results, state, counters)


def _remove_garbage(config: AggregateConfig, state: AggregateState) -> AggregateState:
    """Return the same state without numbers of rows and groups that have expired, if there are many."""
    if needs_compaction(state):
        return compact_state(config, state)
    if state.tables.needs_rebuild(state.rows):
        return rebuild_tables(config, state)
    state.tables.remove_unused_nodes()
    return state


def _split_by_time(
    config: AggregateConfig, batches: Mapping[int, InputBatch], future_us: int
) -> Iterator[tuple[Mapping[int, InputBatch], int]]:
    """Yield the rows of a large batch in time ranges, each with the instant before which no later row comes.

    So windows and changes stay the size of a range and not of the batch. Without EVERY, a batch is one evaluation.
    """
    total = sum(map(len, batches.values()))
    if config.every_us is None or total < 2 * SLICE_ROWS:
        yield batches, future_us
        return
    ordered = {number: _sort_by_time(batch) for number, batch in batches.items()}
    largest = max(ordered.values(), key=len).times
    cuts = np.unique(largest[np.linspace(0, largest.size - 1, total // SLICE_ROWS + 1).astype(np.int64)[1:-1]])
    for from_us, before_us in pairwise([-FOREVER_US, *cuts[cuts < future_us].tolist(), FOREVER_US]):
        yield (
            {number: _take_between(batch, from_us, before_us) for number, batch in ordered.items()},
            min(before_us, future_us),
        )


def _sort_by_time(batch: InputBatch) -> InputBatch:
    if np.all(batch.times[1:] >= batch.times[:-1]):
        return batch
    order = np.argsort(batch.times, kind="stable")
    return InputBatch(batch.table.take(order), batch.times[order])


def _take_between(batch: InputBatch, from_us: int, before_us: int) -> InputBatch:
    start, stop = np.searchsorted(batch.times, [from_us, before_us]).tolist()
    return InputBatch(batch.table.slice(start, stop - start), batch.times[start:stop])


def _advance_to(
    config: AggregateConfig,
    state: AggregateState,
    batches: Mapping[int, InputBatch],
    future_us: int,
    tally: WorkCounters,
) -> list[pa.RecordBatch]:
    """Admit rows and emit every evaluation before `future_us`."""
    for i in config.stream_inputs:
        _admit_rows(config, state, i, batches.get(i), future_us)
    if config.every_row:
        state.row_times_us = np.unique(np.concatenate([state.row_times_us, *(each.times for each in batches.values())]))
    if config.every_us is None and not config.every_row:
        return _emit_at_watermark(config, state, future_us, tally)
    return _emit_due_instants(config, state, future_us, tally)


def _emit_due_instants(
    config: AggregateConfig, state: AggregateState, future_us: int, tally: WorkCounters
) -> list[pa.RecordBatch]:
    """Emit every instant that no future row can reach; at the end of the input, emit all remaining instants."""
    limit_us = min(future_us - 1, config.last_instant_us(state.largest_us))
    if config.every_row:
        instants_us = state.row_times_us[state.row_times_us <= limit_us]
        state.row_times_us = state.row_times_us[instants_us.size :]
    elif config.every_us is not None:
        times_us = [state.inputs[i].window.next_times_us(limit_us) for i in config.stream_inputs]
        starts_us, ends_us = [starts for starts, _ in times_us], [ends for _, ends in times_us]
        instants_us = find_evaluation_instants(starts_us, ends_us, config.every_us, state.evaluated_us, limit_us)
    results: list[pa.RecordBatch] = []
    after_us = state.evaluated_us
    if instants_us.size:
        window_changes = find_window_changes(config, state, instants_us)
        results = apply_window_changes(config, state, window_changes, instants_us, tally, closing=instants_us.size - 1)
        _commit_changes(state, window_changes, int(instants_us[-1]))
        state.evaluated_us = int(instants_us[-1])
    if state.result.snapshots is None:
        return results
    if config.every_us is None:
        return list(state.result.snapshots.emit_at(instants_us))
    # Whole results are emitted at every multiple, also where nothing changes.
    if after_us == -FOREVER_US and instants_us.size:
        after_us = int(instants_us[0]) - 1
    if after_us > -FOREVER_US:
        results = list(state.result.snapshots.emit_every(config.every_us, after_us, limit_us))
        state.evaluated_us = max(state.evaluated_us, limit_us // config.every_us * config.every_us)
    return results


def _emit_at_watermark(
    config: AggregateConfig, state: AggregateState, future_us: int, tally: WorkCounters
) -> list[pa.RecordBatch]:
    """Emit one evaluation: at the watermark after the batch, or at the largest time when the input has ended."""
    has_ended = future_us == FOREVER_US
    now_us = state.largest_us if has_ended else future_us
    if now_us <= -FOREVER_US:
        return []
    final_us = now_us if has_ended else now_us - 1
    if final_us > state.evaluated_us:
        _advance_windows_to(config, state, final_us, tally)
        state.evaluated_us = final_us
    shown_at = np.array([now_us], np.int64)
    if has_ended:
        results = apply_window_changes(config, state, [], shown_at, tally, closing=0)
    else:
        results = _emit_provisionally(config, state, shown_at, tally)
    return results if state.result.snapshots is None else list(state.result.snapshots.emit_at(shown_at))


def _advance_windows_to(config: AggregateConfig, state: AggregateState, final_us: int, tally: WorkCounters) -> None:
    at = np.array([final_us], np.int64)
    window_changes = find_window_changes(config, state, at)
    apply_window_changes(config, state, window_changes, at, tally, closing=-1)
    _commit_changes(state, window_changes, final_us)


def _emit_provisionally(
    config: AggregateConfig, state: AggregateState, now: Int64s, tally: WorkCounters
) -> list[pa.RecordBatch]:
    """Emit the instant of the watermark with the rows known so far, then restore the windows."""
    counted = [each.window for each in state.inputs if isinstance(each.window, CountedWindow)]
    before = [window.rows for window in counted]
    for i in config.stream_inputs:
        _count_provisionally(config, state, i, int(now[0]))
    window_changes = find_window_changes(config, state, now)
    results = apply_window_changes(config, state, window_changes, now, tally, closing=0)
    apply_window_changes(config, state, [each.invert() for each in reversed(window_changes)], now, tally, closing=-1)
    for each in window_changes:
        state.tables.release_entries(each.number, each.entering.entry)
        state.inputs[each.number].window.undo_changes(now)
    for window, rows in zip(counted, before, strict=True):
        window.rows = rows
    return results


def _commit_changes(state: AggregateState, window_changes: list[WindowChanges], last_us: int) -> None:
    """Evict the rows that left their windows, and those that came and went between two instants."""
    for each in window_changes:
        state.tables.release_entries(each.number, each.leaving.entry)
        state.tables.forget_rows(each.number, each.forgotten)
        state.inputs[each.number].window.commit_changes(last_us)


def _admit_rows(
    config: AggregateConfig, state: AggregateState, number: int, input_batch: InputBatch | None, future_us: int
) -> None:
    """Admit new rows. Rows of a ROWS window wait until no earlier row can arrive; then they are counted in order."""
    source, input_state = config.join.inputs[number], state.inputs[number]
    if input_state.counter is None:
        if input_batch is not None and len(input_batch):
            _append_rows(config, state, number, ReleasedRows(input_batch.table, input_batch.times, None))
        return
    nothing = InputBatch(source.fields.empty_table(), np.empty(0, np.int64))
    table, times = prepend_waiting(input_state.waiting, input_batch or nothing)
    ready = times < future_us
    input_state.waiting = None if ready.all() else buffer_until_watermark(table, times, ~ready)
    if ready.any():
        counter = input_state.counter = input_state.counter.copy()
        released, victims, last_us = count_rows(source, counter, InputBatch(table, times).filter(ready))
        _get_counted_window(state, number).set_ends(victims, last_us)
        _append_rows(config, state, number, released)


def _count_provisionally(config: AggregateConfig, state: AggregateState, number: int, now_us: int) -> None:
    """Count the rows that wait at this instant, for this evaluation only."""
    source, input_state = config.join.inputs[number], state.inputs[number]
    if source.row_limit is None or input_state.waiting is None:
        return
    if input_state.counter is None:
        raise InternalError("a ROWS window has no counter")
    table, times = prepend_waiting(input_state.waiting, InputBatch(source.fields.empty_table(), np.empty(0, np.int64)))
    here = times <= now_us
    if here.any():
        released, victims, last_us = count_rows(
            source, input_state.counter.copy(), InputBatch(table, times).filter(here)
        )
        _get_counted_window(state, number).set_ends(victims, last_us)
        _append_rows(config, state, number, released)


def _append_rows(config: AggregateConfig, state: AggregateState, number: int, released: ReleasedRows) -> None:
    input_state = state.inputs[number]
    rows = encode_rows(
        config, state.layout, number, released, state.classes, input_state.attributes, state.result.order_codes
    )
    if len(rows):
        input_state.window.append(rows)


def _get_counted_window(state: AggregateState, number: int) -> CountedWindow:
    window = state.inputs[number].window
    if not isinstance(window, CountedWindow):
        raise InternalError("only a ROWS window counts its rows")
    return window


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
            recompute_extremes(config, state)
        return replace(self, config=config), state

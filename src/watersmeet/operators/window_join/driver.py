"""The driver of the window join: it takes one batch and returns its results and the next state.

The driver admits rows, splits the batch into time slices, evicts expired panes, and decides which rows are old and
which are new. A tactic finds every match with at least one new row exactly once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import Expr
from watersmeet.operators import parallel
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.protocol import BatchCounters, InputBatch, exhaust
from watersmeet.operators.window_join.admission import (
    ReleasedRows,
    build_pane,
    drop_late_rows,
    release_rows,
    split_by_time,
)
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.matches import PartialMatches, gather_column
from watersmeet.operators.window_join.pane import Pane, Panes
from watersmeet.operators.window_join.state import JoinState, WindowState
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import DerivedState
from watersmeet.operators.window_join.work_counters import EMIT, INGEST, PROBE, STORE, OperatorTimer, WorkCounters


@dataclass(frozen=True)
class BatchResult:
    """Results of one batch, and the state after it."""

    results: list[pa.RecordBatch]
    state: JoinState
    counters: BatchCounters


def join_batch(
    config: JoinConfig, state: JoinState, batches: Mapping[int, InputBatch], watermark_us: int, future_us: int
) -> BatchResult:
    """Join one batch. Time is an argument, never a system call.

    `watermark_us` is the query's watermark at the start of the batch: rows before it are late. `future_us` is a
    promise: later batches contain only rows at or after it, or late rows. The join releases waiting rows before it, or
    before the last evaluation instant of a lazy plan, and evicts state that cannot match rows at or after it.
    """
    results, (following, counters) = exhaust(iter_join_batch(config, state, batches, watermark_us, future_us))
    return BatchResult(results, following, counters)


def iter_join_batch(
    config: JoinConfig, state: JoinState, batches: Mapping[int, InputBatch], watermark_us: int, future_us: int
) -> Generator[pa.RecordBatch, None, tuple[JoinState, BatchCounters]]:
    """Join one batch like `join_batch`, but yield each piece of the results and hold none of them.

    The generator returns the next state and the counters.
    """
    on_time = {i: drop_late_rows(batch, watermark_us) for i, batch in batches.items()}
    tally = WorkCounters(len(state.inputs))
    release_us = config.release_before_us(future_us)
    released, inputs = _release_inputs(config, state, on_time, release_us, tally.timer)
    derived = DerivedState(state.derived)
    result_rows = 0
    bounds = list(split_by_time([released[i] for i in config.stream_inputs], config))
    for before_us, new, timer in parallel.prefetch_next(_build_panes(config, released, bounds)):
        tally.timer.add(timer)
        horizon_us = derived.horizon_us = config.evict_before_us(min(before_us, release_us))
        for batch in _join(config, inputs, new, tally, derived):
            result_rows += batch.num_rows
            yield batch
        inputs = [
            _add_pane(config.inputs[i], each, new[i], horizon_us, tally.timer) if i in new else each
            for i, each in enumerate(inputs)
        ]
    counters = BatchCounters(
        arrived=tuple(len(batches[i]) if i in batches else 0 for i in range(len(inputs))),
        late=tuple(len(batches[i]) - len(on_time[i]) if i in batches else 0 for i in range(len(inputs))),
        results=result_rows,
        tally=tally,
    )
    return JoinState(tuple(inputs), derived.value), counters


def add_relation(config: JoinConfig, state: JoinState, number: int, table: pa.Table) -> JoinState:
    """Return the state with the rows of a relation, as one pane that never expires."""
    rows = ReleasedRows(table, np.zeros(table.num_rows, np.int64), None)
    pane = build_pane(config.inputs[number], rows)
    inputs = list(state.inputs)
    inputs[number] = replace(inputs[number], panes=(pane,))
    return JoinState(tuple(inputs))


def _release_inputs(
    config: JoinConfig, state: JoinState, batches: Mapping[int, InputBatch], release_us: int, timer: OperatorTimer
) -> tuple[dict[int, ReleasedRows], list[WindowState]]:
    inputs = [each.start_batch() for each in state.inputs]
    released: dict[int, ReleasedRows] = {}
    for i in config.stream_inputs:
        source = config.inputs[i]
        batch = batches[i] if i in batches else _empty_batch(source)  # an empty batch still has its columns
        with timer.measure(INGEST, i):
            released[i], inputs[i] = release_rows(source, inputs[i], batch, release_us, waits=config.holds_rows_back)
    return released, inputs


def _build_panes(
    config: JoinConfig, released: dict[int, ReleasedRows], bounds: list[tuple[int, int]]
) -> Iterator[tuple[int, dict[int, Pane], OperatorTimer]]:
    """Yield for each time slice its exclusive end, its new panes, and the time it took to build them.

    The panes do not depend on earlier slices, so they can be built ahead.
    """
    prepare = find_tactic(config.plan).prepare if len(bounds) > 1 else None  # a single slice is probed at once
    for from_us, before_us in bounds:
        rows = [released[i].between(from_us, before_us) for i in config.stream_inputs]
        timed_panes = parallel.parallel_map(
            partial(_build_timed_pane, config),
            list(zip(config.stream_inputs, rows, strict=True)),
            sum(each.times.size for each in rows),
        )
        new = {i: pane for i, (pane, _) in zip(config.stream_inputs, timed_panes, strict=True)}
        timer = OperatorTimer()
        for _, pane_timer in timed_panes:
            timer.add(pane_timer)
        if prepare is not None:
            with timer.measure(PROBE):
                prepare(config, new)
        yield before_us, new, timer


def _build_timed_pane(config: JoinConfig, of_input: tuple[int, ReleasedRows]) -> tuple[Pane, OperatorTimer]:
    number, rows = of_input
    timer = OperatorTimer()
    with timer.measure(STORE, number):
        return build_pane(config.inputs[number], rows), timer


def _add_pane(source: JoinInput, state: WindowState, pane: Pane, future_us: int, timer: OperatorTimer) -> WindowState:
    with timer.measure(STORE, source.number):
        return state.add_pane(pane, source.retention_us, future_us)


def _empty_batch(source: JoinInput) -> InputBatch:
    return InputBatch(source.fields.empty_table(), np.empty(0, np.int64))


def _join(
    config: JoinConfig, inputs: list[WindowState], new: dict[int, Pane], tally: WorkCounters, derived: DerivedState
) -> Iterator[pa.RecordBatch]:
    if not any(len(pane) for pane in new.values()):
        return
    search = find_tactic(config.plan).compile_plan(config, config.plan)
    found = tally.timer.measure_items(PROBE, search(config, [each.panes for each in inputs], new, tally, derived))
    nonempty = (each for each in found if len(each[1]))
    for batch, timer in parallel.pipelined_map(
        partial(_materialize_timed, config), nonempty, lambda each: len(each[1])
    ):
        tally.timer.add(timer)
        yield batch


def _materialize_timed(
    config: JoinConfig, found: tuple[dict[int, Panes], PartialMatches]
) -> tuple[pa.RecordBatch, OperatorTimer]:
    """Return the result rows and the time of the core that built them."""
    timer = OperatorTimer()
    with timer.measure(EMIT):
        batch = _materialize(config, *found)
    return batch, timer


def _materialize(config: JoinConfig, reach: dict[int, Panes], found: PartialMatches) -> pa.RecordBatch:
    def values(expr: Expr) -> pa.Array[Any]:
        return evaluate(expr, lambda column: gather_column(config, reach, found, column), len(found))

    return pa.RecordBatch.from_arrays([values(output.expr) for output in config.outputs], schema=config.result)

"""The driver of the meet operator: one batch in, its results and the next state out.

The driver admits rows, cuts the batch into stretches of time, lets expired panes go, and decides which rows are old and
which are new. A tactic finds every combination with at least one new row, each exactly once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import Expr
from watersmeet.operators import parallel as cores
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.window_join.admission import (
    InputBatch,
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

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class BatchCounters:
    """What a step did, per input."""

    arrived: tuple[int, ...]
    late: tuple[int, ...]
    results: int
    tally: WorkCounters


@dataclass(frozen=True)
class BatchResult:
    """The outcome of a step."""

    results: list[pa.RecordBatch]
    state: JoinState
    counters: BatchCounters


def join_batch(
    config: JoinConfig, state: JoinState, deltas: dict[int, InputBatch], watermark_us: int, future_us: int
) -> BatchResult:
    """Joins a batch. Time is an argument, never a clock.

    `watermark_us` is the query's watermark at the start of the batch: rows before it are late. `future_us` is a promise
    that no later batch brings a row before it that is not late: rows that wait are released up to it, and state that
    cannot reach it is dropped.
    """
    results, (following, counters) = exhaust(iter_join_batch(config, state, deltas, watermark_us, future_us))
    return BatchResult(results, following, counters)


def exhaust(under_way: Generator[pa.RecordBatch, None, Returned]) -> tuple[list[pa.RecordBatch], Returned]:
    """All that a generator yields, and what it returns."""
    results: list[pa.RecordBatch] = []
    while True:
        try:
            results.append(next(under_way))
        except StopIteration as over:
            return results, over.value


def iter_join_batch(
    config: JoinConfig, state: JoinState, deltas: dict[int, InputBatch], watermark_us: int, future_us: int
) -> Generator[pa.RecordBatch, None, tuple[JoinState, BatchCounters]]:
    """`step` with its results one piece at a time: none is held here, however many there are. Returns the next state
    and the counters.
    """
    kept = {i: drop_late_rows(delta, watermark_us) for i, delta in deltas.items()}
    tally = WorkCounters(len(state.inputs))
    released, inputs = _release_inputs(config, state, kept, future_us, tally.timer)
    derived = DerivedState(state.derived if find_tactic(config.plan).resume_plan is not None else None)
    found = 0
    bounds = list(split_by_time([released[i] for i in config.stream_numbers], config))
    for before_us, new, timer in cores.prefetch_next(_build_panes(config, released, bounds)):
        tally.timer.add(timer)
        for batch in _join(config, inputs, new, tally, derived):
            found += batch.num_rows
            yield batch
        horizon_us = min(before_us, future_us)
        inputs = [
            _add_pane(config.inputs[i], each, new[i], horizon_us, tally.timer) if i in new else each
            for i, each in enumerate(inputs)
        ]
    counters = BatchCounters(
        arrived=tuple(len(deltas[i]) if i in deltas else 0 for i in range(len(inputs))),
        late=tuple(len(deltas[i]) - len(kept[i]) if i in deltas else 0 for i in range(len(inputs))),
        results=found,
        tally=tally,
    )
    return JoinState(tuple(inputs), derived.value), counters


def add_relation(config: JoinConfig, state: JoinState, number: int, table: pa.Table) -> JoinState:
    """The state with a relation's rows in it: one pane that never leaves."""
    rows = ReleasedRows(table, np.zeros(table.num_rows, np.int64), None)
    pane = build_pane(config.inputs[number], rows)
    inputs = list(state.inputs)
    inputs[number] = replace(inputs[number], panes=(pane,))
    return JoinState(tuple(inputs))


def _release_inputs(
    config: JoinConfig, state: JoinState, deltas: dict[int, InputBatch], future_us: int, timer: OperatorTimer
) -> tuple[dict[int, ReleasedRows], list[WindowState]]:
    inputs = list(state.inputs)
    released: dict[int, ReleasedRows] = {}
    for i in config.stream_numbers:
        source = config.inputs[i]
        delta = deltas[i] if i in deltas else _empty_batch(source)  # a delta without rows still knows its columns
        with timer.measure(INGEST, i):
            released[i], inputs[i] = release_rows(source, inputs[i], delta, future_us, waits=config.waits_for_watermark)
    return released, inputs


def _build_panes(
    config: JoinConfig, released: dict[int, ReleasedRows], bounds: list[tuple[int, int]]
) -> Iterator[tuple[int, dict[int, Pane], OperatorTimer]]:
    """Stretch by stretch: the time before which it ends, its new panes, and how long they took. None of it depends on
    what was before.
    """
    prepare = find_tactic(config.plan).prepare if len(bounds) > 1 else None  # a single one has its turn at once
    for from_us, before_us in bounds:
        rows = [released[i].between(from_us, before_us) for i in config.stream_numbers]
        made = cores.parallel_map(
            partial(_build_timed_pane, config),
            list(zip(config.stream_numbers, rows, strict=True)),
            sum(each.times.size for each in rows),
        )
        new = {i: pane for i, (pane, _) in zip(config.stream_numbers, made, strict=True)}
        timer = OperatorTimer()
        for _, its in made:
            timer.add(its)
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
    search = find_tactic(config.plan).search(config, derived)
    found = tally.timer.measure_items(PROBE, search(config, [each.panes for each in inputs], new, tally))
    some = (each for each in found if len(each[1]))
    for batch, timer in cores.pipelined_map(partial(_materialize_timed, config), some, lambda each: len(each[1])):
        tally.timer.add(timer)
        yield batch


def _materialize_timed(
    config: JoinConfig, found: tuple[dict[int, Panes], PartialMatches]
) -> tuple[pa.RecordBatch, OperatorTimer]:
    """The rows, and how long it took, by whichever core it was done."""
    timer = OperatorTimer()
    with timer.measure(EMIT):
        batch = _materialize(config, *found)
    return batch, timer


def _materialize(config: JoinConfig, reach: dict[int, Panes], found: PartialMatches) -> pa.RecordBatch:
    def values(expr: Expr) -> pa.Array:
        return evaluate(expr, lambda column: gather_column(config, reach, found, column), len(found))

    return pa.RecordBatch.from_arrays([values(output.expr) for output in config.outputs], schema=config.result)

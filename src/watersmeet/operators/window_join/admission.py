"""Admission turns a batch into panes: it drops late rows, buffers rows until the watermark, and splits by time.

Rows of ROWS queries wait for the watermark, and rows of a lazy join for the next evaluation instant. A time slice
contains the rows between two instants. Splitting a large batch keeps state and access paths the size of the windows
instead of the size of the batch. Admission also counts rows, applies each source's own predicates and computes keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, columns_of
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.operators.expressions import all_true, evaluate, evaluate_or_null
from watersmeet.operators.keys import encode_keys, has_exact_codes
from watersmeet.operators.ordering import sort_stream_rows
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.shed.sampling import RowSampler
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Int64s, Pane, is_sorted
from watersmeet.operators.window_join.row_counter import RowCounter
from watersmeet.operators.window_join.state import WindowState

#: Minimum rows of all inputs in one time slice, if the batch has so many.
MIN_SLICE_ROWS = 1 << 20

WAITING_TIME = "\0time"


@dataclass(frozen=True)
class ReleasedRows:
    """Rows of one input to join now; `order` sorts the table by time (None if it is sorted)."""

    table: pa.Table
    times: Int64s  # in time order
    order: Int64s | None
    ends: Int64s | None = None
    seqs: Int64s | None = None

    def between(self, from_us: int, before_us: int) -> ReleasedRows:
        """Return the rows with `from <= time < before`."""
        start, stop = np.searchsorted(self.times, [from_us, before_us])
        table = self.table.slice(start, stop - start) if self.order is None else self.table.take(self.order[start:stop])
        return ReleasedRows(
            table,
            self.times[start:stop],
            None,
            None if self.ends is None else self.ends[start:stop],
            None if self.seqs is None else self.seqs[start:stop],
        )


def drop_late_rows(batch: InputBatch, watermark_us: int) -> InputBatch:
    """Drop late rows: those strictly before the query's watermark."""
    if not len(batch) or int(batch.times.min()) >= watermark_us:
        return batch
    return batch.filter(batch.times >= watermark_us)


def shed_rows(batch: InputBatch, box: RowSampler, watermark_us: int) -> InputBatch:
    """Drop the rows that the drop box sheds, except late ones: a late row counts as late, shed or not."""
    return batch.filter(box.select_kept(batch.table) | (batch.times < watermark_us)) if box.is_dropping else batch


def release_rows(
    source: JoinInput, state: WindowState, batch: InputBatch, future_us: int, waits: bool
) -> tuple[ReleasedRows, WindowState]:
    """Return the rows to join now: those before `future_us` of a join that `waits`, else all.

    Rows that a lazy plan has buffered are released by any other plan.
    """
    if not waits and state.waiting is None:
        return _sort_by_time(source, batch), state
    table, times = prepend_waiting(state.waiting, batch)
    ready = times < future_us if waits else np.ones(times.size, np.bool_)
    buffered = None if np.all(ready) else buffer_until_watermark(table, times, ~ready)
    released = InputBatch(table, times).filter(ready) if buffered is not None else InputBatch(table, times)
    state = replace(state, waiting=buffered)
    if source.row_limit is not None:
        return _count_and_release(source, state, released)
    return _sort_by_time(source, released), state


def buffer_until_watermark(table: pa.Table, times: Int64s, which: NDArray[np.bool_]) -> pa.Table:
    """Return the rows to buffer until the watermark, with their times in an extra column."""
    if which.all():  # no copy: a lazy plan buffers the rows of many batches
        return table.append_column(WAITING_TIME, pa.array(times))
    return table.filter(pa.array(which)).append_column(WAITING_TIME, pa.array(times[which]))


def split_by_time(released: list[ReleasedRows], config: JoinConfig) -> Iterator[tuple[int, int]]:
    """Yield the bounds `[from, before)` of time slices that cover the released rows; the last one is open.

    A slice is at least as long as the retention time, so that a probe visits few panes, however long the windows are.
    A lazy join is cut at its evaluation instants.
    """
    times = [each.times for each in released if each.times.size]
    total = sum(each.size for each in times)
    if total < 2 * MIN_SLICE_ROWS:
        yield -FOREVER_US, FOREVER_US
        return
    span_us = max(int(each[-1]) for each in times) - min(int(each[0]) for each in times) + 1
    kept_us = min(
        span_us,
        max((config.inputs[i].retention_us for i in config.stream_inputs if not config.inputs[i].has_ends), default=0),
    )
    slices = max(1, total // max(MIN_SLICE_ROWS, total * kept_us // span_us))
    longest = max(times, key=lambda each: each.size)
    cuts = np.unique(longest[np.linspace(0, longest.size - 1, slices + 1).astype(np.int64)[1:-1]])
    if config.plan.evaluate_us:  # a lazy join evaluates at the end of a slice, too
        cuts = np.unique(cuts // config.plan.evaluate_us * config.plan.evaluate_us)
    yield from pairwise([-FOREVER_US, *cuts.tolist(), FOREVER_US])


def build_pane(source: JoinInput, rows: ReleasedRows) -> Pane:
    """Select the rows that can be part of a result, compute their keys, and keep the columns that are read later.

    Keys and operands are evaluated on exactly the rows that pass the source's own predicates. An error in one of them
    stops the query, whether or not the row matches another.
    """
    chosen = _select(source, rows)
    length = rows.times.size if chosen is None else chosen.size
    columns = {
        name: _take_chosen(combine_chunks(rows.table, name), chosen)
        for name in list_columns_read_after_selection(source)
    }

    def column(ref: Column) -> pa.Array[Any]:
        return columns[ref.name]

    keys = {c: evaluate(expr, column, length) for c, expr in source.keys}
    for operand in source.operands:
        evaluate(operand, column, length)
    selected = Pane(
        times=rows.times if chosen is None else rows.times[chosen],
        columns={name: columns[name] for name in source.columns},
        keys=keys,
        codes={},
        ends=rows.ends if rows.ends is None or chosen is None else rows.ends[chosen],
        seqs=rows.seqs if rows.seqs is None or chosen is None else rows.seqs[chosen],
    )
    keep = np.ones(length, np.bool_)
    for values in keys.values():
        if values.null_count:
            keep &= values.is_valid().to_numpy(zero_copy_only=False)
    if selected.ends is not None:
        keep &= selected.ends >= selected.times  # rows of the same instant pushed it out: never visible
    kept = selected if np.all(keep) else selected.take(keep)
    return replace(
        kept,
        keys={c: values for c, values in kept.keys.items() if not has_exact_codes(values.type)},
        codes={c: encode_keys(values) for c, values in kept.keys.items()},
    )


def drop_raising_rows(source: JoinInput, rows: ReleasedRows) -> ReleasedRows:
    """Drop rows on which one of the input's expressions raises.

    The planner uses this for samples: choosing a plan must not stop a query.
    """

    def column(ref: Column) -> pa.Array[Any]:
        return combine_chunks(rows.table, ref.name)

    has_error = np.zeros(rows.times.size, np.bool_)
    for expr in (*source.own_predicates, *(key for _, key in source.keys), *source.operands):
        has_error |= evaluate_or_null(expr, column, rows.times.size)[1]
    if not has_error.any():
        return rows
    ends, seqs = (None if each is None else each[~has_error] for each in (rows.ends, rows.seqs))
    return ReleasedRows(rows.table.filter(pa.array(~has_error)), rows.times[~has_error], None, ends, seqs)


def list_columns_read(source: JoinInput) -> list[str]:
    """Return the columns of an input that admission or a later operator reads."""
    own = [column.name for expr in source.own_predicates for column in columns_of(expr)]
    return list(dict.fromkeys([*list_columns_read_after_selection(source), *own]))


def list_columns_read_after_selection(source: JoinInput) -> list[str]:
    """Return the columns that are read of rows that passed the source's own predicates."""
    exprs = (*(expr for _, expr in source.keys), *source.operands)
    return list(dict.fromkeys([*source.columns, *(column.name for expr in exprs for column in columns_of(expr))]))


def _select(source: JoinInput, rows: ReleasedRows) -> Int64s | None:
    """Return the numbers of the rows that pass the source's own predicates, None for all rows."""
    if source.selection is None:
        return None
    keep = all_true(source.own_predicates, lambda column: combine_chunks(rows.table, column.name), rows.times.size)
    return None if keep.all() else np.flatnonzero(keep)


def _take_chosen(values: pa.Array[Any], chosen: Int64s | None) -> pa.Array[Any]:
    return values if chosen is None else values.take(chosen)


def combine_chunks(table: pa.Table, name: str) -> pa.Array[Any]:
    """Return a column as one array."""
    column = table.column(name)
    # The stubs type a chunk as a ChunkedArray.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[return-value]


def _sort_by_time(source: JoinInput, batch: InputBatch) -> ReleasedRows:
    order = None if is_sorted(batch.times) else np.argsort(batch.times, kind="stable")
    times = batch.times if order is None else batch.times[order]
    return ReleasedRows(batch.table, times, order, ends=_compute_row_ends(source, times))


def _compute_row_ends(source: JoinInput, times: Int64s) -> Int64s | None:
    """Return the ends that rows store; None where bounds express them, and where later rows decide."""
    if source.window is None or not source.has_ends or source.row_limit is not None:
        return None
    return source.window.row_ends_us(times, every_us=None)


def prepend_waiting(waiting: pa.Table | None, batch: InputBatch) -> tuple[pa.Table, Int64s]:
    """Return the buffered rows followed by those of the batch, and their times."""
    if waiting is None:
        return batch.table, batch.times
    times = waiting.column(WAITING_TIME).combine_chunks().to_numpy()
    table = pa.concat_tables([waiting.drop_columns([WAITING_TIME]), batch.table])
    return table, np.concatenate([times, batch.times])


def _count_and_release(source: JoinInput, state: WindowState, batch: InputBatch) -> tuple[ReleasedRows, WindowState]:
    """Count the rows in ≺ order and set row ends, also in older panes.

    A row ends at the instant before the row that pushes it out.
    """
    if state.counter is None:
        raise InternalError("a ROWS window has no row counter")
    counter = state.counter.copy()
    released, evicted, last_us = count_rows(source, counter, batch)
    panes = tuple(_set_pane_ends(pane, evicted, last_us) for pane in state.panes)
    return released, replace(state, counter=counter, panes=panes)


def count_rows(source: JoinInput, counter: RowCounter, batch: InputBatch) -> tuple[ReleasedRows, Int64s, Int64s]:
    """Return the rows in ≺ order with their ends, and the sorted numbers of evicted rows with their last instants."""
    rest = [combine_chunks(batch.table, name) for name in source.fields.names if name != source.time]
    order = sort_stream_rows(batch.times, [*rest, *_nanosecond_times(source, batch.table)])
    table, times = batch.table.take(order), batch.times[order]
    seqs, leaving = counter.push(table)
    left = leaving >= 0
    evicted, last_us = leaving[left], times[left] - 1
    by_seq = np.argsort(evicted)
    evicted, last_us = evicted[by_seq], last_us[by_seq]
    ends = set_row_ends(np.full(times.size, FOREVER_US, np.int64), seqs, evicted, last_us)
    return ReleasedRows(table, times, None, ends, seqs), evicted, last_us


def _nanosecond_times(source: JoinInput, table: pa.Table) -> list[pa.Array[Any]]:
    """Return the time column if it has nanoseconds: event times lack them, and they decide ties last."""
    if source.time is None or (source.unit or getattr(table.schema.field(source.time).type, "unit", "us")) != "ns":
        return []
    return [combine_chunks(table, source.time)]


def _set_pane_ends(pane: Pane, evicted: Int64s, last_us: Int64s) -> Pane:
    if pane.ends is None or pane.seqs is None:
        raise InternalError("a pane of counted rows has no sequence numbers")
    ends = set_row_ends(pane.ends, pane.seqs, evicted, last_us)
    return pane if ends is pane.ends else pane.replace_ends(ends, int(np.count_nonzero(ends != pane.ends)))


def set_row_ends(ends: Int64s, seqs: Int64s, evicted: Int64s, last_us: Int64s) -> Int64s:
    """Return the ends with those of the evicted rows set; `seqs` and `evicted` are sorted."""
    if not evicted.size or not seqs.size:
        return ends
    at = np.searchsorted(evicted, seqs)
    hit = evicted[np.minimum(at, evicted.size - 1)] == seqs
    if not np.any(hit):
        return ends
    changed = ends.copy()
    changed[hit] = last_us[at[hit]]
    return changed

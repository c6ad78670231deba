"""Buffers of the W-joins, kept between batches: lists, hash tables, and rows in order of time for the sweep.

New rows enter the buffers as they arrive. Rows leave for good when no row at or after the horizon can match them. A
kernel may expire further rows, but only for one batch: the next one may bring earlier rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.algebra.plan import Index
from watersmeet.kernels.wjoin.buffers import FIRST_US, LAST_US, Buffers
from watersmeet.kernels.wjoin.plane_sweep import SweepRows, merge_new_rows
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.pane import Int64s, Pane
from watersmeet.operators.window_join.tactics.live_indexes import LiveIndexes, allocate_indexes
from watersmeet.operators.window_join.tactics.live_rows import LiveHandle, LiveRows, derive_rows, find_live_engine


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """How buffers are laid out: by the sweep's order of time, or else as hash tables with these indexes, or as lists.

    `column` is the attribute that all streams join on, or None if there is none.
    """

    is_sweep: bool
    indexes: tuple[Index, ...]
    column: int | None


@dataclass
class LiveBuffers:
    """Rows and buffers of a W-join. `version` changes whenever a batch starts. `first_new` are the first new rows."""

    layout: BufferLayout
    rows: LiveRows
    codes: Int64s
    indexes: LiveIndexes | None
    sweep: SweepRows | None
    first_new: Int64s
    numbers: Int64s  # of the rows in a list, by place
    version: int = 0

    def start_batch(self, new: dict[int, Pane]) -> None:
        """Append the new rows, and make room for them in the buffers."""
        self.version += 1
        dropped = self.rows.move_to_front(new)
        if self.indexes is not None:
            self.indexes.drop_front(dropped)
        self.first_new = self.rows.tail.copy()
        for i, pane in new.items():
            self.rows.append(i, pane)
        if self.indexes is not None:
            self.indexes.make_room(self.rows.first, self.first_new)
        if self.sweep is not None:
            for i, pane in new.items():
                self._add_to_sweep(self.sweep, i, int(dropped[i]), len(pane))

    def hash_or_list_buffers(self) -> Buffers:
        """Return the buffers before the new rows arrive. Their fronts are a copy, so that expired rows return."""
        if self.indexes is not None:
            arrays, size = self.indexes.arrays, self.indexes.arrays.heads.size
            first_bucket = np.concatenate([arrays.bucket_at, [size]]).astype(np.int64)
            heads = arrays.heads.copy()
            return Buffers(
                self.indexes.placed_time, arrays.placed_value, arrays.placed_row, heads, arrays.tails, first_bucket
            )
        starts = self.rows.offsets[:-1]
        streams = np.arange(starts.size + 1)
        front, filled = starts + self.rows.first, starts + self.first_new
        return Buffers(self.rows.times, self.codes, self.numbers, front, filled, streams)

    def new_row_places(self) -> tuple[Int64s, Int64s]:
        """Return where the new rows of each stream start and stop."""
        starts = self.rows.offsets[:-1]
        return starts + self.first_new, starts + self.rows.tail

    def new_row_times(self) -> tuple[int, int]:
        """Return the first and the last time of a new row."""
        first_us, last_us = int(LAST_US), int(FIRST_US)
        for start, stop in zip(*self.new_row_places(), strict=True):
            if start < stop:
                first_us = min(first_us, int(self.rows.times[start]))
                last_us = max(last_us, int(self.rows.times[stop - 1]))
        return first_us, last_us

    def finish_batch(self, horizon_us: int) -> LiveHandle:
        """Release rows that no later row can match, and return the buffers as the derived data of the next state."""
        before = self.rows.first.copy()
        self.rows.release_rows(horizon_us, self.rows.tail, by_ends=False)
        if self.indexes is not None:
            self.indexes.drop_released(before)
        if self.sweep is not None:
            for each in self.rows.config.inputs:
                start, stop = int(self.sweep.start[each.number]), int(self.sweep.stop[each.number])
                bound_us = horizon_us - each.retention_us
                self.sweep.start[each.number] += np.searchsorted(self.sweep.times[start:stop], bound_us)
        return LiveHandle(self, self.version)

    def _add_to_sweep(self, sweep: SweepRows, number: int, dropped: int, count: int) -> None:
        """Merge new rows into the order of time, at the front of the stream's places if there is no room behind."""
        start, stop, first = int(sweep.start[number]), int(sweep.stop[number]), int(self.rows.offsets[number])
        sweep.rows[start:stop] -= dropped
        if stop + count > int(self.rows.offsets[number + 1]):
            for array in (sweep.times, sweep.codes, sweep.rows):
                array[first : first + stop - start] = array[start:stop]
            sweep.start[number], sweep.stop[number] = first, first + stop - start
        at = slice(first + int(self.first_new[number]), first + int(self.rows.tail[number]))
        merge_new_rows(sweep, number, self.rows.times[at], self.codes[at], int(self.first_new[number]))


def resume_buffers(
    config: JoinConfig, layout: BufferLayout, old: list[tuple[Pane, ...]], new: dict[int, Pane], derived: object
) -> LiveBuffers:
    """Return the buffers of the batch before, or new ones if those belong to another plan or another state."""
    live = find_live_engine(derived, LiveBuffers, old, new)
    if live is not None and live.layout == layout:
        return live
    rows = derive_rows(config, old, new)
    codes = np.zeros(rows.times.size, np.int64) if layout.column is None else rows.column(layout.column)
    indexes, sweep, numbers = None, None, np.empty(0, np.int64)
    if layout.is_sweep:
        sweep = _sort_for_sweep(rows, codes)
    elif any(each.kind == "hash" for each in layout.indexes) and layout.column is not None:
        probed = tuple((each.number, layout.column) for each in config.inputs)
        indexes = allocate_indexes(rows, probed, layout.indexes, with_times=True)
        indexes.fill(rows.first, rows.tail)
    else:
        numbers = np.concatenate([np.arange(room) for room in np.diff(rows.offsets)])
    return LiveBuffers(layout, rows, codes, indexes, sweep, rows.tail.copy(), numbers)


def _sort_for_sweep(rows: LiveRows, codes: Int64s) -> SweepRows:
    """Return the rows of each stream in order of time; rows of equal time keep the order of arrival."""
    times, sorted_codes, numbers = (np.empty(rows.times.size, np.int64) for _ in range(3))
    starts = rows.offsets[:-1].copy()
    for start, count in zip(starts.tolist(), rows.tail.tolist(), strict=True):
        at = slice(start, start + count)
        order = np.argsort(rows.times[at], kind="stable")
        times[at], sorted_codes[at], numbers[at] = rows.times[at][order], codes[at][order], order
    return SweepRows(times, sorted_codes, numbers, starts, starts + rows.tail)

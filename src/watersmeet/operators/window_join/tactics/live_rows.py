"""Rows of all windows in flat arrays, kept between batches: what nested loops and W-joins scan, and where a row is.

The arrays are derived from the panes. New rows are appended to them, and rows that can never match again are dropped
from the front. A row has a number that never changes. Panes note the numbers of their rows (`Pane.number_rows`), so a
match is found in the panes after these were merged or cut. Rows that only the arrays still hold have left the panes
because no result can contain them.

`LiveHandle` ties the arrays to one state. A batch that runs again from an older state finds that the arrays have moved
on, and derives them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US, MAX_TIME_US
from watersmeet.errors import InternalError
from watersmeet.kernels.loop_state import LOWEST
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Int32s, Int64s, Pane, Panes, RowNumbers
from watersmeet.operators.window_join.tactics.tactic import Reach

#: Room for this many rows beyond twice the rows of a window. Small windows are then moved to the front rarely.
SPARE_ROWS = 1024


@dataclass
class LiveRows:
    """Row r of window w is at `offsets[w] + r`, and its value in column c at `column_at[w, c] + r`.

    Its number is `base[w] + r`. Window w holds the rows from `first[w]` up to `tail[w]`, in order of arrival. The
    values of a column are as far from each other as the times of the same rows.
    """

    config: JoinConfig
    offsets: Int64s
    times: Int64s
    ends: Int64s
    values: Int64s
    column_at: Int64s
    base: Int64s
    first: Int64s
    tail: Int64s
    latest_us: int = -FOREVER_US  # the latest time of a row that has arrived
    owner: object = field(default_factory=object)

    def column(self, number: int) -> Int64s:
        """Return the values of a column for all windows, row by row as the times are."""
        return self.values[number * self.times.size : (number + 1) * self.times.size]

    def knows_all(self, old: list[tuple[Pane, ...]]) -> bool:
        """Return whether the arrays were derived from these panes, or from those they were merged or cut from."""
        return all(pane.numbers_of(self.owner) is not None for panes in old for pane in panes)

    def has_room(self, new: dict[int, Pane]) -> bool:
        """Return whether new rows fit, if necessary after rows were moved to the front.

        Otherwise the arrays are derived again, with twice the room. Rows are not moved for little gain either.
        """
        for i, pane in new.items():
            room, held = int(self.offsets[i + 1] - self.offsets[i]), int(self.tail[i] - self.first[i])
            if int(self.tail[i]) + len(pane) > room and held + len(pane) > 3 * room // 4:
                return False
        return True

    def move_to_front(self, new: dict[int, Pane]) -> Int64s:
        """Drop rows that are out of use where new rows need their room; return how many rows each window dropped."""
        dropped = np.zeros_like(self.first)
        for i, pane in new.items():
            if int(self.tail[i]) + len(pane) > int(self.offsets[i + 1] - self.offsets[i]):
                dropped[i] = self.first[i]
        for i in np.flatnonzero(dropped).tolist():
            start, stop = int(self.first[i]), int(self.tail[i])
            starts = [(self.times, int(self.offsets[i])), (self.ends, int(self.offsets[i]))]
            starts += [(self.values, int(at)) for at in self.column_at[i] if at >= 0]
            for array, at in starts:
                array[at : at + stop - start] = array[at + start : at + stop]
        self.base += dropped
        self.first -= dropped
        self.tail -= dropped
        return dropped

    def append(self, number: int, pane: Pane) -> None:
        """Append the rows of a pane to a window."""
        source, at = self.config.inputs[number], int(self.tail[number])
        start, stop = int(self.offsets[number]) + at, int(self.offsets[number]) + at + len(pane)
        self.times[start:stop] = _row_times(source, pane)
        self.ends[start:stop] = _row_ends(source, pane)
        for column, codes in _value_columns(source, pane):
            start = int(self.column_at[number, column]) + at
            self.values[start : start + len(pane)] = codes
        first = int(self.base[number]) + at
        pane.number_rows(self.owner, np.arange(first, first + len(pane)))
        self.tail[number] = at + len(pane)
        if source.is_stream and len(pane):
            self.latest_us = max(self.latest_us, int(pane.times[-1]))

    def refresh_ends(self, number: int, panes: tuple[Pane, ...]) -> None:
        """Set the ends of rows that later rows pushed out of a ROWS window since."""
        for pane in panes:
            at = self._require_numbers(pane).values - self.base[number]
            held = at >= self.first[number]
            self.ends[self.offsets[number] + at[held]] = _row_ends(self.config.inputs[number], pane)[held]

    def release_rows(self, horizon_us: int, oldest: Int64s, *, by_ends: bool = True) -> None:
        """Note which rows no row at or after the horizon can match; no row from `oldest` on is among them."""
        for i in self.config.stream_inputs:
            self.first[i] += self.count_expired(i, int(self.first[i]), int(oldest[i]), horizon_us, by_ends=by_ends)

    def count_expired(self, number: int, start: int, stop: int, now_us: int, *, by_ends: bool = True) -> int:
        """Count the rows from `start` on that cannot match a row at or after an instant, up to the first that can."""
        at = slice(int(self.offsets[number]) + start, int(self.offsets[number]) + stop)
        stays = self.times[at] >= now_us - self.config.inputs[number].retention_us
        if by_ends:
            stays &= self.ends[at] >= now_us
        return int(np.argmax(stays)) if stays.any() else stop - start

    def locate(self, reach: Reach) -> list[RowFinder]:
        """Return for each window where its rows are in the panes."""
        return [
            RowFinder(
                panes, [self._require_numbers(pane) for pane in panes.panes], int(self.base[i]), int(self.tail[i])
            )
            for i, panes in sorted(reach.items())
        ]

    def _require_numbers(self, pane: Pane) -> RowNumbers:
        numbers = pane.numbers_of(self.owner)
        if numbers is None:
            raise InternalError("a pane has rows that the indexes of its window do not know")
        return numbers


@dataclass(frozen=True)
class LiveHandle:
    """Derived data of a state: an engine of nested loops or W-joins, at one point of its progress."""

    engine: object
    version: int


class LiveEngine(Protocol):
    """Engine that keeps rows between batches: that of nested loops, or the buffers of a W-join."""

    version: int
    rows: LiveRows


Engine = TypeVar("Engine", bound=LiveEngine)


def find_live_engine(
    derived: object, kind: type[Engine], old: list[tuple[Pane, ...]], new: dict[int, Pane]
) -> Engine | None:
    """Return the engine of the batch before if it belongs to this state and has room for the new rows."""
    if not isinstance(derived, LiveHandle) or not isinstance(derived.engine, kind):
        return None
    engine = derived.engine
    is_current = derived.version == engine.version and engine.rows.knows_all(old) and engine.rows.has_room(new)
    return engine if is_current else None


@dataclass(frozen=True)
class RowFinder:
    """Finds rows of a window in its panes by their places in the flat arrays.

    `base` is the number of the row at place 0. Places are below `tail`.
    """

    panes: Panes
    numbers: list[RowNumbers]
    base: int
    tail: int

    def find(self, places: Int32s) -> tuple[Int32s, NDArray[np.bool_]]:
        """Return the row numbers inside the panes, and which of the rows are there."""
        if places.size * 8 >= self.tail:
            rows = self._row_at[places]
            return rows, rows >= 0
        wanted, rows = places + np.int64(self.base), np.full(places.size, -1, np.int32)
        for own, start in zip(self.numbers, self.panes.bases.tolist(), strict=False):
            order = own.order
            ordered = own.values if order is None else own.values[order]
            at = np.minimum(np.searchsorted(ordered, wanted), ordered.size - 1)
            hit = ordered[at] == wanted
            rows[hit] = (at[hit] if order is None else order[at[hit]]) + start
        return rows, rows >= 0

    @cached_property
    def _row_at(self) -> Int32s:
        """The row number inside the panes by place, −1 for rows that have left the panes."""
        places = np.concatenate([each.values for each in self.numbers]) - self.base
        held, rows = places >= 0, np.full(self.tail, -1, np.int32)
        rows[places[held]] = np.flatnonzero(held)
        return rows


def derive_rows(config: JoinConfig, old: list[tuple[Pane, ...]], new: dict[int, Pane]) -> LiveRows:
    """Lay out the rows of all panes, with room for as many again. New rows are not appended yet."""
    count = len(config.inputs)
    held = [sum(map(len, panes)) for panes in old]
    room = [2 * (held[i] + (len(new[i]) if i in new else 0)) + SPARE_ROWS for i in range(count)]
    offsets = np.cumsum([0, *room]).astype(np.int64)
    columns = max(1, len(config.classes.keys) + sum(len(each.ranges) for each in config.inputs))
    column_at = np.full((count, columns), -1, np.int64)
    for each in config.inputs:
        for column in (*(column for column, _ in each.keys), *(column for column, _ in each.ranges)):
            column_at[each.number, column] = column * offsets[-1] + offsets[each.number]
    live = LiveRows(
        config,
        offsets,
        times=np.empty(offsets[-1], np.int64),
        ends=np.empty(offsets[-1], np.int64),
        values=np.empty(columns * offsets[-1], np.int64),
        column_at=column_at,
        base=np.zeros(count, np.int64),
        first=np.zeros(count, np.int64),
        tail=np.zeros(count, np.int64),
    )
    for i, panes in enumerate(old):
        for pane in panes:
            live.append(i, pane)
    return live


def _row_times(source: JoinInput, pane: Pane) -> Int64s | int:
    """Return the row times. Rows of a relation are earlier than all others, so they are never the latest of a match."""
    return pane.times if source.is_stream else -MAX_TIME_US


def _row_ends(source: JoinInput, pane: Pane) -> Int64s:
    """Return the last instant of each row's validity; the lowest time for rows whose NULL fails a comparison."""
    ends = np.full(len(pane), FOREVER_US, np.int64) if pane.ends is None else pane.ends
    for _, expr in source.ranges:
        ends = np.where(pane.range_codes(expr)[1], ends, LOWEST)
    return ends


def _value_columns(source: JoinInput, pane: Pane) -> Iterator[tuple[int, Int64s]]:
    for column, _ in source.keys:
        yield column, pane.codes[column]
    for column, expr in source.ranges:
        yield column, pane.range_codes(expr)[0]

"""The window of one input: the rows inside it and those that enter it later.

A window is kept in segments. A segment holds rows that arrived together, in time order. So the rows that enter or leave
next are at two positions of a segment, and an evaluation touches no other row. Expired rows stay in their segment until
most of it has expired. A segment is saved once, as it was on arrival: the row ends determine which rows have expired
since.

In a ROWS window, later rows decide when a row ends. Such a window is one table of at most as many rows as it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.tables import JoinTables
from watersmeet.operators.aggregate.window_rows import OUTSIDE, WindowRows, concat_window_rows
from watersmeet.operators.window_join.admission import set_row_ends

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Neighbours of similar size are merged up to this size, so that tiny batches do not leave thousands of segments. A
#: larger merged segment would be saved again as a whole.
MERGE_ROWS = 1 << 13


@dataclass(frozen=True)
class WindowChanges:
    """Changes of one input: rows that enter and leave its window, with their entries, and the number of the instant.

    `forgotten` rows do not leave, but can match no more: their results stay.
    """

    number: int
    entering: WindowRows
    entering_at: Int64s
    leaving: WindowRows
    leaving_at: Int64s
    forgotten: WindowRows

    def invert(self) -> WindowChanges:
        """Return the changes that undo these."""
        return WindowChanges(
            self.number, self.leaving, self.leaving_at, self.entering, self.entering_at, self.forgotten
        )


class InputWindow(Protocol):
    """Rows of one input that are in its window or enter it later."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def empty(self) -> WindowRows:
        """Return no rows, with the columns of this window."""

    @property
    def segments(self) -> Sequence[WindowSegment]:
        """Return the pieces that are saved on their own; none if the whole window changes with every batch."""

    def append(self, rows: WindowRows) -> None:
        """Add rows that have not entered yet."""

    def read_rows(self) -> WindowRows:
        """Return all rows."""

    def replace_rows(self, rows: WindowRows) -> None:
        """Replace all rows. Rows with an entry are inside the window."""

    def next_times_us(self, until_us: int) -> tuple[Int64s, Int64s]:
        """Return first instants of rows that enter, and last instants of rows that leave, up to `until_us`."""

    def find_changes(self, number: int, tables: JoinTables, instants_us: Int64s) -> WindowChanges:
        """Find the rows that enter and leave at these instants, and assign entries to those that enter.

        A row is inside its window at instant t if t lies between its first and its last instant, both included.
        """

    def commit_changes(self, last_us: int) -> None:
        """Evict the rows that have expired before the last instant, whether or not they were ever inside."""

    def undo_changes(self, instants_us: Int64s) -> None:
        """Forget the entries that `find_changes` assigned."""

    def load_entries(self, number: int, tables: JoinTables) -> None:
        """Add the rows inside the window to new tables."""


@dataclass(eq=False)
class WindowSegment:
    """Rows in time order. Rows before `first` have expired. Rows before `entered` have entered, and may have left."""

    rows: WindowRows
    starts_us: Int64s
    first: int = 0
    entered: int = 0

    def __len__(self) -> int:
        return len(self.rows) - self.first

    @property
    def next_start_us(self) -> int | None:
        return int(self.starts_us[self.entered]) if self.entered < self.starts_us.size else None

    @property
    def next_end_us(self) -> int | None:
        return int(self.rows.ends[self.first]) if self.first < self.starts_us.size else None

    def find_entering(self, until_us: int) -> slice:
        """Return the rows whose first instant is not after `until_us` and that have not entered before."""
        start_us = self.next_start_us
        if start_us is None or start_us > until_us:
            return slice(self.entered, self.entered)
        return slice(self.entered, int(np.searchsorted(self.starts_us, until_us, side="right")))

    def find_expiring(self, before_us: int) -> slice:
        """Return the rows whose last instant lies before this instant."""
        end_us = self.next_end_us
        if end_us is None or end_us >= before_us:
            return slice(self.first, self.first)
        return slice(self.first, int(np.searchsorted(self.rows.ends, before_us, side="left")))


@dataclass(eq=False)
class TimeWindow:
    """Window in which the time of a row determines its first and last instant, and later rows never come earlier."""

    config: AggregateConfig
    number: int
    empty: WindowRows
    segments: list[WindowSegment] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    @property
    def nbytes(self) -> int:
        return sum(segment.rows.nbytes for segment in self.segments)

    def append(self, rows: WindowRows) -> None:
        self.segments = _merge_small_segments([*self.segments, self._build_segment(rows)])

    def read_rows(self) -> WindowRows:
        return concat_window_rows([self.empty, *(each.rows.take(slice(each.first, None)) for each in self.segments)])

    def replace_rows(self, rows: WindowRows) -> None:
        self.segments = [self._build_segment(rows)] if len(rows) else []

    def restore_segments(self, parts: Sequence[WindowRows]) -> None:
        """Restore one segment from each of these parts."""
        self.segments = [self._build_segment(rows) for rows in parts]

    def next_times_us(self, until_us: int) -> tuple[Int64s, Int64s]:
        starts = [each.starts_us[each.find_entering(until_us)] for each in self.segments]
        ends = [each.rows.ends[each.find_expiring(until_us)] for each in self.segments]
        return np.concatenate([self.empty.times, *starts]), np.concatenate([self.empty.times, *ends])

    def find_changes(self, number: int, tables: JoinTables, instants_us: Int64s) -> WindowChanges:
        last_us = int(instants_us[-1])
        stays = self.config.forget_after_us[number] is not None
        entering, places = [self.empty], []
        for segment in self.segments:
            which = segment.find_entering(last_us)
            if which.start < which.stop:
                enters = np.searchsorted(instants_us, segment.starts_us[which], side="left")
                leaves = np.searchsorted(instants_us, segment.rows.ends[which], side="right")
                visible = (enters < leaves) | stays
                rows = which if visible.all() else which.start + np.flatnonzero(visible)
                entering.append(segment.rows.take(rows))
                places.append((segment, rows, enters[visible]))
        added = concat_window_rows(entering)
        entries = tables.assign_entries(number, added)
        done = 0
        for segment, rows, at in places:
            segment.rows.entry[rows] = entries[done : done + at.size]
            done += at.size
        leaving = [self.empty]
        for segment in self.segments:
            which = segment.find_expiring(last_us)
            if which.start < which.stop:
                inside = segment.rows.entry[which] != OUTSIDE
                leaving.append(segment.rows.take(which if inside.all() else which.start + np.flatnonzero(inside)))
        expired = concat_window_rows(leaving)
        removed, forgotten = (self.empty, expired) if stays else (expired, self.empty)
        return WindowChanges(
            number,
            added.with_entries(entries),
            np.concatenate([self.empty.times, *(at for _, _, at in places)]),
            removed,
            np.searchsorted(instants_us, removed.ends, side="right"),
            forgotten,
        )

    def commit_changes(self, last_us: int) -> None:
        for segment in self.segments:
            segment.entered = segment.find_entering(last_us).stop
            segment.first = segment.find_expiring(last_us).stop
        self.segments = [_cut_expired_rows(each) for each in self.segments if len(each)]

    def undo_changes(self, instants_us: Int64s) -> None:
        for segment in self.segments:
            segment.rows.entry[segment.find_entering(int(instants_us[-1]))] = OUTSIDE

    def load_entries(self, number: int, tables: JoinTables) -> None:
        for segment in self.segments:
            inside = np.flatnonzero(segment.rows.entry != OUTSIDE)
            inside = inside[np.searchsorted(inside, segment.first) :]
            segment.rows.entry[inside] = tables.load(number, segment.rows.take(inside))

    def _build_segment(self, rows: WindowRows) -> WindowSegment:
        if rows.times.size > 1 and np.any(rows.times[1:] < rows.times[:-1]):
            rows = rows.take(np.argsort(rows.times, kind="stable"))
        starts_us = self.config.row_starts_us(self.number, rows.times)
        return WindowSegment(rows, starts_us, entered=int(np.count_nonzero(rows.entry != OUTSIDE)))


def _cut_expired_rows(segment: WindowSegment) -> WindowSegment:
    """Return the segment without its expired rows if it is large and most have expired.

    It is a new part of the state then. A row is copied once at most for each time that half of a segment expires.
    """
    if segment.first < max(MERGE_ROWS, len(segment)):
        return segment
    return _copy_live_rows([segment])


def _merge_small_segments(segments: list[WindowSegment]) -> list[WindowSegment]:
    """Return the same rows with fewer segments.

    The newest two are merged while the last is at least half as large as the one before it, up to `MERGE_ROWS`. So n
    tiny batches leave O(log n) segments, and each row is copied O(log n) times.
    """
    while len(segments) > 1 and len(segments[-2]) <= 2 * len(segments[-1]):
        if len(segments[-2]) + len(segments[-1]) > MERGE_ROWS:
            break
        segments = [*segments[:-2], _copy_live_rows(segments[-2:])]
    return segments


def _copy_live_rows(segments: list[WindowSegment]) -> WindowSegment:
    """Return one segment with the live rows of several."""
    rows = concat_window_rows([each.rows.take(slice(each.first, None)).copy() for each in segments])
    starts_us = np.concatenate([each.starts_us[each.first :] for each in segments])
    entered = sum(max(each.entered - each.first, 0) for each in segments)
    if np.any(rows.times[1:] < rows.times[:-1]):
        order = np.argsort(rows.times, kind="stable")
        rows, starts_us = rows.take(order), starts_us[order]
    return WindowSegment(rows, starts_us, entered=entered)


@dataclass(eq=False)
class CountedWindow:
    """ROWS window: its rows in the order of the stream. Later rows set their ends."""

    config: AggregateConfig
    number: int
    rows: WindowRows

    @property
    def empty(self) -> WindowRows:
        return self.rows.take(slice(0, 0))

    @property
    def segments(self) -> Sequence[WindowSegment]:
        return ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def append(self, rows: WindowRows) -> None:
        self.rows = concat_window_rows([self.rows, rows])

    def read_rows(self) -> WindowRows:
        return self.rows

    def replace_rows(self, rows: WindowRows) -> None:
        self.rows = rows

    def set_ends(self, evicted: Int64s, last_us: Int64s) -> None:
        """Set the last instants of rows, by their number in the stream."""
        self.rows = replace(self.rows, ends=set_row_ends(self.rows.ends, self.rows.seqs, evicted, last_us))

    def next_times_us(self, until_us: int) -> tuple[Int64s, Int64s]:
        starts_us = self._starts_us[self.rows.entry == OUTSIDE]
        return starts_us[starts_us <= until_us], self.rows.ends[self.rows.ends < until_us]

    def find_changes(self, number: int, tables: JoinTables, instants_us: Int64s) -> WindowChanges:
        rows = self.rows
        enters = np.searchsorted(instants_us, self._starts_us, side="left")
        leaves = np.searchsorted(instants_us, rows.ends, side="right")
        entering = np.flatnonzero((rows.entry == OUTSIDE) & (enters < leaves) & (enters < instants_us.size))
        entry = rows.entry.copy()
        entry[entering] = tables.assign_entries(number, rows.take(entering))
        self.rows = rows = rows.with_entries(entry)
        leaving = np.flatnonzero((leaves < instants_us.size) & (entry != OUTSIDE))
        return WindowChanges(
            number, rows.take(entering), enters[entering], rows.take(leaving), leaves[leaving], self.empty
        )

    def commit_changes(self, last_us: int) -> None:
        live = self.rows.ends >= last_us
        self.rows = self.rows if live.all() else self.rows.take(live)

    def undo_changes(self, instants_us: Int64s) -> None:
        """Do nothing: the caller restores the rows, because it added some for this evaluation only."""

    def load_entries(self, number: int, tables: JoinTables) -> None:
        inside = np.flatnonzero(self.rows.entry != OUTSIDE)
        entry = self.rows.entry.copy()
        entry[inside] = tables.load(number, self.rows.take(inside))
        self.rows = self.rows.with_entries(entry)

    @property
    def _starts_us(self) -> Int64s:
        return self.config.row_starts_us(self.number, self.rows.times)

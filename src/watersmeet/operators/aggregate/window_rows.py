"""Rows of one input's window as columns of numbers; their validity, and the instants that are evaluated.

A row is valid from the first to the last instant at which it is in its window. Its window knows both
(`algebra.windows`), except where later rows decide when a counted row ends (`window_join.admission`). The rows of a
relation, and of a stream without a window, never end.

Only instants at which a row enters or leaves a window are evaluated, because no other instant can differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US, Window

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
OUTSIDE = -1
#: Neighbours of similar size are merged up to this size, so that tiny batches do not leave thousands of panes. A larger
#: merged pane would be saved again as a whole.
MERGE_ROWS = 1 << 13


@dataclass(frozen=True)
class WindowRows:
    """Rows as columns: time, last instant of validity, and the values that the kernels read.

    `entry` is the entry that counts the row, −1 while the row is outside its window.
    """

    times: Int64s
    ends: Int64s
    seqs: Int64s  # position in the stream, if the window counts rows
    words: Int64s  # 2-D: codes of the join keys, by class
    carried: Int64s  # number of the combination of carried attributes
    ranges: Int64s  # 2-D: codes of values that theta conditions compare
    extremes: Int64s  # 2-D: codes of the arguments of MIN and MAX
    has_extreme: Bools  # 2-D: whether that argument is not NULL
    ints: Int64s  # 2-D: numbers of the measures (`MeasureLayout`)
    approx: Float64s  # 2-D
    floats: Float64s  # 2-D
    entry: Int64s

    def __len__(self) -> int:
        return self.times.size

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, each.name).nbytes for each in fields(self))

    def take(self, chosen: Int64s | Bools | slice) -> WindowRows:
        """Return the chosen rows; those of a slice share their memory."""
        return WindowRows(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})

    def with_entries(self, entry: Int64s) -> WindowRows:
        """Return the same rows, counted in these entries."""
        return replace(self, entry=entry)

    def copy(self) -> WindowRows:
        """Return the same rows in memory of their own."""
        return WindowRows(**{each.name: getattr(self, each.name).copy() for each in fields(self)})


def concat_window_rows(parts: list[WindowRows]) -> WindowRows:
    """Concatenate the rows of several parts."""
    if len(parts) == 1:
        return parts[0]
    return WindowRows(
        **{each.name: np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(WindowRows)}
    )


@dataclass(eq=False)
class AggregatePane:
    """This many consecutive rows of a window, saved as one part.

    A pane that was saved once is not saved again, even if some of its rows have expired since.
    """

    rows: int


def evict_from_panes(panes: list[AggregatePane], expired: Bools) -> list[AggregatePane]:
    """Remove expired rows of the window from its panes; return the panes that still have rows.

    >>> panes = [AggregatePane(2), AggregatePane(1), AggregatePane(2)]
    >>> [pane.rows for pane in evict_from_panes(panes, np.array([True, False, True, False, False]))]
    [1, 2]
    """
    before = np.concatenate([[0], np.cumsum(~expired)])
    start = 0
    for pane in panes:
        start, end = start + pane.rows, start
        pane.rows = int(before[start] - before[end])
    return [pane for pane in panes if pane.rows]


def merge_small_panes(panes: list[AggregatePane]) -> list[AggregatePane]:
    """Return the same rows with fewer panes.

    The newest two are merged while the last is at least half as large as the one before it, up to `MERGE_ROWS`. So n
    tiny batches leave O(log n) panes, and each row is saved O(log n) times.

    >>> [pane.rows for pane in merge_small_panes([AggregatePane(9000), AggregatePane(20), AggregatePane(10)])]
    [9000, 30]
    """
    panes = [pane for pane in panes if pane.rows]
    while len(panes) > 1 and panes[-2].rows <= 2 * panes[-1].rows and panes[-2].rows + panes[-1].rows <= MERGE_ROWS:
        panes[-2:] = [AggregatePane(panes[-2].rows + panes[-1].rows)]
    return panes


def row_starts_us(window: Window | None, times: Int64s, every_us: int | None) -> Int64s:
    """Return the first instant at which each row is in its window."""
    return times if window is None else window.row_starts_us(times, every_us)


def row_ends_us(window: Window | None, times: Int64s, every_us: int | None) -> Int64s:
    """Return the last instant at which each row is in its window."""
    return np.full(times.size, FOREVER_US, np.int64) if window is None else window.row_ends_us(times, every_us)


def last_instant_us(windows: Iterable[Window | None], largest_us: int) -> int:
    """Return the last instant evaluated when a finite input ends: the latest that a window asks for."""
    if largest_us <= -FOREVER_US:
        return largest_us
    return max([largest_us, *(each.last_instant_us(largest_us) for each in windows if each is not None)])


def find_evaluation_instants(
    starts_us: list[Int64s], ends_us: list[Int64s], every_us: int, after_us: int, until_us: int
) -> Int64s:
    """Return the multiples of `every_us` since the epoch at which a row has entered or left a window.

    Only multiples after `after_us` and up to `until_us` count. `starts_us` and `ends_us` hold, by input, the first and
    last instants of the rows.
    """
    candidates = [_round_up_to_multiple(each, every_us) for each in starts_us]
    candidates += [_round_up_to_multiple(each[each < FOREVER_US] + 1, every_us) for each in ends_us]
    inside = [each[(each > after_us) & (each <= until_us)] for each in candidates]
    return np.unique(np.concatenate(inside))


def _round_up_to_multiple(times_us: Int64s, every_us: int) -> Int64s:
    """Return the first multiple at or after each time.

    >>> _round_up_to_multiple(np.array([-1, 0, 1, 10]), 10).tolist()
    [0, 0, 10, 10]
    """
    return -(-times_us // every_us) * every_us

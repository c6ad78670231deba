"""The rows of one input's window, and those that still wait to enter it, as columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

OUTSIDE = -1


@dataclass(frozen=True)
class WindowRows:
    """One row each: its time, the last instant at which it is valid, and the rest as the kernels read it.

    `entry` is the entry the row is counted in, −1 while it is outside the window; `identity` says which rows may share
    an entry.
    """

    times: Int64s
    ends: Int64s
    seqs: Int64s  # place in the stream, where rows are counted
    words: Int64s  # 2-D: codes of the join keys, by class
    carried: Int64s
    ranges: Int64s  # 2-D
    extremes: Int64s  # 2-D: codes of what MIN and MAX look at
    has_extreme: Bools  # 2-D
    ints: Int64s  # 2-D
    approx: Float64s  # 2-D
    floats: Float64s  # 2-D
    entry: Int64s

    def __len__(self) -> int:
        return self.times.size

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, each.name).nbytes for each in fields(self))

    def take(self, chosen: Int64s | Bools) -> WindowRows:
        return WindowRows(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})

    def with_entries(self, entry: Int64s) -> WindowRows:
        """The same rows, counted in these entries."""
        return replace(self, entry=entry)

    def with_ends(self, ends: Int64s) -> WindowRows:
        return replace(self, ends=ends)


def concat_window_rows(parts: list[WindowRows]) -> WindowRows:
    """The rows of several, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return WindowRows(
        **{each.name: np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(WindowRows)}
    )


#: Neighbours are put together when a window has more panes than this, so that tiny batches do not leave thousands.
MAX_PANES = 16


@dataclass(eq=False)
class AggregatePane:
    """A run of so many rows. Its identity tells whether it is saved already; what it has lost since does not matter."""

    rows: int


def evict_from_panes(panes: list[AggregatePane], gone: Bools) -> list[AggregatePane]:
    """The panes that are left when these rows of the window are gone.

    >>> [pane.rows for pane in evict_from_panes([AggregatePane(2), AggregatePane(1), AggregatePane(2)], np.array([True, False, True, False, False]))]
    [1, 2]
    """
    before = np.concatenate([[0], np.cumsum(~gone)])
    start = 0
    for pane in panes:
        start, end = start + pane.rows, start
        pane.rows = int(before[start] - before[end])
    return [pane for pane in panes if pane.rows]


def merge_to_limit(panes: list[AggregatePane]) -> list[AggregatePane]:
    """The same rows in a bounded number of panes: the two neighbours with the fewest rows become one, as often as is
    needed.
    """
    panes = [pane for pane in panes if pane.rows]
    while len(panes) > MAX_PANES:
        at = min(range(len(panes) - 1), key=lambda place: panes[place].rows + panes[place + 1].rows)
        panes[at : at + 2] = [AggregatePane(panes[at].rows + panes[at + 1].rows)]
    return panes

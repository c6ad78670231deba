"""What a window join returns: row numbers in columns that grow by doubling, and what it cost to find them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import piece

_FIRST_ROOM = 1 << 10


class Counters(NamedTuple):
    """The work done, by (origin, target) or by stream.

    A probe is one look of a (partial) combination into the target's buffer, `touched` are the rows it passes there, and
    of those `comparisons` are the rows whose code was compared. `inserts` are new rows put into a buffer, `expirations`
    rows taken out of one.
    """

    comparisons: NDArray[np.int64]
    probes: NDArray[np.int64]
    touched: NDArray[np.int64]
    inserts: NDArray[np.int64]
    expirations: NDArray[np.int64]


class WindowJoin(NamedTuple):
    """`rows[s, m]` is the row of stream s in result m, numbered from the start of the stream; `rows[s]` is contiguous.

    The array may be a view of one with room for more: copying it would touch as much memory again as the results take.
    """

    rows: NDArray[np.int32]
    counters: Counters


@piece
def no_work(streams: int) -> Counters:
    return Counters(
        np.zeros((streams, streams), np.int64),
        np.zeros((streams, streams), np.int64),
        np.zeros((streams, streams), np.int64),
        np.zeros(streams, np.int64),
        np.zeros(streams, np.int64),
    )


@piece
def no_rows(streams: int) -> NDArray[np.int32]:
    return np.empty((streams, _FIRST_ROOM), np.int32)


@piece
def with_room(rows: NDArray[np.int32], count: int, more: int) -> NDArray[np.int32]:
    """Columns with room for `more` results after the first `count`.

    Doubling keeps the copying to a constant share; asking once per scan keeps the check out of the innermost loop.
    """
    if count + more <= rows.shape[1]:
        return rows
    grown = np.empty((rows.shape[0], max(2 * rows.shape[1], count + more)), np.int32)
    for stream in range(rows.shape[0]):
        for result in range(count):
            grown[stream, result] = rows[stream, result]
    return grown


@piece
def fill_others(rows: NDArray[np.int32], first: int, stop: int, target: int, chosen: NDArray[np.int32]) -> None:
    """Completes the results `first … stop - 1`, which so far have only the target's row, with the rows chosen from the
    other streams.
    """
    for stream in range(rows.shape[0]):
        if stream != target:
            row = chosen[stream]
            for result in range(first, stop):
                rows[stream, result] = row


@piece
def compared_all_touched(counters: Counters) -> None:
    """For algorithms that compare the code first and check the window last."""
    for origin in range(counters.touched.shape[0]):
        for target in range(counters.touched.shape[1]):
            counters.comparisons[origin, target] = counters.touched[origin, target]


@piece
def finished(rows: NDArray[np.int32], count: int, counters: Counters) -> WindowJoin:
    return WindowJoin(rows[:, :count], counters)

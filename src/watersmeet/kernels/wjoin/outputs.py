"""Results of a window join: their definition, row numbers in growing columns, work counters, and recorded scans.

Instead of doing its scans, a join can record them. The rows that buffers hold when a row arrives depend on arrivals
alone, not on matches. So a kernel can write down, per arriving row, the streams in the order of its loops and the range
of each that it scans. The loops can run later, one depth at a time, with predicates tested in between (`extend`).
"""

from __future__ import annotations

from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from watersmeet.kernels.compile import subroutine

_FIRST_ROOM = 1 << 10


class WindowJoinCounters(NamedTuple):
    """Work done, by (origin, target) or by stream.

    A probe is one look of a (partial) combination into the target's buffer. `touched` are the rows it passes there, and
    `comparisons` those of them whose code was compared. `inserts` are new rows added to a buffer, `expirations` rows
    removed from one.
    """

    comparisons: NDArray[np.int64]
    probes: NDArray[np.int64]
    touched: NDArray[np.int64]
    inserts: NDArray[np.int64]
    expirations: NDArray[np.int64]


class WindowJoinResult(NamedTuple):
    """Matches and counters: `rows[s, m]` is the row of stream s in result m, numbered from the start of the stream.

    `rows[s]` is contiguous. The array may be a view of a larger one. A copy would touch as much memory again as the
    results take.
    """

    rows: NDArray[np.int32]
    counters: WindowJoinCounters


@subroutine
def new_counters(streams: int) -> WindowJoinCounters:
    return WindowJoinCounters(
        np.zeros((streams, streams), np.int64),
        np.zeros((streams, streams), np.int64),
        np.zeros((streams, streams), np.int64),
        np.zeros(streams, np.int64),
        np.zeros(streams, np.int64),
    )


@subroutine
def new_columns(streams: int) -> NDArray[np.int32]:
    return np.empty((streams, _FIRST_ROOM), np.int32)


@subroutine
def reserve_columns(rows: NDArray[np.int32], count: int, more: int) -> NDArray[np.int32]:
    """Return columns with room for `more` results after the first `count`.

    Doubling limits the copying to a constant share. One call per scan keeps the check out of the innermost loop.
    """
    if count + more <= rows.shape[1]:
        return rows
    grown = np.empty((rows.shape[0], max(2 * rows.shape[1], count + more)), np.int32)
    for stream in range(rows.shape[0]):
        for result in range(count):
            grown[stream, result] = rows[stream, result]
    return grown


@subroutine
def fill_other_columns(rows: NDArray[np.int32], first: int, stop: int, target: int, chosen: NDArray[np.int32]) -> None:
    """Complete the results `first … stop - 1` with the rows chosen from other streams.

    So far they have only the target's row.
    """
    for stream in range(rows.shape[0]):
        if stream != target:
            row = chosen[stream]
            for result in range(first, stop):
                rows[stream, result] = row


@subroutine
def count_touched_as_compared(counters: WindowJoinCounters) -> None:
    """Count every touched row as compared, for algorithms that compare codes first and check windows last."""
    for origin in range(counters.touched.shape[0]):
        for target in range(counters.touched.shape[1]):
            counters.comparisons[origin, target] = counters.touched[origin, target]


@subroutine
def build_result(rows: NDArray[np.int32], count: int, counters: WindowJoinCounters) -> WindowJoinResult:
    return WindowJoinResult(rows[:, :count], counters)


def window_join_definition(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
) -> list[tuple[int, ...]]:
    """Return the combinations of one row per stream with equal codes, within reach of each other, and not all old.

    Two rows of streams s and r may be `min(window_us, reach_us[s], reach_us[r])` apart. With one window for all pairs
    this means `max ts - min ts <= window_us`. Rows are numbered from the start of their own stream.

    >>> times, codes = np.array([0, 50, 10, 60]), np.array([7, 7, 7, 7])
    >>> window_join_definition(times, codes, np.array([0, 2, 4]), np.array([1, 1]), 10, np.array([10, 10]))
    [(1, 1)]

    References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), sections 3 and
    5.1.
    """
    apart = {
        pair: min(window_us, int(reach_us[pair[0]]), int(reach_us[pair[1]]))
        for pair in combinations(range(old.size), 2)
    }
    streams = [range(int(size)) for size in np.diff(offsets)]
    start, before = offsets.tolist(), old.tolist()
    time, code = times.tolist(), codes.tolist()
    combinations_found = []
    for rows in product(*streams):
        places = [start[s] + row for s, row in enumerate(rows)]
        same = len({code[place] for place in places}) == 1
        fresh = any(row >= before[s] for s, row in enumerate(rows))
        if same and fresh and all(abs(time[places[s]] - time[places[r]]) <= most for (s, r), most in apart.items()):
            combinations_found.append(rows)
    return combinations_found


class RecordedScans(NamedTuple):
    """Recorded rows: stream and number of each, the streams of its loops, and the scanned range of each stream.

    `fresh_by` is the last loop that has new rows where the row itself is an old one (MW-join). `used[0]` rows are
    recorded. Without room nothing is recorded, and the join runs directly.
    """

    origin: NDArray[np.int32]
    row: NDArray[np.int32]
    fresh_by: NDArray[np.int32]
    loops: NDArray[np.int32]  # 2-D: [recorded row, depth]
    start: NDArray[np.int32]  # 2-D: [recorded row, stream]
    stop: NDArray[np.int32]  # 2-D
    used: NDArray[np.int64]


_INT32S = types.Array(types.int32, 1, "C")
_INT32S_2D = types.Array(types.int32, 2, "C")
SCANS = types.BaseTuple.from_types([*[_INT32S] * 3, *[_INT32S_2D] * 3, types.Array(types.int64, 1, "C")], RecordedScans)  # type: ignore[no-untyped-call]


class ScannedRows(NamedTuple):
    """Rows as the scans number them, and the work that does not depend on matches: insertions and expirations."""

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    numbers: NDArray[np.int64]
    counters: WindowJoinCounters


@subroutine
def empty_scans(streams: int) -> RecordedScans:
    no_int32s, no_int32s_2d = np.empty(0, np.int32), np.empty((0, streams), np.int32)
    return RecordedScans(
        no_int32s, no_int32s, no_int32s, no_int32s_2d, no_int32s_2d, no_int32s_2d, np.zeros(1, np.int64)
    )


def allocate_scans(rows: int, streams: int) -> RecordedScans:
    """Allocate room for this many recorded rows. The caller of a kernel calls it, so it is not compiled."""
    origin, row, fresh_by = (np.empty(rows, np.int32) for _ in range(3))
    loops, start, stop = (np.empty((rows, streams), np.int32) for _ in range(3))
    return RecordedScans(origin, row, fresh_by, loops, start, stop, np.zeros(1, np.int64))

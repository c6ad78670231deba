"""MW-join's plane sweep: each stream's rows in one order of time, old and new alike, and the stretch of it that is in
the join buffer.

The sweep goes by (time, stream, place). Because old rows take part in it where their times put them, a buffer never
holds a row later than the one being admitted, even when rows of earlier calls are later than those of this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import piece
from watersmeet.kernels.wjoin.buffers import FIRST_US, LAST_US, after, before


class Sweep(NamedTuple):
    """Stream s holds the places `head[s] … tail[s] - 1` in its buffer; those up to `stop[s]` are still to come.

    `fresh` is the last place of a new row admitted, by stream.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int32]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    stop: NDArray[np.int64]
    fresh: NDArray[np.int64]


@piece
def sweep_of(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    reach: NDArray[np.int64],
) -> Sweep:
    """The sweep at the first new row: what no new row reaches is left out, and what comes before all of them is in the
    buffers already.

    A combination of rows that all come before the first new row has nothing new in it, so there is nothing to join up
    to there.
    """
    rows = np.empty(times.size, np.int32)
    first_us, last_us = LAST_US, FIRST_US
    for stream in range(old.size):
        start, middle, stop = offsets[stream], offsets[stream] + old[stream], offsets[stream + 1]
        _merge(times, start, middle, stop, rows)
        if middle < stop:
            first_us, last_us = min(first_us, times[middle]), max(last_us, times[stop - 1])
    sorted_times, sorted_codes = np.empty(times.size, np.int64), np.empty(times.size, np.int64)
    for stream in range(old.size):
        start = offsets[stream]
        for at in range(start, offsets[stream + 1]):
            sorted_times[at], sorted_codes[at] = times[start + rows[at]], codes[start + rows[at]]
    head, tail, stop = np.empty(old.size, np.int64), np.empty(old.size, np.int64), np.empty(old.size, np.int64)
    for stream in range(old.size):
        start, end = offsets[stream], offsets[stream + 1]
        head[stream] = first_at_least(sorted_times, start, end, before(first_us, reach[stream]))
        tail[stream] = first_at_least(sorted_times, head[stream], end, first_us)
        reached_us = after(last_us, reach[stream])
        stop[stream] = end if reached_us == LAST_US else first_at_least(sorted_times, tail[stream], end, reached_us + 1)
    return Sweep(sorted_times, sorted_codes, rows, head, tail, stop, np.full(old.size, -1))


@piece
def _merge(times: NDArray[np.int64], start: int, middle: int, stop: int, rows: NDArray[np.int32]) -> None:
    """Writes the row numbers of one stream in order of time, old rows first among equals."""
    left, right = start, middle
    for at in range(start, stop):
        if left < middle and (right == stop or times[left] <= times[right]):
            rows[at] = np.int32(left - start)
            left += 1
        else:
            rows[at] = np.int32(right - start)
            right += 1


@piece
def first_at_least(times: NDArray[np.int64], start: int, stop: int, bound_us: int) -> int:
    """The first place of a sorted stretch that is not before the bound."""
    while start < stop:
        middle = (start + stop) >> 1
        if times[middle] < bound_us:
            start = middle + 1
        else:
            stop = middle
    return start

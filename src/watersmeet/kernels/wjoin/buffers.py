"""State of a window join: the windows of pairs, the new rows in arrival order, and the streams' buffers.

The law of arrivals: new rows arrive by (time, stream, row number), after all old rows. Each joins the rows that arrived
before it. So a combination is emitted when its last row arrives, and only then. Equal times, or old rows later than new
ones, cannot repeat it.

The buffers are hash tables whose buckets hold rows in arrival order. A list is a table of one bucket. A bucket is a
range of one array, with room for the new rows behind it. Inserting moves the end of the range, expiring moves its
front, and a scan walks memory forwards. The caller keeps the buffers between calls (`kernels.buckets`). Rows that
expire in a call may still match rows of a later call. The caller then passes a copy of the fronts, so that they return.

Sums of times and windows saturate at the ends of int64 instead of wrapping.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from watersmeet.kernels.compile import subroutine

FIRST_US = np.int64(-(2**63))
LAST_US = np.int64(2**63 - 1)


@subroutine
def check_windows(streams: int, later_by_us: NDArray[np.int64]) -> None:
    """Refuse arguments that no caller may pass."""
    if streams < 2 or later_by_us.shape[0] != streams or later_by_us.shape[1] != streams:
        raise ValueError("a window join takes two or more streams, and a window for every two of them")
    for stream in range(streams):
        for other in range(streams):
            if later_by_us[stream, other] < 0:
                raise ValueError("a window cannot be shorter than zero")


@subroutine
def earliest_within(time_us: int, reach_us: int) -> int:
    """Return the earliest time within reach.

    It compares before subtracting, because the compiler assumes that a difference never wraps.
    """
    return FIRST_US if time_us < FIRST_US + reach_us else time_us - reach_us  # type: ignore[return-value] # numba's int


@subroutine
def latest_within(time_us: int, reach_us: int) -> int:
    """Return the latest time within reach."""
    return LAST_US if time_us > LAST_US - reach_us else time_us + reach_us  # type: ignore[return-value] # numba's int


NONE = -1


class PendingArrivals(NamedTuple):
    """New rows still to come, per stream.

    Each stream has its next new row, the end of its rows, a time before which none of the rows to come can be, and
    whether any are to come.
    """

    next_row: NDArray[np.int64]
    stop: NDArray[np.int64]
    last_us: NDArray[np.int64]
    to_come: NDArray[np.bool_]


@subroutine
def start_arrivals(times: NDArray[np.int64], first_new: NDArray[np.int64], stop: NDArray[np.int64]) -> PendingArrivals:
    n = first_new.size
    arrivals = PendingArrivals(first_new.copy(), stop.copy(), np.zeros(n, np.int64), np.empty(n, np.bool_))
    first = find_next_stream(times, arrivals)
    for stream in range(n):
        finish_arrival(arrivals, stream)
        if first != NONE:
            arrivals.last_us[stream] = times[arrivals.next_row[first]]
    return arrivals


@subroutine
def find_next_stream(times: NDArray[np.int64], arrivals: PendingArrivals) -> int:
    """Return the stream whose new row arrives next, or NONE."""
    chosen, chosen_us = NONE, LAST_US
    for stream in range(arrivals.next_row.size):
        row = arrivals.next_row[stream]
        if row < arrivals.stop[stream] and (chosen == NONE or times[row] < chosen_us):
            chosen, chosen_us = stream, times[row]
    return chosen


@subroutine
def take_arrival(times: NDArray[np.int64], arrivals: PendingArrivals, stream: int) -> int:
    """Take the stream's next row: the paper's "update V"."""
    row: int = arrivals.next_row[stream]
    arrivals.next_row[stream] = row + 1
    arrivals.last_us[stream] = times[row]
    return row


@subroutine
def finish_arrival(arrivals: PendingArrivals, stream: int) -> None:
    """Note whether the stream has rows to come.

    A stream whose last new row has been joined no longer holds back the buffers of the others in this call.
    """
    arrivals.to_come[stream] = arrivals.next_row[stream] < arrivals.stop[stream]


@subroutine
def expiry_bound_us(arrivals: PendingArrivals, later_by_us: NDArray[np.int64], stream: int) -> int:
    """Return the time before which rows of the stream can expire: the paper's IsOut as a bound.

    The last row of every other stream is too late for rows before it.
    """
    bound_us = LAST_US
    for other in range(arrivals.to_come.size):
        if other != stream and arrivals.to_come[other]:
            bound_us = min(bound_us, earliest_within(arrivals.last_us[other], later_by_us[stream, other]))
    return bound_us  # type: ignore[return-value] # numba's int


class Buffers(NamedTuple):
    """Hash tables of all streams.

    Bucket b of stream s has the number `first_bucket[s] + b` and holds the places `front … filled - 1`.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]
    front: NDArray[np.int64]
    filled: NDArray[np.int64]
    first_bucket: NDArray[np.int64]


BUFFERS = types.BaseTuple.from_types([types.Array(types.int64, 1, "C")] * 6, Buffers)  # type: ignore[no-untyped-call]


@subroutine
def place_arrival(buffers: Buffers, bucket: int, time_us: int, code: int, number: int) -> int:
    """Write an arriving row behind the rows of its bucket, and return its place. It is not part of the bucket yet."""
    place: int = buffers.filled[bucket]
    buffers.times[place], buffers.codes[place], buffers.rows[place] = time_us, code, number
    return place


@subroutine
def find_buckets(buffers: Buffers, code: int, probed: NDArray[np.int64]) -> None:
    """Write, per stream, the number of the bucket that holds the code."""
    for stream in range(probed.size):
        first = buffers.first_bucket[stream]
        probed[stream] = first + code % (buffers.first_bucket[stream + 1] - first)


@subroutine
def expire_bucket(buffers: Buffers, bucket: int, out_before_us: int) -> int:
    """Remove rows before the bound from the front of a bucket; return how many.

    Rows leave in the order they came. An old row that is later than new ones behind it holds them for a while. That
    does not matter, because rows are tested against the period.
    """
    at = start = buffers.front[bucket]
    while at < buffers.filled[bucket] and buffers.times[at] < out_before_us:
        at += 1
    buffers.front[bucket] = at
    return at - start  # type: ignore[no-any-return] # numba's int


@subroutine
def expire_stream(buffers: Buffers, stream: int, out_before_us: int) -> int:
    """Clean every bucket of a stream; return how many rows expired."""
    expired = 0
    for bucket in range(buffers.first_bucket[stream], buffers.first_bucket[stream + 1]):
        expired += expire_bucket(buffers, bucket, out_before_us)
    return expired

"""State of a window join: the reach of rows, the new rows in arrival order, and the streams' buffers.

The law of arrivals: new rows arrive by (time, stream, row number), after all old rows. Each joins the rows that arrived
before it. So a combination is emitted when its last row arrives, and only then. Equal times, or old rows later than new
ones, cannot repeat it.

The buffers are hash tables whose buckets hold rows in arrival order. A list is a table of one bucket. All rows of a
call are known when it starts, so every bucket is a range of one array from the beginning. Inserting moves the end of
the range, expiring moves its front, and a scan walks memory forwards.

Sums of times and windows saturate at the ends of int64 instead of wrapping.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import subroutine
from watersmeet.kernels.hashing import mix_bits

FIRST_US = np.int64(-(2**63))
LAST_US = np.int64(2**63 - 1)


@subroutine
def cap_reach(
    offsets: NDArray[np.int64], old: NDArray[np.int64], window_us: int, reach_us: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how far the rows of each stream reach: its own window, at most the window of all pairs.

    It refuses arguments that no caller may pass.
    """
    if old.size < 2 or reach_us.size != old.size or offsets.size != old.size + 1:
        raise ValueError(
            "a window join takes two or more streams, with one reach, one count of old rows and one offset each"
        )
    reach = np.empty(old.size, np.int64)
    for stream in range(old.size):
        reach[stream] = min(window_us, reach_us[stream])
        if reach[stream] < 0:
            raise ValueError("a window cannot be shorter than zero")
    return reach


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
def start_arrivals(times: NDArray[np.int64], offsets: NDArray[np.int64], old: NDArray[np.int64]) -> PendingArrivals:
    n = old.size
    arrivals = PendingArrivals(
        np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.bool_)
    )
    for stream in range(n):
        arrivals.next_row[stream] = offsets[stream] + old[stream]
        arrivals.stop[stream] = offsets[stream + 1]
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
def expiry_bound_us(arrivals: PendingArrivals, reach: NDArray[np.int64], stream: int) -> int:
    """Return the time before which rows of the stream can expire: the paper's IsOut as a bound.

    Rows before it are farther than the stream's reach from the last row of every other stream.
    """
    bound_us = LAST_US
    for other in range(reach.size):
        if other != stream and arrivals.to_come[other]:
            bound_us = min(bound_us, earliest_within(arrivals.last_us[other], reach[stream]))
    return bound_us  # type: ignore[return-value] # numba's int


class Buffers(NamedTuple):
    """Hash tables of all streams.

    Bucket b of stream s has the number `first_bucket[s] + b` and holds the places `front … filled - 1`.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int32]
    front: NDArray[np.int64]
    filled: NDArray[np.int64]
    first_bucket: NDArray[np.int64]


@subroutine
def build_buffers(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    buckets: NDArray[np.int64],
) -> Buffers:
    """Build buffers that hold the old rows and have places for the new ones.

    It is a counting sort, which is stable, so buckets keep the order of arrival.
    """
    first_bucket = _first_buckets(old, buckets)
    bucket_of = np.empty(times.size, np.int64)
    size, held = np.zeros(first_bucket[-1], np.int64), np.zeros(first_bucket[-1], np.int64)
    for stream in range(old.size):
        for row in range(offsets[stream], offsets[stream + 1]):
            bucket = first_bucket[stream] + bucket_number(mix_bits(codes[row]), buckets[stream])
            bucket_of[row] = bucket
            size[bucket] += 1
            if row - offsets[stream] < old[stream]:
                held[bucket] += 1
    front, filled = np.zeros(size.size, np.int64), held
    for bucket in range(1, size.size):
        front[bucket] = front[bucket - 1] + size[bucket - 1]
        filled[bucket] += front[bucket]
    place = front.copy()
    sorted_times, sorted_codes, rows = (
        np.empty(times.size, np.int64),
        np.empty(times.size, np.int64),
        np.empty(times.size, np.int32),
    )
    for stream in range(old.size):
        for row in range(offsets[stream], offsets[stream + 1]):
            at = place[bucket_of[row]]
            place[bucket_of[row]] += 1
            sorted_times[at], sorted_codes[at], rows[at] = times[row], codes[row], np.int32(row - offsets[stream])
    return Buffers(sorted_times, sorted_codes, rows, front, filled, first_bucket)


@subroutine
def _first_buckets(old: NDArray[np.int64], buckets: NDArray[np.int64]) -> NDArray[np.int64]:
    if buckets.size != old.size:
        raise ValueError("every stream needs its number of buckets")
    first = np.zeros(old.size + 1, np.int64)
    for stream in range(old.size):
        if buckets[stream] < 1:
            raise ValueError("a hash table needs a bucket")
        first[stream + 1] = first[stream] + buckets[stream]
    return first


@subroutine
def bucket_number(bits: np.uint64, buckets: int) -> int:
    """Return the bucket of a mixed code: its leading bits, scaled."""
    return np.int64((bits >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32))  # type: ignore[return-value] # numba's int


@subroutine
def find_buckets(buffers: Buffers, code: int, probed: NDArray[np.int64]) -> None:
    """Write, per stream, the number of the bucket that holds the code."""
    bits = mix_bits(code)
    for stream in range(probed.size):
        first = buffers.first_bucket[stream]
        probed[stream] = first + bucket_number(bits, buffers.first_bucket[stream + 1] - first)


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

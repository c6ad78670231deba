"""The streams' buffers: hash tables whose buckets hold rows in arrival order. A list is a table of one bucket.

All rows a call can ever see are known when it starts, so every bucket is a stretch of one array from the beginning:
inserting moves the stretch's end, expiring moves its front, and a scan walks memory forwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import piece
from watersmeet.kernels.hashing import mix


class Buffers(NamedTuple):
    """Bucket b of stream s has the number `first_bucket[s] + b` and holds the places `front … filled - 1`."""

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int32]
    front: NDArray[np.int64]
    filled: NDArray[np.int64]
    first_bucket: NDArray[np.int64]


@piece
def buffers_of(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    buckets: NDArray[np.int64],
) -> Buffers:
    """Buffers that hold the old rows and have places for the new ones. A counting sort: stable, so buckets keep the
    order of arrival.
    """
    first_bucket = _first_buckets(old, buckets)
    bucket_of = np.empty(times.size, np.int64)
    size, held = np.zeros(first_bucket[-1], np.int64), np.zeros(first_bucket[-1], np.int64)
    for stream in range(old.size):
        for row in range(offsets[stream], offsets[stream + 1]):
            bucket = first_bucket[stream] + bucket_number(mix(codes[row]), buckets[stream])
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


@piece
def _first_buckets(old: NDArray[np.int64], buckets: NDArray[np.int64]) -> NDArray[np.int64]:
    if buckets.size != old.size:
        raise ValueError("every stream needs its number of buckets")
    first = np.zeros(old.size + 1, np.int64)
    for stream in range(old.size):
        if buckets[stream] < 1:
            raise ValueError("a hash table needs a bucket")
        first[stream + 1] = first[stream] + buckets[stream]
    return first


@piece
def bucket_number(bits: np.uint64, buckets: int) -> int:
    """Which of a table's buckets a mixed code falls into: its leading bits, scaled."""
    return np.int64((bits >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32))  # type: ignore[return-value] # numba's int


@piece
def probed_buckets(buffers: Buffers, code: int, probed: NDArray[np.int64]) -> None:
    """Writes, per stream, the number of the bucket that holds the code."""
    bits = mix(code)
    for stream in range(probed.size):
        first = buffers.first_bucket[stream]
        probed[stream] = first + bucket_number(bits, buffers.first_bucket[stream + 1] - first)


@piece
def expire(buffers: Buffers, bucket: int, out_before_us: int) -> int:
    """Takes rows before the bound off the front of a bucket; returns how many.

    Rows leave in the order they came. An old row that is later than new ones behind it holds them for a while; the test
    against the period keeps that from mattering.
    """
    at = start = buffers.front[bucket]
    while at < buffers.filled[bucket] and buffers.times[at] < out_before_us:
        at += 1
    buffers.front[bucket] = at
    return at - start  # type: ignore[no-any-return] # numba's int


@piece
def expire_all(buffers: Buffers, stream: int, out_before_us: int) -> int:
    """Cleans every bucket of a stream; returns how many rows left."""
    expired = 0
    for bucket in range(buffers.first_bucket[stream], buffers.first_bucket[stream + 1]):
        expired += expire(buffers, bucket, out_before_us)
    return expired

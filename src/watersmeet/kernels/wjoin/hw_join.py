"""HW-join: each new row probes a hash table per stream, bucket by bucket, with the loops of NLW-join inside.

A probe cleans the bucket it visits, by NLW-join's rule. Rarely probed buckets would keep their old rows. So a clock
hand moves round each table, one bucket per probe, and cleans the buckets that were not probed since its last visit. It
skips probed buckets. The whole table is never scanned at once.

The paper leaves open how rarely probed buckets are found; the hand is ours. It needs one number per bucket and constant
time per row. NLW-join's notes on intermediate results, on the order of arrival and on the meaning of "last row" apply
here as well.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), section 3.1.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, IN_INT64_2D, kernel, subroutine
from watersmeet.kernels.wjoin.buffers import (
    BUFFERS,
    NONE,
    Buffers,
    check_windows,
    expire_bucket,
    expiry_bound_us,
    find_buckets,
    find_next_stream,
    finish_arrival,
    place_arrival,
    start_arrivals,
    take_arrival,
)
from watersmeet.kernels.wjoin.nested_scan import join_arrival, new_nested_scan
from watersmeet.kernels.wjoin.outputs import (
    SCANS,
    RecordedScans,
    ScannedRows,
    WindowJoinCounters,
    WindowJoinResult,
    build_result,
    empty_scans,
    new_columns,
    new_counters,
)


@kernel(*[IN_INT64] * 5, *[IN_INT64_2D] * 2, BUFFERS)
def hw_join(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first_new: NDArray[np.int64],
    stop: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    loops: NDArray[np.int64],
    buffers: Buffers,
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, found by a hash table per stream.

    The arguments are those of NLW-join.
    """
    rows, count, counters = _run(
        times, codes, offsets, first_new, stop, later_by_us, loops, buffers, empty_scans(first_new.size)
    )
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(*[IN_INT64] * 5, *[IN_INT64_2D] * 2, BUFFERS, SCANS)
def hw_scans(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first_new: NDArray[np.int64],
    stop: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    loops: NDArray[np.int64],
    buffers: Buffers,
    scans: RecordedScans,
) -> ScannedRows:
    """Record the scans of `hw_join` without doing them."""
    _, _, counters = _run(times, codes, offsets, first_new, stop, later_by_us, loops, buffers, scans)
    return ScannedRows(buffers.times, buffers.codes, buffers.rows, counters)


@subroutine
def _run(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first_new: NDArray[np.int64],
    stop: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    loops: NDArray[np.int64],
    buffers: Buffers,
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], np.int64, WindowJoinCounters]:
    n = first_new.size
    check_windows(n, later_by_us)
    arrivals = start_arrivals(times, first_new, stop)
    scan = new_nested_scan(later_by_us, loops, np.int64(0))
    counters, rows, count = new_counters(n), new_columns(n), np.int64(0)
    hand = buffers.first_bucket[:-1].copy()
    turn, probed_at = np.zeros(n, np.int64), np.zeros(buffers.front.size, np.int64)
    origin = find_next_stream(times, arrivals)
    while origin != NONE:
        row = take_arrival(times, arrivals, origin)
        find_buckets(buffers, codes[row], scan.buckets)
        for stream in range(n):
            if stream != origin:
                out_us = expiry_bound_us(arrivals, later_by_us, stream)
                bucket = scan.buckets[stream]
                turn[stream] += 1
                probed_at[bucket] = turn[stream]
                counters.expirations[stream] += expire_bucket(buffers, bucket, out_us)
                size = buffers.first_bucket[stream + 1] - buffers.first_bucket[stream]
                if probed_at[hand[stream]] <= turn[stream] - size:
                    counters.expirations[stream] += expire_bucket(buffers, hand[stream], out_us)
                hand[stream] += 1
                if hand[stream] == buffers.first_bucket[stream + 1]:
                    hand[stream] = buffers.first_bucket[stream]
        bucket = scan.buckets[origin]
        place = place_arrival(buffers, bucket, times[row], codes[row], row - offsets[origin])
        rows, count = join_arrival(buffers, scan, origin, place, counters, rows, count, scans)
        buffers.filled[bucket] += 1
        counters.inserts[origin] += 1
        finish_arrival(arrivals, origin)
        origin = find_next_stream(times, arrivals)
    return rows, count, counters

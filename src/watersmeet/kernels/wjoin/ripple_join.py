"""Ripple join and XJoin, adapted as the paper's baselines: joins that know no windows.

Each new row joins every row that the other buffers hold, inside the window or not. The windows are checked on complete
combinations. After every `clean_up_every` new rows, the buffers drop the rows that NLW-join would have dropped by then.

XJoin is ripple join with a hash table per stream: a new row is compared only with the rows of the buckets it visits.
The buffers are in memory, so XJoin's later stages, which join rows spilled to disk, have nothing to do.

The clean-up interval counts from the start of the call; the old rows come on top. A caller that drops its old rows
after each call cleans up that often as well.

References: Haas, Hellerstein, "Ripple Joins for Online Aggregation" (1999). Urhan, Franklin, "XJoin: A
Reactively-Scheduled Pipelined Join Operator" (2000). Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with
Window Constraints" (2002), section 4.3, figures 7 and 8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, IN_INT64_2D, INT, kernel, subroutine
from watersmeet.kernels.wjoin.buffers import (
    BUFFERS,
    NONE,
    Buffers,
    check_windows,
    expire_stream,
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
    count_touched_as_compared,
    empty_scans,
    new_columns,
    new_counters,
)


@kernel(*[IN_INT64] * 5, *[IN_INT64_2D] * 2, BUFFERS, INT)
def ripple_join(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first_new: NDArray[np.int64],
    stop: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    loops: NDArray[np.int64],
    buffers: Buffers,
    clean_up_every: int,
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, by nested loops over the rows since the last clean-up.

    With hash tables as buffers it is XJoin. The other arguments are as in NLW-join.
    """
    rows, count, counters = _run(
        times, codes, offsets, first_new, stop, later_by_us, loops, buffers, clean_up_every, empty_scans(first_new.size)
    )
    count_touched_as_compared(counters)
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(*[IN_INT64] * 5, *[IN_INT64_2D] * 2, BUFFERS, INT, SCANS)
def ripple_scans(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first_new: NDArray[np.int64],
    stop: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    loops: NDArray[np.int64],
    buffers: Buffers,
    clean_up_every: int,
    scans: RecordedScans,
) -> ScannedRows:
    """Record the scans of `ripple_join` without doing them."""
    _, _, counters = _run(times, codes, offsets, first_new, stop, later_by_us, loops, buffers, clean_up_every, scans)
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
    clean_up_every: int,
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], np.int64, WindowJoinCounters]:
    n = first_new.size
    check_windows(n, later_by_us)
    arrivals = start_arrivals(times, first_new, stop)
    scan = new_nested_scan(later_by_us, loops, n - 2)
    counters, rows, count = new_counters(n), new_columns(n), np.int64(0)
    until_clean_up = clean_up_every
    origin = find_next_stream(times, arrivals)
    while origin != NONE:
        row = take_arrival(times, arrivals, origin)
        find_buckets(buffers, codes[row], scan.buckets)
        bucket = scan.buckets[origin]
        place = place_arrival(buffers, bucket, times[row], codes[row], row - offsets[origin])
        rows, count = join_arrival(buffers, scan, origin, place, counters, rows, count, scans)
        buffers.filled[bucket] += 1
        counters.inserts[origin] += 1
        finish_arrival(arrivals, origin)
        until_clean_up -= 1
        if until_clean_up <= 0:
            until_clean_up = clean_up_every
            for stream in range(n):
                bound_us = expiry_bound_us(arrivals, later_by_us, stream)
                counters.expirations[stream] += expire_stream(buffers, stream, bound_us)
        origin = find_next_stream(times, arrivals)
    return rows, count, counters

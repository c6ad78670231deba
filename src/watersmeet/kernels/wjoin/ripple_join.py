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

from watersmeet.kernels.compile import IN_INT64, INT, kernel, subroutine
from watersmeet.kernels.wjoin.buffers import (
    NONE,
    Buffers,
    build_buffers,
    cap_reach,
    expire_stream,
    expiry_bound_us,
    find_buckets,
    find_next_stream,
    finish_arrival,
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

#: New rows between two clean-ups, as in the paper's experiments.
CLEAN_UP_EVERY = 10_000


@kernel(*[IN_INT64] * 4, INT, IN_INT64, INT)
def ripple_join(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    clean_up_every: int,
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, by nested loops over the rows since the last clean-up."""
    rows, count, counters, _ = _run(
        times,
        codes,
        offsets,
        old,
        window_us,
        reach_us,
        np.ones(old.size, np.int64),
        clean_up_every,
        empty_scans(old.size),
    )
    count_touched_as_compared(counters)
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(*[IN_INT64] * 4, INT, IN_INT64, INT, SCANS)
def ripple_scans(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    clean_up_every: int,
    scans: RecordedScans,
) -> ScannedRows:
    """Record the scans of `ripple_join` without doing them."""
    _, _, counters, buffers = _run(
        times, codes, offsets, old, window_us, reach_us, np.ones(old.size, np.int64), clean_up_every, scans
    )
    return ScannedRows(buffers.times, buffers.codes, buffers.rows, counters)


@kernel(*[IN_INT64] * 4, INT, *[IN_INT64] * 2, INT)
def xjoin(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    buckets: NDArray[np.int64],
    clean_up_every: int,
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, found by hash tables of the rows since the last clean-up."""
    rows, count, counters, _ = _run(
        times, codes, offsets, old, window_us, reach_us, buckets, clean_up_every, empty_scans(old.size)
    )
    count_touched_as_compared(counters)
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(*[IN_INT64] * 4, INT, *[IN_INT64] * 2, INT, SCANS)
def xjoin_scans(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    buckets: NDArray[np.int64],
    clean_up_every: int,
    scans: RecordedScans,
) -> ScannedRows:
    """Record the scans of `xjoin` without doing them."""
    _, _, counters, buffers = _run(times, codes, offsets, old, window_us, reach_us, buckets, clean_up_every, scans)
    return ScannedRows(buffers.times, buffers.codes, buffers.rows, counters)


@subroutine
def _run(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    buckets: NDArray[np.int64],
    clean_up_every: int,
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], np.int64, WindowJoinCounters, Buffers]:
    n = old.size
    reach = cap_reach(offsets, old, window_us, reach_us)
    buffers = build_buffers(times, codes, offsets, old, buckets)
    arrivals = start_arrivals(times, offsets, old)
    scan = new_nested_scan(reach, n - 2)
    counters, rows, count = new_counters(n), new_columns(n), np.int64(0)
    until_clean_up = clean_up_every
    origin = find_next_stream(times, arrivals)
    while origin != NONE:
        row = take_arrival(times, arrivals, origin)
        find_buckets(buffers, codes[row], scan.buckets)
        bucket = scan.buckets[origin]
        rows, count = join_arrival(buffers, scan, origin, buffers.filled[bucket], counters, rows, count, scans)
        buffers.filled[bucket] += 1
        counters.inserts[origin] += 1
        finish_arrival(arrivals, origin)
        until_clean_up -= 1
        if until_clean_up <= 0:
            until_clean_up = clean_up_every
            for stream in range(n):
                counters.expirations[stream] += expire_stream(buffers, stream, expiry_bound_us(arrivals, reach, stream))
        origin = find_next_stream(times, arrivals)
    return rows, count, counters, buffers

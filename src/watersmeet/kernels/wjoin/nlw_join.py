"""NLW-join: each new row runs nested loops over the other streams' buffers.

A row leaves its buffer once it is farther than the window from the last row of *every* other stream. So a slow stream
keeps rows in all buffers, and the faster streams pass over them again and again. This is the paper's rule, and the
baseline of MW-join. A stream with no new rows left in the call holds nothing back.

This goes beyond the paper:

- The paper pipelines two-way joins and stores their results. Here the loops run depth first over the base buffers, as
  in the paper's figure 2, and no intermediate results are stored.
- The paper takes its streams in turn, one row each. Here new rows come in order of time, and streams take turns only
  among equal times.
- The paper's removal assumes that a stream never steps back in time. "Last row" therefore means the last *new* row: old
  rows may be later than it.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), section 3.1.1 and
figure 5.
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
    expire_bucket,
    expiry_bound_us,
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
    empty_scans,
    new_columns,
    new_counters,
)


@kernel(*[IN_INT64] * 4, INT, IN_INT64)
def nlw_join(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, found by nested loops."""
    rows, count, counters, _ = _run(times, codes, offsets, old, window_us, reach_us, empty_scans(old.size))
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(*[IN_INT64] * 4, INT, IN_INT64, SCANS)
def nlw_scans(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    scans: RecordedScans,
) -> ScannedRows:
    """Record the scans of `nlw_join` without doing them."""
    _, _, counters, buffers = _run(times, codes, offsets, old, window_us, reach_us, scans)
    return ScannedRows(buffers.times, buffers.codes, buffers.rows, counters)


@subroutine
def _run(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], np.int64, WindowJoinCounters, Buffers]:
    n = old.size
    reach = cap_reach(offsets, old, window_us, reach_us)
    buffers = build_buffers(times, codes, offsets, old, np.ones(n, np.int64))
    arrivals = start_arrivals(times, offsets, old)
    scan = new_nested_scan(reach, np.int64(0))
    counters, rows, count = new_counters(n), new_columns(n), np.int64(0)
    origin = find_next_stream(times, arrivals)
    while origin != NONE:
        take_arrival(times, arrivals, origin)
        for stream in range(n):
            if stream != origin:
                counters.expirations[stream] += expire_bucket(buffers, stream, expiry_bound_us(arrivals, reach, stream))
        rows, count = join_arrival(buffers, scan, origin, buffers.filled[origin], counters, rows, count, scans)
        buffers.filled[origin] += 1
        counters.inserts[origin] += 1
        finish_arrival(arrivals, origin)
        origin = find_next_stream(times, arrivals)
    return rows, count, counters, buffers

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

from watersmeet.kernels.compile import IN_INT64, IN_INT64_2D, kernel, subroutine
from watersmeet.kernels.wjoin.buffers import (
    BUFFERS,
    NONE,
    Buffers,
    check_windows,
    expire_bucket,
    expiry_bound_us,
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
def nlw_join(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    first_new: NDArray[np.int64],
    stop: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    loops: NDArray[np.int64],
    buffers: Buffers,
) -> WindowJoinResult:
    """Return the combinations of `window_join_definition`, found by nested loops.

    The new rows of stream s are `first_new[s] … stop[s] - 1`. They become part of its buffer. `loops[s]` is the order
    of the streams for a new row of s.
    """
    rows, count, counters = _run(
        times, codes, offsets, first_new, stop, later_by_us, loops, buffers, empty_scans(first_new.size)
    )
    return build_result(rows, count, counters)  # type: ignore[no-any-return] # numba infers it


@kernel(*[IN_INT64] * 5, *[IN_INT64_2D] * 2, BUFFERS, SCANS)
def nlw_scans(
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
    """Record the scans of `nlw_join` without doing them."""
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
    origin = find_next_stream(times, arrivals)
    while origin != NONE:
        row = take_arrival(times, arrivals, origin)
        for stream in range(n):
            if stream != origin:
                bound_us = expiry_bound_us(arrivals, later_by_us, stream)
                counters.expirations[stream] += expire_bucket(buffers, stream, bound_us)
        place = place_arrival(buffers, origin, times[row], codes[row], row - offsets[origin])
        rows, count = join_arrival(buffers, scan, origin, place, counters, rows, count, scans)
        buffers.filled[origin] += 1
        counters.inserts[origin] += 1
        finish_arrival(arrivals, origin)
        origin = find_next_stream(times, arrivals)
    return rows, count, counters

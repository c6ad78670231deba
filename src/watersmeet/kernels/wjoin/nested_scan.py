"""One new row against the buffers of the other streams: nested loops, depth first.

Only the row chosen at each depth is stored. The streams follow the origin in a given order: in a circle (for a row of
C: D, E, A, B), or along a path. The period of the rows chosen so far is the time that all of them reach. With one
window w for all pairs it is `[max ts - w, min ts + w]`. Windows may also have a direction: a row of B at most w after
one of A, and never before it. The period shrinks from depth to depth. NLW-join and HW-join look only at rows inside it.
Ripple join and XJoin know no windows: they join every row they hold, and check the windows on complete combinations.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), section 3.1 and
figure 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import subroutine
from watersmeet.kernels.wjoin.buffers import FIRST_US, LAST_US, Buffers, earliest_within, latest_within
from watersmeet.kernels.wjoin.outputs import RecordedScans, WindowJoinCounters, fill_other_columns, reserve_columns

_START = -1


class NestedScan(NamedTuple):
    """State of the loops.

    By stream: the bucket to scan and the row chosen. By origin: the order of the streams. By position in this order,
    where the origin has position 0: the stream, and the time of the row chosen. `later_by_us[s, r]` is the most by
    which a row of r may be later than one of s. The loop at depth d scans the stream at position d + 1: its progress,
    and the period it looks at. From depth `checked_from` on, it is the period of the rows chosen
    so far; before that, it is all time.
    """

    later_by_us: NDArray[np.int64]
    loops: NDArray[np.int64]
    buckets: NDArray[np.int64]
    chosen: NDArray[np.int32]
    circle: NDArray[np.int64]
    chosen_us: NDArray[np.int64]
    at: NDArray[np.int64]
    from_us: NDArray[np.int64]
    until_us: NDArray[np.int64]
    checked_from: int


@subroutine
def new_nested_scan(later_by_us: NDArray[np.int64], loops: NDArray[np.int64], checked_from: int) -> NestedScan:
    n = later_by_us.shape[0]
    return NestedScan(
        later_by_us,
        loops,
        np.arange(n),
        np.zeros(n, np.int32),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        checked_from,
    )


@subroutine
def join_arrival(
    buffers: Buffers,
    scan: NestedScan,
    origin: int,
    place: int,
    counters: WindowJoinCounters,
    rows: NDArray[np.int32],
    count: int,
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], int]:
    """Append every combination of the origin's row at `place` with rows in the others' buckets, or record the scans."""
    times, codes, numbers = buffers.times, buffers.codes, buffers.rows
    code, depth, innermost = codes[place], np.int64(0), scan.circle.size - 2
    for position in range(scan.circle.size):
        scan.circle[position] = scan.loops[origin, position]
    if scans.row.size:
        _record_scans(buffers, scan, origin, numbers[place], scans)
        return rows, count
    scan.chosen[origin], scan.chosen_us[0] = np.int32(numbers[place]), times[place]
    scan.at[0] = _START
    while depth >= 0:
        target = scan.circle[depth + 1]
        bucket = scan.buckets[target]
        start, stop = scan.at[depth], buffers.filled[bucket]
        if start == _START:
            start = buffers.front[bucket]
            counters.probes[origin, target] += 1
            counters.touched[origin, target] += stop - start
            set_period(
                scan.later_by_us, scan.circle, scan.chosen_us, scan.checked_from, depth, scan.from_us, scan.until_us
            )
        from_us, until_us = scan.from_us[depth], scan.until_us[depth]
        if depth < innermost:
            found, inside = _next_match(times, codes, start, stop, from_us, until_us, code)
            scan.at[depth] = found + 1
            depth -= 1
            if found < stop:
                depth += 2
                scan.chosen[target], scan.chosen_us[depth] = np.int32(numbers[found]), times[found]
                scan.at[depth] = _START
        else:
            rows = reserve_columns(rows, count, stop - start)
            matched, inside = collect_matches(
                times, codes, numbers, start, stop, from_us, until_us, code, rows[target], count
            )
            fill_other_columns(rows, count, matched, target, scan.chosen)
            count = matched
            depth -= 1
        counters.comparisons[origin, target] += inside
    return rows, count


@subroutine
def _record_scans(buffers: Buffers, scan: NestedScan, origin: int, row: int, scans: RecordedScans) -> None:
    at = scans.used[0]
    scans.origin[at], scans.row[at], scans.fresh_by[at] = origin, row, 0
    for depth in range(scan.circle.size - 1):
        target = scan.circle[depth + 1]
        scans.loops[at, depth] = target
        scans.start[at, target], scans.stop[at, target] = (
            buffers.front[scan.buckets[target]],
            buffers.filled[scan.buckets[target]],
        )
    scans.used[0] = at + 1


@subroutine
def set_period(
    later_by_us: NDArray[np.int64],
    circle: NDArray[np.int64],
    chosen_us: NDArray[np.int64],
    checked_from: int,
    depth: int,
    from_us: NDArray[np.int64],
    until_us: NDArray[np.int64],
) -> None:
    """Set the period of the rows chosen so far, for the stream of this depth; empty if they do not reach each other."""
    from_us[depth], until_us[depth] = FIRST_US, LAST_US
    if depth >= checked_from:
        from_us[depth], until_us[depth] = _reachable_period(later_by_us, circle, chosen_us, depth)
    for outer in range(depth if 0 < checked_from <= depth else 0):  # no outer loop has checked these
        least_us, most_us = _reachable_period(later_by_us, circle, chosen_us, outer)
        if not least_us <= chosen_us[outer + 1] <= most_us:
            from_us[depth], until_us[depth] = LAST_US, FIRST_US


@subroutine
def _reachable_period(
    later_by_us: NDArray[np.int64], circle: NDArray[np.int64], chosen_us: NDArray[np.int64], depth: int
) -> tuple[int, int]:
    from_us, until_us = FIRST_US, LAST_US
    target = circle[depth + 1]
    for position in range(depth + 1):
        stream = circle[position]
        from_us = max(from_us, earliest_within(chosen_us[position], later_by_us[target, stream]))
        until_us = min(until_us, latest_within(chosen_us[position], later_by_us[stream, target]))
    return from_us, until_us  # type: ignore[return-value] # numba's int


@subroutine
def _next_match(
    times: NDArray[np.int64], codes: NDArray[np.int64], start: int, stop: int, from_us: int, until_us: int, code: int
) -> tuple[int, int]:
    """Return the next place that joins, or `stop`, and how many rows up to there were inside the period."""
    inside = 0
    for at in range(np.uint64(start), np.uint64(stop)):  # unsigned: no check for indexes that count from the end
        if (times[at] >= from_us) & (times[at] <= until_us):
            inside += 1
            if codes[at] == code:
                return np.int64(at), inside  # type: ignore[return-value] # numba's int
    return stop, inside


@subroutine
def collect_matches(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    numbers: NDArray[np.int64],
    start: int,
    stop: int,
    from_us: int,
    until_us: int,
    code: int,
    column: NDArray[np.int32],
    count: int,
) -> tuple[int, int]:
    """Run the innermost loop: write the row numbers that join from place `count` on.

    Return the place after them and the number of rows inside the period.
    """
    inside = 0
    for at in range(np.uint64(start), np.uint64(stop)):
        if (times[at] >= from_us) & (times[at] <= until_us):
            inside += 1
            if codes[at] == code:
                column[np.uint64(count)] = np.int32(numbers[at])
                count += 1
    return count, inside

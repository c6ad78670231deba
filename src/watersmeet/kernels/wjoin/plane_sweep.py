"""MW-join's plane sweep: the rows of each stream in order of time, the range in the join buffer, and Mode 2's scan.

The sweep goes by (time, stream, place). Old rows take part in it at their own times. So a buffer never holds a row
later than the one being admitted, even when rows of earlier calls are later than those of this one.

Mode 2 scans the other buffers for each admitted row. Their rows are all inside the period, so it compares only codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, INT, kernel, subroutine
from watersmeet.kernels.wjoin.buffers import FIRST_US, LAST_US, earliest_within, latest_within
from watersmeet.kernels.wjoin.outputs import RecordedScans, WindowJoinCounters, fill_other_columns, reserve_columns


class PlaneSweep(NamedTuple):
    """Position of the sweep: stream s holds the places `head[s] … tail[s] - 1` in its buffer.

    The places up to `stop[s]` are still to come. `fresh[s]` is the last place of an admitted new row.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]
    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    stop: NDArray[np.int64]
    fresh: NDArray[np.int64]


class SweepRows(NamedTuple):
    """Rows of all streams in order of time, old rows first among equals. The caller keeps them between calls.

    Those of stream s are at the places `start[s] … stop[s] - 1`.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]


SWEEP_ROWS = types.BaseTuple.from_types([types.Array(types.int64, 1, "C")] * 5, SweepRows)  # type: ignore[no-untyped-call]


@kernel(SWEEP_ROWS, INT, IN_INT64, IN_INT64, INT)
def merge_new_rows(
    sweep: SweepRows, stream: int, times: NDArray[np.int64], codes: NDArray[np.int64], first_row: int
) -> None:
    """Merge new rows, which are in order of time, into the rows of their stream. The first one has this number."""
    kept = sweep.stop[stream] - 1
    for new in range(times.size - 1, -1, -1):
        while kept >= sweep.start[stream] and sweep.times[kept] > times[new]:
            moved = kept + new + 1
            sweep.times[moved], sweep.codes[moved], sweep.rows[moved] = (
                sweep.times[kept],
                sweep.codes[kept],
                sweep.rows[kept],
            )
            kept -= 1
        at = kept + new + 1
        sweep.times[at], sweep.codes[at], sweep.rows[at] = times[new], codes[new], first_row + new
    sweep.stop[stream] += times.size


@subroutine
def start_sweep(sweep: SweepRows, reach: NDArray[np.int64], first_us: int, last_us: int) -> PlaneSweep:
    """Return the sweep at the first new row; new rows are between two times.

    Rows that no new row reaches are left out, and rows before all new rows are in the buffers already. A combination of
    rows that all come before the first new row has nothing new in it, so there is nothing to join up to there.
    """
    n = reach.size
    head, tail, stop = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    for stream in range(n):
        start, end = sweep.start[stream], sweep.stop[stream]
        head[stream] = find_first_at_least(sweep.times, start, end, earliest_within(first_us, reach[stream]))
        tail[stream] = find_first_at_least(sweep.times, head[stream], end, first_us)
        reached_us = latest_within(last_us, reach[stream])
        stop[stream] = (
            end if reached_us == LAST_US else find_first_at_least(sweep.times, tail[stream], end, reached_us + 1)
        )
    return PlaneSweep(sweep.times, sweep.codes, sweep.rows, head, tail, stop, np.full(n, -1))


@subroutine
def find_first_at_least(times: NDArray[np.int64], start: int, stop: int, bound_us: int) -> int:
    """Return the first place of a sorted range that is not before the bound."""
    while start < stop:
        middle = (start + stop) >> 1
        if times[middle] < bound_us:
            start = middle + 1
        else:
            stop = middle
    return start


_NEVER = -1
_START = -1


class PeriodScan(NamedTuple):
    """State of the loops: by stream, the start of its loop; by depth, the stream, the progress and the limits.

    `floor_us[d]` is the time before which no row at depth d may be. `has_fresh[d]` tells whether an outer loop has
    chosen a new row. A combination without one has to take it at the last possible loop, where only rows from `old[s]`
    on count.
    """

    reach: NDArray[np.int64]
    old: NDArray[np.int64]
    order: NDArray[np.int64]
    start: NDArray[np.int64]
    chosen: NDArray[np.int32]
    stream: NDArray[np.int64]
    at: NDArray[np.int64]
    floor_us: NDArray[np.int64]
    has_fresh: NDArray[np.bool_]


@subroutine
def new_period_scan(reach: NDArray[np.int64], old: NDArray[np.int64]) -> PeriodScan:
    n = reach.size
    return PeriodScan(
        reach,
        old.copy(),
        np.arange(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
    )


@subroutine
def join_admitted_row(
    sweep: PlaneSweep,
    scan: PeriodScan,
    origin: int,
    place: int,
    counters: WindowJoinCounters,
    rows: NDArray[np.int32],
    count: int,
    scans: RecordedScans,
) -> tuple[NDArray[np.int32], int]:
    """Append every combination of the row at `place` with rows admitted before it, or record the scans.

    Combinations without a new row are skipped.
    """
    times, codes, numbers = sweep.times, sweep.codes, sweep.rows
    is_new = numbers[place] >= scan.old[origin]
    fresh_by = _order_loops(sweep, scan, origin)
    if not is_new and fresh_by == _NEVER:
        return rows, count
    if scans.row.size:
        _record_scans(sweep, scan, origin, numbers[place], fresh_by, scans)
        return rows, count
    code, depth = codes[place], np.int64(0)
    scan.chosen[origin] = np.int32(numbers[place])
    scan.has_fresh[0], scan.floor_us[0], scan.at[0] = is_new, FIRST_US, _START
    while depth >= 0:
        stream = scan.stream[depth]
        start, stop = scan.at[depth], sweep.tail[stream]
        least_row = scan.old[stream] if depth == fresh_by and not scan.has_fresh[depth] else 0
        if start == _START:
            start = find_first_from(times, scan.start[stream], stop, scan.floor_us[depth])
            counters.probes[origin, stream] += 1
            counters.touched[origin, stream] += stop - start
            counters.comparisons[origin, stream] += stop - start
        if depth < scan.reach.size - 2:
            found = _next_match(codes, numbers, start, stop, code, least_row)
            scan.at[depth] = found + 1
            depth -= 1
            if found < stop:
                depth += 2
                scan.chosen[stream] = np.int32(numbers[found])
                scan.has_fresh[depth] = scan.has_fresh[depth - 1] or numbers[found] >= scan.old[stream]
                scan.floor_us[depth] = max(scan.floor_us[depth - 1], earliest_within(times[found], scan.reach[stream]))
                scan.at[depth] = _START
        else:
            rows = reserve_columns(rows, count, stop - start)
            matched = collect_new_matches(codes, numbers, start, stop, code, least_row, rows[stream], count)
            fill_other_columns(rows, count, matched, stream, scan.chosen)
            count = matched
            depth -= 1
    return rows, count


@subroutine
def _record_scans(
    sweep: PlaneSweep, scan: PeriodScan, origin: int, row: int, fresh_by: int, scans: RecordedScans
) -> None:
    at = scans.used[0]
    scans.origin[at], scans.row[at], scans.fresh_by[at] = origin, row, fresh_by
    for depth in range(scan.reach.size - 1):
        target = scan.stream[depth]
        scans.loops[at, depth] = target
        scans.start[at, target], scans.stop[at, target] = scan.start[target], sweep.tail[target]
    scans.used[0] = at + 1


@subroutine
def has_partners(sweep: PlaneSweep, scan: PeriodScan, origin: int, place: int) -> bool:
    """Set the start of each loop; return false as soon as one of them would be empty."""
    time_us, reach = sweep.times[place], scan.reach
    for stream in range(reach.size):
        if stream != origin:
            floor_us = earliest_within(time_us, min(reach[origin], reach[stream]))
            scan.start[stream] = find_first_from(sweep.times, sweep.head[stream], sweep.tail[stream], floor_us)
            if scan.start[stream] == sweep.tail[stream]:
                return False
    return True


@subroutine
def find_first_from(times: NDArray[np.int64], start: int, stop: int, floor_us: int) -> int:
    """Return the first place that is not before the floor.

    With one window for all pairs, heads are never before the floor and nothing is searched.
    """
    if start == stop or times[start] >= floor_us:
        return start
    return find_first_at_least(times, start, stop, floor_us)  # type: ignore[no-any-return] # numba's int


@subroutine
def _order_loops(sweep: PlaneSweep, scan: PeriodScan, origin: int) -> int:
    """Order the loops by reach, then by length, and return the last depth that has new rows.

    The order hardly changes from one row to the next, so an insertion sort has little to do.
    """
    order = scan.order
    for at in range(1, order.size):
        stream, to = order[at], at
        while to > 0 and _nests_outside(scan.reach, sweep.head, sweep.tail, stream, order[to - 1]):
            order[to] = order[to - 1]
            to -= 1
        order[to] = stream
    depth, fresh_by = np.int64(0), np.int64(_NEVER)
    for stream in order:
        if stream != origin:
            scan.stream[depth] = stream
            if sweep.fresh[stream] >= scan.start[stream]:
                fresh_by = depth
            depth += 1
    return fresh_by  # type: ignore[return-value] # numba's int


@subroutine
def _nests_outside(
    reach: NDArray[np.int64], head: NDArray[np.int64], tail: NDArray[np.int64], stream: int, other: int
) -> bool:
    if reach[stream] != reach[other]:
        return reach[stream] < reach[other]  # type: ignore[no-any-return] # numba's bool
    return tail[stream] - head[stream] < tail[other] - head[other]  # type: ignore[no-any-return] # numba's bool


@subroutine
def _next_match(
    codes: NDArray[np.int64], numbers: NDArray[np.int64], start: int, stop: int, code: int, least_row: int
) -> int:
    """Return the next place that joins, or `stop`."""
    for at in range(np.uint64(start), np.uint64(stop)):  # unsigned: no check for indexes that count from the end
        if codes[at] == code and numbers[at] >= least_row:
            return np.int64(at)  # type: ignore[return-value] # numba's int
    return stop


@subroutine
def collect_new_matches(
    codes: NDArray[np.int64],
    numbers: NDArray[np.int64],
    start: int,
    stop: int,
    code: int,
    least_row: int,
    column: NDArray[np.int32],
    count: int,
) -> int:
    """Run the innermost loop: write the row numbers that join from place `count` on.

    Return the place after them.
    """
    for at in range(np.uint64(start), np.uint64(stop)):
        if codes[at] == code and numbers[at] >= least_row:
            column[np.uint64(count)] = np.int32(numbers[at])
            count += 1
    return count

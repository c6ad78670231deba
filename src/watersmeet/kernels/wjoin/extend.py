"""Recorded scans, done one depth at a time: partial matches of some streams become matches of one stream more.

`partials[s, m]` is the row of stream s in match m. `partials[n, m]`, with n streams, is the index in `scans` of the
recorded row from which match m grew. `circle` and `chosen_us` describe the rows chosen so far (`nested_scan`).
`old[s]` counts the rows of stream s from earlier batches. Both kernels return how many matches they wrote and the next
partial match. They stop before a partial match whose scan might not fit into `out`.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), section 3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, IN_INT64_2D, INT, OUT_INT64_2D, kernel, subroutine
from watersmeet.kernels.nested_loops import compare_codes
from watersmeet.kernels.wjoin.buffers import FIRST_US, earliest_within
from watersmeet.kernels.wjoin.nested_scan import collect_matches, set_period
from watersmeet.kernels.wjoin.outputs import SCANS, RecordedScans
from watersmeet.kernels.wjoin.plane_sweep import collect_new_matches, find_first_from


class ThetaComparisons(NamedTuple):
    """Comparisons of order-preserving codes.

    Row r of stream `left[t]` has the code `values[left_at[t] + r]`, and so on.
    """

    op: NDArray[np.int64]
    left: NDArray[np.int64]
    left_at: NDArray[np.int64]
    right: NDArray[np.int64]
    right_at: NDArray[np.int64]
    values: NDArray[np.int64]


_ROWS = types.Array(types.int32, 2, "C")
THETAS = types.BaseTuple.from_types([types.Array(types.int64, 1, "C")] * 6, ThetaComparisons)  # type: ignore[no-untyped-call]
_ARGUMENTS = (
    *[IN_INT64] * 8,
    IN_INT64_2D,
    SCANS,
    THETAS,
    INT,
    INT,
    _ROWS,
    INT,
    *[OUT_INT64_2D] * 3,
    _ROWS,
)


@kernel(*_ARGUMENTS)
def extend_nested(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    numbers: NDArray[np.int64],
    row_times: NDArray[np.int64],
    row_codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    reach: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    scans: RecordedScans,
    thetas: ThetaComparisons,
    depth: int,
    checked_from: int,
    partials: NDArray[np.int32],
    first: int,
    probes: NDArray[np.int64],
    touched: NDArray[np.int64],
    comparisons: NDArray[np.int64],
    out: NDArray[np.int32],
) -> tuple[np.int64, int]:
    """Run the loop at `depth` of NLW-join, HW-join, Ripple join and XJoin.

    Windows are checked from depth `checked_from` on.
    """
    n, used = reach.size, np.int64(0)
    circle, chosen_us = np.zeros(n, np.int64), np.zeros(n, np.int64)
    from_us, until_us = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for match in range(first, partials.shape[1]):
        at = partials[n, match]
        origin, target = scans.origin[at], scans.loops[at, depth]
        start, stop = scans.start[at, target], scans.stop[at, target]
        if used + stop - start > out.shape[1]:
            return used, match
        for position in range(depth + 1):
            stream = origin if position == 0 else scans.loops[at, position - 1]
            circle[position] = stream
            chosen_us[position] = row_times[offsets[stream] + partials[stream, match]]
        circle[depth + 1] = target
        set_period(later_by_us, circle, chosen_us, checked_from, depth, from_us, until_us)
        code = row_codes[offsets[origin] + partials[origin, match]]
        matched, inside = collect_matches(
            times,
            codes,
            numbers,
            np.int64(start),
            np.int64(stop),
            from_us[depth],
            until_us[depth],
            code,
            out[target],
            used,
        )
        matched = _filter_by_thetas(thetas, partials, match, scans, at, depth, out[target], used, matched)
        _copy_bound_rows(partials, match, scans, at, depth, out, used, matched)
        probes[origin, target] += 1
        touched[origin, target] += stop - start
        comparisons[origin, target] += inside
        used = matched
    return used, partials.shape[1]


@kernel(*_ARGUMENTS)
def extend_sweep(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    numbers: NDArray[np.int64],
    row_times: NDArray[np.int64],
    row_codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    reach: NDArray[np.int64],
    later_by_us: NDArray[np.int64],
    scans: RecordedScans,
    thetas: ThetaComparisons,
    depth: int,
    checked_from: int,
    partials: NDArray[np.int32],
    first: int,
    probes: NDArray[np.int64],
    touched: NDArray[np.int64],
    comparisons: NDArray[np.int64],
    out: NDArray[np.int32],
) -> tuple[np.int64, int]:
    """Run the loop at `depth` of MW-join."""
    n, used = reach.size, np.int64(0)
    for match in range(first, partials.shape[1]):
        at = partials[n, match]
        origin, target = scans.origin[at], scans.loops[at, depth]
        floor_us, is_fresh = FIRST_US, partials[origin, match] >= old[origin]
        for outer in range(depth):
            stream = scans.loops[at, outer]
            row = partials[stream, match]
            floor_us = max(floor_us, earliest_within(row_times[offsets[stream] + row], reach[stream]))
            is_fresh |= row >= old[stream]
        stop = np.int64(scans.stop[at, target])
        start = np.int64(find_first_from(times, np.int64(scans.start[at, target]), stop, floor_us))
        if used + stop - start > out.shape[1]:
            return used, match
        least_row = old[target] if depth == scans.fresh_by[at] and not is_fresh else 0
        code = row_codes[offsets[origin] + partials[origin, match]]
        matched = collect_new_matches(codes, numbers, start, stop, code, least_row, out[target], used)
        matched = _filter_by_thetas(thetas, partials, match, scans, at, depth, out[target], used, matched)
        _copy_bound_rows(partials, match, scans, at, depth, out, used, matched)
        probes[origin, target] += 1
        touched[origin, target] += stop - start
        comparisons[origin, target] += stop - start
        used = matched
    return used, partials.shape[1]


@subroutine
def _filter_by_thetas(
    thetas: ThetaComparisons,
    partials: NDArray[np.int32],
    match: int,
    scans: RecordedScans,
    at: int,
    depth: int,
    column: NDArray[np.int32],
    first: int,
    stop: int,
) -> int:
    """Keep the rows in places `first … stop - 1` that satisfy every comparison with a bound row.

    Return the place after them.
    """
    target = scans.loops[at, depth]
    for theta in range(thetas.op.size):
        left, right = thetas.left[theta], thetas.right[theta]
        other = right if left == target else left
        if not (target in (left, right) and _is_bound(scans, at, depth, other)):
            continue
        bound_at = thetas.right_at[theta] if left == target else thetas.left_at[theta]
        target_at = thetas.left_at[theta] if left == target else thetas.right_at[theta]
        bound_value, op, kept = thetas.values[bound_at + partials[other, match]], thetas.op[theta], first
        for place in range(first, stop):
            value = thetas.values[target_at + column[place]]
            if compare_codes(op, value, bound_value) if left == target else compare_codes(op, bound_value, value):
                column[kept] = column[place]
                kept += 1
        stop = kept
    return stop


@subroutine
def _is_bound(scans: RecordedScans, at: int, depth: int, stream: int) -> bool:
    if scans.origin[at] == stream:
        return True
    found = False
    for outer in range(depth):
        found |= scans.loops[at, outer] == stream
    return found


@subroutine
def _copy_bound_rows(
    partials: NDArray[np.int32],
    match: int,
    scans: RecordedScans,
    at: int,
    depth: int,
    out: NDArray[np.int32],
    first: int,
    stop: int,
) -> None:
    """Copy the rows of a partial match to the matches it became."""
    n = partials.shape[0] - 1
    for result in range(first, stop):
        out[n, result] = np.int32(at)
        origin = scans.origin[at]
        out[origin, result] = partials[origin, match]
        for outer in range(depth):
            stream = scans.loops[at, outer]
            out[stream, result] = partials[stream, match]

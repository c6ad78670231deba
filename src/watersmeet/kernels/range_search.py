"""Sorted blocks: the rows of a run in blocks, each block in the order of a value.

A probe asks for rows at the places `[first, first + count)` of a run whose value lies between two bounds. Places are in
the order (key, time), so equality and time bounds are a range of places. The probe searches both bounds of the value in
each block that overlaps its places. A block inside the range of places holds matches only between the two bounds. So a
probe touches its matches, a logarithm of each block, and the candidates of the two blocks at its ends.

Further values of a row have bounds, too. Zones are ranges of a block with the smallest and the largest such value. A
probe skips zones that cannot match. A zone of level l has 16^(l + 1) entries. Where values grow together, as the
ends of intervals do, the largest value up to an entry and the smallest from an entry on are searched first. They cut
off both ends of the range.

References: Khayyat et al., "Lightning Fast and Space Efficient Inequality Joins", 2015, section 3, for two
inequalities. The zones take the place of its bit array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import (
    IN_INT32,
    IN_INT64,
    IN_INT64_2D,
    INT,
    OUT_INT32,
    OUT_INT64,
    kernel,
    subroutine,
)
from watersmeet.kernels.grouped_run import gallop_to

#: A probe with at most this many places tests each of them.
SCANNED_PLACES = 48
ZONE_BITS = 4
ZONE_LEVELS = 4
_DIGIT_BITS = 11
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def find_in_ranges_definition(
    values: list[list[int]], places: list[tuple[int, int]], bounds: list[list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Return (probe, place) for every match: the law of `fill_range_matches`.

    `values[k][place]` is the k-th value of a row. Probe p matches places `[first, first + count)` of `places[p]` where
    every value k lies between `bounds[k][p]`, both ends included.

    >>> find_in_ranges_definition([[5, 9, 7]], [(0, 3), (1, 1)], [[(5, 7), (0, 8)]])
    [(0, 0), (0, 2)]
    """
    return [
        (probe, place)
        for probe, (first, count) in enumerate(places)
        for place in range(first, first + count)
        if all(limits[probe][0] <= of[place] <= limits[probe][1] for of, limits in zip(values, bounds, strict=True))
    ]


@kernel(IN_INT64, INT, INT, INT, OUT_INT64, OUT_INT32)
def sort_blocks(
    values: NDArray[np.int64],
    block_rows: int,
    from_block: int,
    until_block: int,
    ordered: NDArray[np.int64],
    places: NDArray[np.int32],
) -> None:
    """Sort some blocks by value: `ordered` gets the values and `places` their places. The sort is stable.

    It is a radix sort over the bits in which the values of a block differ.
    """
    size = min(block_rows, values.size)
    other_values, other_places = np.empty(size, np.int64), np.empty(size, np.int32)
    for block in range(from_block, until_block):
        start = block * block_rows
        stop = min(start + block_rows, values.size)
        lowest, highest = values[start], values[start]
        for at in range(start, stop):
            lowest = min(lowest, values[at])
            highest = max(highest, values[at])
            ordered[at] = values[at]
            places[at] = np.int32(at)
        spread = np.uint64(highest) - np.uint64(lowest)
        shift = 0
        while shift < 64 and (spread >> np.uint64(shift)) > np.uint64(0):
            _sort_by_digit(
                ordered[start:stop], places[start:stop], lowest, shift, other_values[: stop - start], other_places
            )
            for at in range(stop - start):
                ordered[start + at] = other_values[at]
                places[start + at] = other_places[at]
            shift += _DIGIT_BITS


@subroutine
def _sort_by_digit(
    values: NDArray[np.int64],
    places: NDArray[np.int32],
    lowest: int,
    shift: int,
    sorted_values: NDArray[np.int64],
    sorted_places: NDArray[np.int32],
) -> None:
    """Sort by one digit of the distance from the lowest value. The sort is stable."""
    starts = np.zeros((1 << _DIGIT_BITS) + 1, np.int64)
    mask = np.uint64((1 << _DIGIT_BITS) - 1)
    base, move = np.uint64(lowest), np.uint64(shift)
    for at in range(values.size):
        starts[np.int64(((np.uint64(values[at]) - base) >> move) & mask) + 1] += 1
    for digit in range(1 << _DIGIT_BITS):
        starts[digit + 1] += starts[digit]
    for at in range(values.size):
        of = np.int64(((np.uint64(values[at]) - base) >> move) & mask)
        to = starts[of]
        sorted_values[to] = values[at]
        sorted_places[to] = places[at]
        starts[of] = to + 1


def sort_blocks_definition(values: NDArray[np.int64], block_rows: int) -> NDArray[np.int32]:
    """Return the places sorted by block and value, equal values in the order of places: the law of `sort_blocks`."""
    places = np.arange(values.size)
    return np.lexsort((values, places // block_rows)).astype(np.int32)


def build_zones(values: NDArray[np.int64], places: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and the largest value of each zone of the entries, level by level in one array.

    `zone_starts` gives the start of each level.
    """
    low = high = values[places]
    lows, highs = [], []
    for _ in range(ZONE_LEVELS):
        starts = np.arange(0, low.size, 1 << ZONE_BITS)
        low = np.minimum.reduceat(low, starts) if starts.size else low
        high = np.maximum.reduceat(high, starts) if starts.size else high
        lows.append(low)
        highs.append(high)
    return np.concatenate(lows), np.concatenate(highs)


def build_extremes(
    values: NDArray[np.int64], places: NDArray[np.int32], block_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, by entry, the largest value up to it in its block, and the smallest from it on.

    >>> largest, smallest = build_extremes(np.array([5, 3, 9, 4]), np.arange(4, dtype=np.int32), 2)
    >>> largest.tolist(), smallest.tolist()
    ([5, 5, 9, 9], [3, 3, 4, 4])
    """
    largest = smallest = values[places]
    if largest.size:
        rows = min(block_rows, largest.size)
        blocks = np.pad(largest, (0, -largest.size % rows), mode="edge").reshape(-1, rows)
        largest = np.maximum.accumulate(blocks, axis=1).reshape(-1)[: values.size]
        smallest = np.minimum.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].reshape(-1)[: values.size]
    return largest, np.ascontiguousarray(smallest)


def zone_starts(entries: int) -> NDArray[np.int64]:
    """Return where each level of zones starts, and the number of all zones.

    >>> zone_starts(40).tolist()
    [0, 3, 4, 5, 6]
    """
    starts = [0]
    for _ in range(ZONE_LEVELS):
        entries = -(-entries // (1 << ZONE_BITS))
        starts.append(starts[-1] + entries)
    return np.array(starts, np.int64)


@kernel(
    IN_INT64,
    IN_INT64,
    IN_INT32,
    INT,
    IN_INT64_2D,
    IN_INT64_2D,
    IN_INT64_2D,
    IN_INT64,
    IN_INT64_2D,
    IN_INT64_2D,
    IN_INT32,
    IN_INT64,
    IN_INT32,
    IN_INT64_2D,
    IN_INT64_2D,
    INT,
    INT,
    OUT_INT64,
    OUT_INT32,
    OUT_INT32,
    OUT_INT64,
    allocates=False,
)
def fill_range_matches(  # noqa: PLR0912, PLR0915 - the innermost loops of a join
    values: NDArray[np.int64],
    ordered: NDArray[np.int64],
    places: NDArray[np.int32],
    block_rows: int,
    others: NDArray[np.int64],
    zone_lows: NDArray[np.int64],
    zone_highs: NDArray[np.int64],
    levels: NDArray[np.int64],
    largest: NDArray[np.int64],
    smallest: NDArray[np.int64],
    rows: NDArray[np.int32],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    base: int,
    probe: int,
    near: NDArray[np.int64],
    parents: NDArray[np.int32],
    matches: NDArray[np.int32],
    progress: NDArray[np.int64],
) -> int:
    """Write (probe, base + row) for the matches of `probe` and later ones, and return the next probe to continue with.

    `values` are in the order of places, and `others[k]` the k-th other value. `lows[0]` and `highs[0]` bound the value,
    `lows[k + 1]` and `highs[k + 1]` the k-th other. `largest` and `smallest` are the extremes of the others. The kernel
    stops before a probe whose matches do not fit. `near` has the last four places found in each block: neighbouring
    probes have similar bounds. `progress` gets the number of matches, and the number of entries tested.
    """
    filled, tested = 0, 0
    entries = ordered.size
    while probe < first.size:
        start = first[probe]
        stop = start + count[probe]
        low, high = lows[0, probe], highs[0, probe]
        at = filled
        if stop - start <= SCANNED_PLACES:
            tested += stop - start
            for place in range(start, stop):
                if low <= values[place] <= high and _hold(others, lows, highs, probe, place):
                    if at == parents.size:
                        progress[0], progress[1] = filled, tested
                        return probe
                    parents[at] = np.int32(probe)
                    matches[at] = np.int32(base + rows[place])
                    at += 1
        elif low <= high:
            for block in range(start // block_rows, (stop - 1) // block_rows + 1):
                left = block * block_rows
                right = min(left + block_rows, entries)
                begin = gallop_to(ordered, left, right, max(near[4 * block], left), low)
                end = _gallop_past(ordered, begin, right, max(near[4 * block + 1], begin), high)
                near[4 * block], near[4 * block + 1] = begin, end
                for k in range(others.shape[0]):
                    if lows[k + 1, probe] > _LOWEST and begin < end:
                        begin = gallop_to(largest[k], begin, end, max(near[4 * block + 2], begin), lows[k + 1, probe])
                        near[4 * block + 2] = begin
                    if highs[k + 1, probe] < _HIGHEST and begin < end:
                        end = _gallop_past(
                            smallest[k], begin, end, max(near[4 * block + 3], begin), highs[k + 1, probe]
                        )
                        near[4 * block + 3] = end
                inside = start <= left and right <= stop
                if others.shape[0] == 0 and inside:
                    if at + end - begin > parents.size:
                        progress[0], progress[1] = filled, tested
                        return probe
                    tested += end - begin
                    for entry in range(begin, end):
                        parents[at] = np.int32(probe)
                        matches[at] = np.int32(base + rows[places[entry]])
                        at += 1
                    continue
                entry = begin
                while entry < end:
                    following = entry
                    if others.shape[0] > 0:
                        following = _skip_zones(zone_lows, zone_highs, levels, lows, highs, probe, entry)
                    if following > entry:
                        entry = following
                        continue
                    place = places[entry]
                    tested += 1
                    if start <= place < stop and _hold(others, lows, highs, probe, place):
                        if at == parents.size:
                            progress[0], progress[1] = filled, tested
                            return probe
                        parents[at] = np.int32(probe)
                        matches[at] = np.int32(base + rows[place])
                        at += 1
                    entry += 1
        filled = at
        probe += 1
    progress[0], progress[1] = filled, tested
    return probe


@subroutine
def _hold(others: NDArray[np.int64], lows: NDArray[np.int64], highs: NDArray[np.int64], probe: int, place: int) -> bool:
    """Return whether all other values of a place lie between the probe's bounds."""
    for k in range(others.shape[0]):
        if others[k, place] < lows[k + 1, probe] or others[k, place] > highs[k + 1, probe]:
            return False
    return True


@subroutine
def _skip_zones(
    zone_lows: NDArray[np.int64],
    zone_highs: NDArray[np.int64],
    levels: NDArray[np.int64],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    probe: int,
    entry: int,
) -> int:
    """Return the entry after the largest zone that starts at `entry` and cannot match, or `entry` if there is none."""
    level = 0
    while level < ZONE_LEVELS and entry & ((1 << (ZONE_BITS * (level + 1))) - 1) == 0:
        level += 1
    while level > 0:
        zone = levels[level - 1] + (entry >> (ZONE_BITS * level))
        for k in range(zone_lows.shape[0]):
            if zone_lows[k, zone] > highs[k + 1, probe] or zone_highs[k, zone] < lows[k + 1, probe]:
                return entry + (1 << (ZONE_BITS * level))
        level -= 1
    return entry


@subroutine
def _gallop_past(values: NDArray[np.int64], low: int, high: int, near: int, bound: int) -> int:
    """Return the first place in the sorted range `values[low:high]` whose value is above `bound`."""
    return high if bound == _HIGHEST else gallop_to(values, low, high, near, bound + 1)

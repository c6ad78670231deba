"""A grouped run: the rows of one pane, grouped by key, each group in time order.

This is the production access path. A probe finds its key's group through an open-addressing directory and then the stretch of the
group inside its time bounds by galloping, so it touches matches and a logarithm, never the rest of the window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT32, IN_INT64, INT, OUT_INT32, OUT_INT64, kernel, piece
from watersmeet.kernels.mixing import mix

_EMPTY = -1
_SMALL = 1 << 14
#: A group of so few rows is looked through whole.
_SHORT = 16


@kernel(IN_INT64)
def group_rows(
    keys: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Directory slots, the distinct keys, group offsets, and row numbers by group.

    Rows keep their order inside a group (`group_rows_definition` is the law). Groups stand in the order of their hash's leading bits, and
    so do the directory's slots: building a run, or probing it in the order of another run, walks memory forwards.
    """
    rows, ordered = _by_leading_bits(keys) if keys.size > _SMALL else (np.arange(keys.size).astype(np.int32), keys.copy())
    group_of = np.empty(keys.size, np.int32)
    slots = np.full(2 * keys.size + 1, _EMPTY, np.int32)
    group_keys = np.empty(keys.size, np.int64)
    offsets = np.zeros(keys.size + 1, np.int64)
    groups = 0
    for place in range(keys.size):
        slot = _slot_of(slots, group_keys, ordered[place])
        group = slots[slot]
        if group == _EMPTY:
            group = np.int32(groups)
            slots[slot] = group
            group_keys[groups] = ordered[place]
            groups += 1
        group_of[place] = group
        offsets[group + 1] += 1
    for group in range(groups):
        offsets[group + 1] += offsets[group]
    return slots, group_keys[:groups].copy(), offsets[: groups + 1].copy(), _sorted_by_group(rows, group_of, offsets[:groups].copy())


@piece
def _by_leading_bits(keys: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Row numbers, and their keys, ordered by the first byte of the key's hash, stable: one part of the directory fits the cache."""
    place = np.zeros(257, np.int64)
    for row in range(keys.size):
        place[(mix(keys[row]) >> np.uint64(56)) + np.uint64(1)] += 1
    for part in range(256):
        place[part + 1] += place[part]
    rows = np.empty(keys.size, np.int32)
    ordered = np.empty(keys.size, np.int64)
    for row in range(keys.size):
        part = mix(keys[row]) >> np.uint64(56)
        rows[place[part]] = np.int32(row)
        ordered[place[part]] = keys[row]
        place[part] += 1
    return rows, ordered


def group_rows_definition(keys: NDArray[np.int64]) -> dict[int, list[int]]:
    """The law of `group_rows`: each key with its rows, in order of appearance."""
    groups: dict[int, list[int]] = {}
    for row, key in enumerate(keys.tolist()):
        groups.setdefault(key, []).append(row)
    return groups


@piece
def _slot_of(slots: NDArray[np.int32], group_keys: NDArray[np.int64], key: int) -> int:
    """Where the key's group number stands, or the free slot where it would; the table is at most half full, so probes stay short."""
    slot: int = np.int64((mix(key) >> np.uint64(32)) * np.uint64(slots.size) >> np.uint64(32))  # type: ignore[assignment] # numba's int
    while slots[slot] != _EMPTY and group_keys[slots[slot]] != key:
        slot += 1
        if slot == slots.size:
            slot = 0
    return slot


@piece
def _sorted_by_group(rows: NDArray[np.int32], group_of: NDArray[np.int32], place: NDArray[np.int64]) -> NDArray[np.int32]:
    """Counting sort, stable; `place` is where each group begins, and ends up where it ends."""
    by_group = np.empty(rows.size, np.int32)
    for at in range(rows.size):
        group = group_of[at]
        by_group[place[group]] = rows[at]
        place[group] += 1
    return by_group


@kernel(IN_INT64, IN_INT64)
def running_maximum(ends: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest end so far inside each group: monotone, and never below a row's own end, so pruning by it loses nothing."""
    raised = ends.copy()
    for group in range(offsets.size - 1):
        for place in range(offsets[group] + 1, offsets[group + 1]):
            raised[place] = max(raised[place], raised[place - 1])
    return raised


@kernel(IN_INT32, *[IN_INT64] * 8, OUT_INT64, OUT_INT32)
def count_matches(
    slots: NDArray[np.int32],
    group_keys: NDArray[np.int64],
    offsets: NDArray[np.int64],
    times: NDArray[np.int64],
    ends: NDArray[np.int64],
    probe_keys: NDArray[np.int64],
    from_us: NDArray[np.int64],
    until_us: NDArray[np.int64],
    alive_at_us: NDArray[np.int64],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
) -> int:
    """For each probe the stretch `[first, first + count)` of the run it meets; returns the sum of counts.

    A row meets a probe when its key is equal, `from <= time <= until`, and its end, where the run has ends (monotone inside a group),
    reaches `alive_at`. An empty `ends` or `group_keys` array means there are none: no ends to check, one group of all rows.
    Probes that come sorted by key and time reuse the previous probe's place.
    """
    total = 0
    keyless = group_keys.size == 0 and slots.size == 0
    low, high = 0, times.size
    start, stop = 0, 0
    found = keyless
    last_key = 0
    fresh = not keyless
    for probe in range(probe_keys.size):
        if not keyless and (fresh or probe_keys[probe] != last_key):
            last_key = probe_keys[probe]
            fresh = False
            group = slots[_slot_of(slots, group_keys, last_key)]
            found = group != _EMPTY
            if found:
                low, high = offsets[group], offsets[group + 1]
                start, stop = low, low
        if not found:
            first[probe] = 0
            count[probe] = 0
            continue
        if high - low <= _SHORT:
            start = low + _count_below(times, low, high, from_us[probe])
            if ends.size:
                start = max(start, low + _count_below(ends, low, high, alive_at_us[probe]))
            stop = max(start, low + _count_below(times, low, high, until_us[probe] + 1))
        else:
            start = _first_at_least(times, low, high, start, from_us[probe])
            if ends.size:
                start = max(start, _first_at_least(ends, low, high, start, alive_at_us[probe]))
            stop = max(start, _first_at_least(times, low, high, stop, until_us[probe] + 1))
        first[probe] = start
        count[probe] = np.int32(stop - start)
        total += stop - start
    return total


@piece
def _count_below(values: NDArray[np.int64], low: int, high: int, bound: int) -> int:
    """How many of a short stretch are below the bound: comparing them all has no branch for the processor to guess wrong."""
    count = 0
    for place in range(low, high):
        count += values[place] < bound
    return count


@piece
def _first_at_least(values: NDArray[np.int64], low: int, high: int, near: int, bound: int) -> int:
    """The first place in the sorted stretch `values[low:high]` whose value is at least `bound`, found by galloping from `near`."""
    step = 1
    if near < high and values[near] < bound:
        left = near + 1
        right = near + 1
        while right < high and values[right] < bound:
            left = right + 1
            right += step
            step *= 2
        right = min(right, high)
    else:
        right = near
        left = near
        while left > low and values[left - 1] >= bound:
            right = left - 1
            left -= step
            step *= 2
        left = max(left, low)
        left = min(left, right)
    while left < right:
        middle = (left + right) >> 1
        if values[middle] < bound:
            left = middle + 1
        else:
            right = middle
    return left


@kernel(IN_INT32, IN_INT64, IN_INT32, INT, OUT_INT32, OUT_INT32, INT, INT)
def fill_matches(
    rows: NDArray[np.int32],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
    base: int,
    probes: NDArray[np.int32],
    matches: NDArray[np.int32],
    at: int,
    number: int,
) -> int:
    """Writes (number + probe, base + row) for every match from place `at` on; returns the place after the last."""
    for probe in range(first.size):
        for place in range(first[probe], first[probe] + count[probe]):
            probes[at] = np.int32(number + probe)
            matches[at] = np.int32(base + rows[place])
            at += 1
    return at

"""Grouped runs: the rows of one pane, grouped by key, each group in time order.

This is the production access path. A probe finds the group of its key through an open-addressing directory. It then
finds the part of the group inside its time bounds by galloping. So it touches its matches and a logarithm of the group,
never the rest of the window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT32, IN_INT64, INT, OUT_INT32, OUT_INT64, kernel, subroutine
from watersmeet.kernels.hashing import mix_bits

_EMPTY = -1
_SMALL_RUN_ROWS = 1 << 14
#: Groups up to this size are scanned from their first row.
_SHORT_GROUP_ROWS = 16


def group_rows(
    keys: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Return directory slots, the distinct keys, group offsets, and row numbers by group.

    Rows keep their order inside a group (`group_rows_definition` is the law). Groups and directory slots are both in
    the order of the leading bits of the hash. Building a run, or probing it in the order of another run, therefore
    walks memory forwards.

    Memory comes from NumPy, which requests large pages: touching new memory page by page took a third of the time.
    """
    if keys.size > _SMALL_RUN_ROWS:
        rows, ordered = np.empty(keys.size, np.int32), np.empty(keys.size, np.int64)
        order_by_leading_bits(keys, rows, ordered)
    else:
        rows, ordered = np.arange(keys.size, dtype=np.int32), keys
    slots = np.full(2 * keys.size + 1, _EMPTY, np.int32)
    group_of, group_keys = np.empty(keys.size, np.int32), np.empty(keys.size + 1, np.int64)
    groups = number_groups(ordered, slots, group_of, group_keys)
    offsets, by_group = np.zeros(groups + 2, np.int32), np.empty(keys.size, np.int32)
    sort_by_group(rows, group_of, offsets, by_group)
    return slots, group_keys[:groups].copy(), offsets[:-1], by_group


@kernel(IN_INT64, OUT_INT32, OUT_INT64)
def order_by_leading_bits(keys: NDArray[np.int64], rows: NDArray[np.int32], ordered: NDArray[np.int64]) -> None:
    """Order row numbers and their keys by the first byte of the key's hash.

    The order is stable. Each of the 256 parts of the directory fits the cache.
    """
    part = np.empty(keys.size, np.uint8)
    place = np.zeros(257, np.int64)
    for row in range(keys.size):
        part[row] = mix_bits(keys[row]) >> np.uint64(56)
    for row in range(keys.size):
        place[np.int64(part[row]) + 1] += 1
    for number in range(256):
        place[number + 1] += place[number]
    for row in range(keys.size):
        at = place[part[row]]
        rows[at] = np.int32(row)
        ordered[at] = keys[row]
        place[part[row]] = at + 1


@kernel(IN_INT64, OUT_INT32, OUT_INT32, OUT_INT64, allocates=False)
def number_groups(
    keys: NDArray[np.int64], slots: NDArray[np.int32], group_of: NDArray[np.int32], group_keys: NDArray[np.int64]
) -> int:
    """Write numbers of the distinct keys, in order of appearance, into free `slots`, and return their count.

    `group_keys` has room for one entry more than there are keys. A key that may be new is written after the existing
    groups, so the search finds it there. The loop therefore needs no test for new keys.
    """
    groups = 0
    for row in range(keys.size):
        group_of[row] = _home_slot(slots, keys[row])
    for row in range(keys.size):
        key = keys[row]
        group_keys[groups] = key
        slot: int = group_of[row]
        group = _group_at(slots, slot, groups)
        while group_keys[group] != key:
            slot = slot + 1 if slot + 1 < slots.size else 0
            group = _group_at(slots, slot, groups)
        slots[slot] = group
        group_of[row] = group
        groups += group == groups
    return groups


@subroutine
def _group_at(slots: NDArray[np.int32], slot: int, groups: int) -> int:
    """Return the group in a slot; for a free slot, the number of the next new group."""
    return groups if slots[slot] == _EMPTY else np.int64(slots[slot])  # type: ignore[return-value] # numba's int


@kernel(IN_INT32, IN_INT32, OUT_INT32, OUT_INT32, allocates=False)
def sort_by_group(
    rows: NDArray[np.int32], group_of: NDArray[np.int32], offsets: NDArray[np.int32], by_group: NDArray[np.int32]
) -> None:
    """Sort rows by group with a counting sort. The sort is stable.

    `offsets` starts as zeros and has two entries more than there are groups. While rows are placed, entry g + 1 is the
    place of the next row of group g. At the end it is the start of group g + 1.
    """
    for row in range(rows.size):
        offsets[group_of[row] + 2] += 1
    for group in range(2, offsets.size):
        offsets[group] += offsets[group - 1]
    for row in range(rows.size):
        at = offsets[group_of[row] + 1]
        by_group[at] = rows[row]
        offsets[group_of[row] + 1] = at + 1


def group_rows_definition(keys: NDArray[np.int64]) -> dict[int, list[int]]:
    """Return each key with its rows, in order of appearance: the law of `group_rows`."""
    groups: dict[int, list[int]] = {}
    for row, key in enumerate(keys.tolist()):
        groups.setdefault(key, []).append(row)
    return groups


@subroutine
def _home_slot(slots: NDArray[np.int32], key: int) -> int:
    """Return the slot of a key's group if no other group has taken it."""
    return np.int64((mix_bits(key) >> np.uint64(32)) * np.uint64(slots.size) >> np.uint64(32))  # type: ignore[return-value] # numba's int


@subroutine
def _find_slot(slots: NDArray[np.int32], group_keys: NDArray[np.int64], key: int, slot: int) -> int:
    """Return the first slot, from `slot` on, that holds the key's group number or is free.

    Half of the slots are free, so the search is short.
    """
    while slots[slot] != _EMPTY and group_keys[slots[slot]] != key:
        slot += 1
        if slot == slots.size:
            slot = 0
    return slot


@kernel(IN_INT64, IN_INT32)
def accumulate_maximum(ends: NDArray[np.int64], offsets: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the largest end so far inside each group.

    The values are monotone and never below a row's own end, so pruning by them loses nothing.
    """
    raised = ends.copy()
    for group in range(offsets.size - 1):
        for place in range(offsets[group] + 1, offsets[group + 1]):
            raised[place] = max(raised[place], raised[place - 1])
    return raised


@kernel(IN_INT32, IN_INT64, IN_INT32, *[IN_INT64] * 6, OUT_INT64, OUT_INT32, allocates=False)
def count_matches(
    slots: NDArray[np.int32],
    group_keys: NDArray[np.int64],
    offsets: NDArray[np.int32],
    times: NDArray[np.int64],
    ends: NDArray[np.int64],
    probe_keys: NDArray[np.int64],
    from_us: NDArray[np.int64],
    until_us: NDArray[np.int64],
    alive_at_us: NDArray[np.int64],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
) -> int:
    """Find the range `[first, first + count)` of the run that each probe matches, and return the sum of counts.

    A row matches a probe when its key is equal, `from <= time <= until`, and its end reaches `alive_at`. Ends are
    monotone inside a group. An empty `ends` array means that there are no ends to check. An empty `slots` array means
    that all rows form one group.

    All probes find their group first, then all of them find their range in it. In loops this short, a branch
    misprediction for one probe does not delay the next. This halves the time of doing both steps probe by probe.
    """
    if slots.size:
        _find_groups(slots, group_keys, offsets, probe_keys, first, count)
    else:
        first[:] = 0
        count[:] = times.size
    total: int = _narrow_groups(times, ends, from_us, until_us, alive_at_us, first, count)
    return total


@subroutine
def _find_groups(
    slots: NDArray[np.int32],
    group_keys: NDArray[np.int64],
    offsets: NDArray[np.int32],
    keys: NDArray[np.int64],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
) -> None:
    """Find the whole group of each key. In between, `first` holds the slots and `count` the groups."""
    for probe in range(keys.size):
        first[probe] = _home_slot(slots, keys[probe])
    for probe in range(keys.size):
        count[probe] = slots[first[probe]]
    for probe in range(keys.size):
        group = count[probe]
        if group != _EMPTY and group_keys[group] != keys[probe]:
            group = slots[_find_slot(slots, group_keys, keys[probe], first[probe])]
        if group == _EMPTY:
            first[probe] = 0
            count[probe] = 0
        else:
            first[probe] = offsets[group]
            count[probe] = offsets[group + 1] - offsets[group]


@subroutine
def _narrow_groups(
    times: NDArray[np.int64],
    ends: NDArray[np.int64],
    from_us: NDArray[np.int64],
    until_us: NDArray[np.int64],
    alive_at_us: NDArray[np.int64],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
) -> int:
    """Narrow each group to the range inside the probe's bounds.

    A probe of the same group as the probe before it starts from that probe's range.
    """
    total = 0
    last = -1
    start, stop = 0, 0
    for probe in range(first.size):
        low = first[probe]
        high = low + count[probe]
        if high - low <= _SHORT_GROUP_ROWS:
            last = -1  # the next long group starts from its first row
            start = low
            while start < high and times[start] < from_us[probe]:
                start += 1
            if ends.size:
                while start < high and ends[start] < alive_at_us[probe]:
                    start += 1
            stop = start
            while stop < high and times[stop] <= until_us[probe]:
                stop += 1
        else:
            if low != last:
                last, start, stop = low, low, low
            start = gallop_to(times, low, high, start, from_us[probe])
            if ends.size:
                start = max(start, gallop_to(ends, low, high, start, alive_at_us[probe]))
            stop = max(start, gallop_to(times, low, high, stop, until_us[probe] + 1))
        first[probe] = start
        count[probe] = np.int32(stop - start)
        total += stop - start
    return total


@subroutine
def gallop_to(values: NDArray[np.int64], low: int, high: int, near: int, bound: int) -> int:
    """Return the first place in the sorted range `values[low:high]` whose value is at least `bound`.

    The search gallops from `near`.
    """
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
        right = min(near, high)
        left = right
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


@kernel(IN_INT32, IN_INT64, IN_INT32, INT, OUT_INT32, OUT_INT32, INT)
def fill_matches(
    rows: NDArray[np.int32],
    first: NDArray[np.int64],
    count: NDArray[np.int32],
    base: int,
    probes: NDArray[np.int32],
    matches: NDArray[np.int32],
    at: int,
) -> int:
    """Write (probe, base + row) for every match from place `at` on, and return the place after the last."""
    for probe in range(first.size):
        for place in range(first[probe], first[probe] + count[probe]):
            probes[at] = np.int32(probe)
            matches[at] = np.int32(base + rows[place])
            at += 1
    return at

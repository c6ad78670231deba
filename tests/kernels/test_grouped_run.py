"""The production access path against its plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from watersmeet.kernels import grouped_run
from watersmeet.kernels.grouped_run import (
    accumulate_maximum,
    count_matches,
    fill_matches,
    group_rows,
    group_rows_definition,
)

KEYS = st.integers(-4, 4) | st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-20, 20)


@given(st.lists(KEYS, max_size=60))
@settings(deadline=None)
def test_groups_hold_the_rows_of_each_key_in_their_order(keys: list[int]) -> None:
    _, group_keys, offsets, rows = group_rows(np.array(keys, np.int64))
    groups = {int(key): rows[offsets[g] : offsets[g + 1]].tolist() for g, key in enumerate(group_keys)}
    assert groups == group_rows_definition(np.array(keys, np.int64))


@pytest.mark.parametrize("distinct", [1, 7, 40_000])
def test_groups_are_right_in_runs_large_enough_to_be_partitioned(distinct: int) -> None:
    keys = np.random.default_rng(distinct).integers(0, distinct, 40_000)
    _, group_keys, offsets, rows = group_rows(keys)
    assert group_keys.size == np.unique(keys).size
    assert np.array_equal(keys[rows], np.repeat(group_keys, np.diff(offsets)))
    inside = np.diff(rows.astype(np.int64)) > 0
    inside[offsets[1:-1] - 1] = True
    assert inside.all()


@given(
    st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=40),
    st.lists(st.tuples(st.integers(0, 4), TIMES, st.integers(0, 15), TIMES), max_size=20),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_a_probe_matches_exactly_the_rows_of_its_key_inside_its_bounds(
    rows: list[tuple[int, int]], probes: list[tuple[int, int, int, int]], keyed: bool, with_ends: bool
) -> None:
    rows.sort(key=lambda row: row[1])
    keys, times = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    _check_matches(keys, times, probes, keyed, with_ends)


@pytest.mark.parametrize("with_ends", [False, True])
def test_probes_of_long_and_of_short_groups_in_turns(with_ends: bool) -> None:
    """Check both search paths in turn; a probe of a long group starts at the range of the probe before it."""
    random = np.random.default_rng(11)
    keys, times = np.where(np.arange(300) % 50, random.integers(0, 2, 300), 7), np.sort(random.integers(-20, 20, 300))
    assert np.bincount(keys)[[0, 1]].min() > grouped_run._SHORT_GROUP_ROWS >= np.bincount(keys)[7]
    asked = random.choice([0, 1, 2, 7], 500)
    starts, lengths, alive = random.integers(-20, 20, 500), random.integers(0, 15, 500), random.integers(-20, 20, 500)
    probes = list(zip(asked.tolist(), starts.tolist(), lengths.tolist(), alive.tolist(), strict=True))
    _check_matches(keys, times, probes, True, with_ends)


def _check_matches(
    keys: NDArray[np.int64],
    times: NDArray[np.int64],
    probes: list[tuple[int, int, int, int]],
    keyed: bool,
    with_ends: bool,
) -> None:
    ends = times // 5 * 5 + 4
    found = _matches(keys, times, ends if with_ends else np.empty(0, np.int64), probes, keyed)
    expected = [
        (p, r)
        for p, (key, start, length, alive) in enumerate(probes)
        for r in range(keys.size)
        if (key == keys[r] or not keyed) and start <= times[r] <= start + length and (not with_ends or ends[r] >= alive)
    ]
    assert sorted(found) == expected


def _matches(
    keys: NDArray[np.int64],
    times: NDArray[np.int64],
    ends: NDArray[np.int64],
    probes: list[tuple[int, int, int, int]],
    keyed: bool,
) -> list[tuple[int, int]]:
    if keyed:
        slots, group_keys, offsets, rows = group_rows(keys)
    else:
        slots, group_keys = np.empty(0, np.int32), np.empty(0, np.int64)
        offsets, rows = np.array([0, keys.size], np.int32), np.arange(keys.size, dtype=np.int32)
    columns = [np.array([probe[i] for probe in probes], np.int64) for i in range(4)]
    first, count = np.empty(len(probes), np.int64), np.empty(len(probes), np.int32)
    run_ends = accumulate_maximum(ends[rows], offsets) if ends.size else ends
    total = count_matches(
        slots,
        group_keys,
        offsets,
        times[rows],
        run_ends,
        columns[0],
        columns[1],
        columns[1] + columns[2],
        columns[3],
        first,
        count,
    )
    out = np.empty(total, np.int32), np.empty(total, np.int32)
    assert fill_matches(rows, first, count, 0, *out, 0) == total
    return list(zip(out[0].tolist(), out[1].tolist(), strict=True))


def test_a_running_maximum_restarts_in_each_group() -> None:
    ends = np.array([5, 3, 9, 1, 2, 0], np.int64)
    assert accumulate_maximum(ends, np.array([0, 3, 6], np.int32)).tolist() == [5, 5, 9, 1, 2, 2]


def test_small_and_large_runs_take_different_paths() -> None:
    assert grouped_run._SMALL_RUN_ROWS < 40_000, "otherwise the test of partitioned runs tests nothing"

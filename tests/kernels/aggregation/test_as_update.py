"""The AS update against its definition: each instant emits the groups it changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.aggregation.arguments import NONE, OPEN, AggregationSet, EmittedGroups
from watersmeet.kernels.aggregation.as_update import as_update, as_update_definition

GROUPS = 6

Listed = list[tuple[int, int, int, int]]


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, GROUPS - 1), st.integers(-2, 3), st.integers(-9, 9)), max_size=60
    ),
    st.lists(st.integers(0, 60), max_size=4),
)
@settings(deadline=None)
def test_each_instant_emits_the_groups_it_changed(listed: Listed, cuts: list[int]) -> None:
    listed.sort(key=lambda result: result[0])
    assert _emit_groups(listed, sorted(cuts)) == as_update_definition(listed)


def _emit_groups(listed: Listed, cuts: list[int]) -> list[tuple[int, int, tuple[int, int], tuple[int, int]]]:
    """Update in pieces: an instant that is open at the end of one piece continues in the next."""
    result, found = _empty_set(), []
    pieces = [listed[start:end] for start, end in zip([0, *cuts], [*cuts, len(listed)], strict=True)]
    for number, piece in enumerate(pieces):
        closing = listed[-1][0] if listed and number == len(pieces) - 1 else NONE
        instants, groups, rows, amounts = (np.array([each[place] for each in piece], np.int64) for place in range(4))
        ints, approx = np.stack([rows, amounts], axis=1), amounts[:, None].astype(np.float64)
        pairs = np.stack([amounts * 0.5, np.zeros(amounts.size)], axis=1)
        start = 0
        while start <= groups.size:
            room = _room()
            start, shown = as_update(groups, instants, ints, approx, pairs, result, room, start, closing)
            found += [_row(room, at) for at in range(shown)]
    return found


def _row(room: EmittedGroups, at: int) -> tuple[int, int, tuple[int, int], tuple[int, int]]:
    now, before = (
        (int(room.ints[at, 0]), int(room.ints[at, 1])),
        (int(room.before_ints[at, 0]), int(room.before_ints[at, 1])),
    )
    assert (room.approx[at, 0], room.before_approx[at, 0]) == (now[1], before[1])
    assert (room.pairs[at].sum(), room.before_pairs[at].sum()) == (now[1] / 2, before[1] / 2)
    return int(room.instant[at]), int(room.group[at]), now, before


def _columns() -> tuple[Any, Any, Any]:
    return np.zeros((GROUPS, 2), np.int64), np.zeros((GROUPS, 1)), np.zeros((GROUPS, 2))


def _empty_set() -> AggregationSet:
    progress = np.array([0, 0], np.int64)
    progress[OPEN] = NONE
    return AggregationSet(*_columns(), *_columns(), np.zeros(GROUPS, np.int64), np.zeros(GROUPS, np.bool_), progress)


def _room() -> EmittedGroups:
    return EmittedGroups(np.zeros(GROUPS, np.int64), np.zeros(GROUPS, np.int64), *_columns(), *_columns())

"""The AS update of a query's aggregation set: signed results are added to their groups, and each instant shows the groups it changed.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", definition 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import DIRTY, NONE, OPEN, RESULT, Int64s, Result
from watersmeet.kernels.aggregation.double_double import add_pair
from watersmeet.kernels.compile import IN_FLOAT64_2D, IN_INT64, IN_INT64_2D, INT, kernel, piece


@kernel(IN_INT64, IN_INT64, IN_INT64_2D, IN_FLOAT64_2D, IN_FLOAT64_2D, RESULT, INT)
def as_update(
    groups: NDArray[np.int64],
    instants: NDArray[np.int64],
    ints: NDArray[np.int64],
    approx: NDArray[np.float64],
    pairs: NDArray[np.float64],
    result: Result,
    closing: int,
) -> tuple[Int64s, Int64s, Int64s, Int64s, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Adds results, which come by instant, to their groups.

    When an instant is over, the groups that changed since they were last shown are shown: their instant, number, sums, and the sums shown
    before. The last instant stays open unless `closing` is its number (or any, where nothing came); −1 leaves it open.
    """
    room = 1024
    at_instant, group_of = np.empty(room, np.int64), np.empty(room, np.int64)
    now_ints, then_ints = np.empty((room, ints.shape[1]), np.int64), np.empty((room, ints.shape[1]), np.int64)
    now_approx, then_approx = np.empty((room, approx.shape[1])), np.empty((room, approx.shape[1]))
    now_pairs, then_pairs = np.empty((room, pairs.shape[1])), np.empty((room, pairs.shape[1]))
    shown, clock = 0, result.clock
    for at in range(groups.size + 1):
        over = at == groups.size
        if (over and closing != NONE) or (not over and clock[OPEN] not in (NONE, instants[at])):
            instant = clock[OPEN] if clock[OPEN] != NONE else closing
            while shown + clock[DIRTY] > room:
                room *= 2
                at_instant, group_of = _longer(at_instant, room), _longer(group_of, room)
                now_ints, then_ints = _taller(now_ints, room), _taller(then_ints, room)
                now_approx, then_approx = _taller_floats(now_approx, room), _taller_floats(then_approx, room)
                now_pairs, then_pairs = _taller_floats(now_pairs, room), _taller_floats(then_pairs, room)
            for place in range(clock[DIRTY]):
                group = result.dirty[place]
                result.is_dirty[group] = False
                at_instant[shown], group_of[shown] = instant, group
                now_ints[shown], then_ints[shown] = result.ints[group], result.shown_ints[group]
                now_approx[shown], then_approx[shown] = result.approx[group], result.shown_approx[group]
                now_pairs[shown], then_pairs[shown] = result.pairs[group], result.shown_pairs[group]
                result.shown_ints[group] = result.ints[group]
                result.shown_approx[group] = result.approx[group]
                result.shown_pairs[group] = result.pairs[group]
                shown += 1
            clock[DIRTY] = 0
            clock[OPEN] = NONE
        if over:
            break
        clock[OPEN] = instants[at]
        _add(result, groups[at], ints[at], approx[at], pairs[at])
    return (
        at_instant[:shown],
        group_of[:shown],
        now_ints[:shown],
        then_ints[:shown],
        now_approx[:shown],
        then_approx[:shown],
        now_pairs[:shown],
        then_pairs[:shown],
    )


@piece
def _add(result: Result, group: int, ints: NDArray[np.int64], approx: NDArray[np.float64], pairs: NDArray[np.float64]) -> None:
    """One result. A group of no rows has sums that are exactly nothing, so rounding never outlives a group."""
    if not result.is_dirty[group]:
        result.is_dirty[group] = True
        result.dirty[result.clock[DIRTY]] = group
        result.clock[DIRTY] += 1
    result.ints[group, 0] += ints[0]
    empty = result.ints[group, 0] == 0
    for column in range(1, ints.size):
        result.ints[group, column] = 0 if empty else result.ints[group, column] + ints[column]
    for column in range(approx.size):
        result.approx[group, column] = 0.0 if empty else result.approx[group, column] + approx[column]
    for column in range(0, pairs.size, 2):
        high, low = add_pair(result.pairs[group, column], result.pairs[group, column + 1], pairs[column], pairs[column + 1])
        result.pairs[group, column] = 0.0 if empty else high
        result.pairs[group, column + 1] = 0.0 if empty else low


@piece
def _longer(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    grown = np.empty(size, np.int64)
    grown[: values.size] = values
    return grown


@piece
def _taller(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    grown = np.empty((size, values.shape[1]), np.int64)
    grown[: values.shape[0]] = values
    return grown


@piece
def _taller_floats(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    grown = np.empty((size, values.shape[1]), np.float64)
    grown[: values.shape[0]] = values
    return grown

"""The AS update: add signed results to the groups of an aggregation set, and emit the changed groups per instant.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", definition 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import DIRTY, NONE, OPEN, RESULT, SHOWN, AggregationSet, EmittedGroups
from watersmeet.kernels.aggregation.double_double import add_pair
from watersmeet.kernels.compile import IN_FLOAT64_2D, IN_INT64, IN_INT64_2D, INT, kernel


@kernel(IN_INT64, IN_INT64, IN_INT64_2D, IN_FLOAT64_2D, IN_FLOAT64_2D, RESULT, SHOWN, INT, INT, allocates=False)
def as_update(  # one loop: see `as_join`
    groups: NDArray[np.int64],
    instants: NDArray[np.int64],
    ints: NDArray[np.int64],
    approx: NDArray[np.float64],
    pairs: NDArray[np.float64],
    result: AggregationSet,
    out: EmittedGroups,
    start: int,
    closing: int,
) -> tuple[int, int]:
    """Add results, sorted by instant, to their groups from `start` on; return the next result and the groups emitted.

    At the end of an instant, the groups that changed since they were last emitted are emitted. The last instant stays
    open unless `closing` is its number (or any number, if there were no results); −1 leaves it open. A result number
    one beyond the last means that everything is done. `out` has room for all groups, and a call ends before it would
    overflow.

    A group of no rows has sums that are exactly zero, so rounding never outlives a group.
    """
    to_ints, to_approx, to_pairs = result.ints, result.approx, result.pairs
    old_ints, old_approx, old_pairs = result.shown_ints, result.shown_approx, result.shown_pairs
    dirty, is_dirty, clock = result.dirty, result.is_dirty, result.clock
    out_ints, out_approx, out_pairs = out.ints, out.approx, out.pairs
    was_ints, was_approx, was_pairs = out.before_ints, out.before_approx, out.before_pairs
    out_instant, out_group = out.instant, out.group
    shown = 0
    for at in range(start, groups.size + 1):
        over = at == groups.size
        if (over and closing != NONE) or (not over and clock[OPEN] != NONE and clock[OPEN] != instants[at]):
            if shown + clock[DIRTY] > out_group.size:
                return at, shown
            instant = clock[OPEN] if clock[OPEN] != NONE else closing
            for place in range(clock[DIRTY]):
                group = dirty[place]
                is_dirty[group] = False
                out_instant[shown] = instant
                out_group[shown] = group
                for column in range(to_ints.shape[1]):
                    out_ints[shown, column] = to_ints[group, column]
                    was_ints[shown, column] = old_ints[group, column]
                    old_ints[group, column] = to_ints[group, column]
                for column in range(to_approx.shape[1]):
                    out_approx[shown, column] = to_approx[group, column]
                    was_approx[shown, column] = old_approx[group, column]
                    old_approx[group, column] = to_approx[group, column]
                for column in range(to_pairs.shape[1]):
                    out_pairs[shown, column] = to_pairs[group, column]
                    was_pairs[shown, column] = old_pairs[group, column]
                    old_pairs[group, column] = to_pairs[group, column]
                shown += 1
            clock[DIRTY] = 0
            clock[OPEN] = NONE
        if over:
            break
        clock[OPEN] = instants[at]
        group = groups[at]
        if not is_dirty[group]:
            is_dirty[group] = True
            dirty[clock[DIRTY]] = group
            clock[DIRTY] += 1
        to_ints[group, 0] += ints[at, 0]
        empty = to_ints[group, 0] == 0
        for column in range(1, ints.shape[1]):
            to_ints[group, column] = 0 if empty else to_ints[group, column] + ints[at, column]
        for column in range(approx.shape[1]):
            to_approx[group, column] = 0.0 if empty else to_approx[group, column] + approx[at, column]
        for column in range(0, pairs.shape[1], 2):
            high, low = add_pair(
                to_pairs[group, column], to_pairs[group, column + 1], pairs[at, column], pairs[at, column + 1]
            )
            to_pairs[group, column] = 0.0 if empty else high
            to_pairs[group, column + 1] = 0.0 if empty else low
    return groups.size + 1, shown


def as_update_definition(
    results: Sequence[tuple[int, int, int, int]],
) -> list[tuple[int, int, tuple[int, int], tuple[int, int]]]:
    """Emit, at the end of each instant, every group that a result was added to: the law.

    Each is emitted with its totals and those emitted before. A result is its instant, its group, its rows and the
    amount it adds to a sum; totals are rows and sum. A group of no rows has no sum.

    >>> as_update_definition([(0, 5, 2, 10), (0, 5, 1, 3), (4, 5, -3, -13)])
    [(0, 5, (3, 13), (0, 0)), (4, 5, (0, 0), (3, 13))]
    """
    totals: dict[int, tuple[int, int]] = {}
    shown = []
    for instant, of_instant in groupby(results, key=lambda result: result[0]):
        before = dict(totals)
        changed: dict[int, None] = {}
        for _, group, rows, amount in of_instant:
            changed[group] = None
            counted, total = totals.get(group, (0, 0))
            totals[group] = (counted + rows, total + amount) if counted + rows else (0, 0)
        shown += [(instant, group, totals[group], before.get(group, (0, 0))) for group in changed]
    return shown

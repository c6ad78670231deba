"""The AS update: add signed results to the groups of an aggregation set, and emit the changed groups per instant.

References: Tran, Lee, "Transformation of Continuous Aggregation Join Queries over Data Streams", definition 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import (
    AGGREGATION_SET,
    DIRTY,
    EMITTED_GROUPS,
    NONE,
    OPEN,
    AggregationSet,
    EmittedGroups,
)
from watersmeet.kernels.aggregation.double_double import add_pair
from watersmeet.kernels.compile import IN_FLOAT64_2D, IN_INT64, IN_INT64_2D, INT, kernel


@kernel(
    IN_INT64,
    IN_INT64,
    IN_INT64_2D,
    IN_FLOAT64_2D,
    IN_FLOAT64_2D,
    AGGREGATION_SET,
    EMITTED_GROUPS,
    INT,
    INT,
    allocates=False,
)
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
    old_ints, old_approx, old_pairs = result.emitted_ints, result.emitted_approx, result.emitted_pairs
    dirty, is_dirty, progress = result.dirty, result.is_dirty, result.progress
    out_ints, out_approx, out_pairs = out.ints, out.approx, out.pairs
    was_ints, was_approx, was_pairs = out.before_ints, out.before_approx, out.before_pairs
    out_instant, out_group = out.instant, out.group
    emitted = 0
    for at in range(start, groups.size + 1):
        over = at == groups.size
        if (over and closing != NONE) or (not over and progress[OPEN] != NONE and progress[OPEN] != instants[at]):
            if emitted + progress[DIRTY] > out_group.size:
                return at, emitted
            instant = progress[OPEN] if progress[OPEN] != NONE else closing
            for place in range(progress[DIRTY]):
                group = dirty[place]
                is_dirty[group] = False
                out_instant[emitted] = instant
                out_group[emitted] = group
                for column in range(to_ints.shape[1]):
                    out_ints[emitted, column] = to_ints[group, column]
                    was_ints[emitted, column] = old_ints[group, column]
                    old_ints[group, column] = to_ints[group, column]
                for column in range(to_approx.shape[1]):
                    out_approx[emitted, column] = to_approx[group, column]
                    was_approx[emitted, column] = old_approx[group, column]
                    old_approx[group, column] = to_approx[group, column]
                for column in range(to_pairs.shape[1]):
                    out_pairs[emitted, column] = to_pairs[group, column]
                    was_pairs[emitted, column] = old_pairs[group, column]
                    old_pairs[group, column] = to_pairs[group, column]
                emitted += 1
            progress[DIRTY] = 0
            progress[OPEN] = NONE
        if over:
            break
        progress[OPEN] = instants[at]
        group = groups[at]
        if not is_dirty[group]:
            is_dirty[group] = True
            dirty[progress[DIRTY]] = group
            progress[DIRTY] += 1
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
    return groups.size + 1, emitted


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
    emitted = []
    for instant, of_instant in groupby(results, key=lambda result: result[0]):
        before = dict(totals)
        changed: dict[int, None] = {}
        for _, group, rows, amount in of_instant:
            changed[group] = None
            counted, total = totals.get(group, (0, 0))
            totals[group] = (counted + rows, total + amount) if counted + rows else (0, 0)
        emitted += [(instant, group, totals[group], before.get(group, (0, 0))) for group in changed]
    return emitted

"""Early aggregation of what changes: all rows that enter and leave an entry at one instant are one change.

What a window looks like between two instants is never shown, so only the difference counts. A change then costs as much
as its entry's matches, once per instant, however many rows are behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.aggregation.arguments import CHANGES, NONE, Changes
from watersmeet.kernels.aggregation.double_double import add_pair
from watersmeet.kernels.compile import OUT_INT64, kernel


@kernel(CHANGES, OUT_INT64, allocates=False)
def net_changes(changes: Changes, place_of: NDArray[np.int64]) -> int:
    """Adds the changes of one entry at one instant together, in place; returns how many are left. They come by instant.

    `place_of` has a place per entry. What stands there from before does no harm: a place counts only where the entry
    itself stands.
    """
    change_input, entry, rows = changes.input, changes.entry, changes.rows
    ints, approx, pairs, instant = changes.ints, changes.approx, changes.pairs, changes.instant
    used = 0
    for at in range(entry.size):
        place = place_of[entry[at]]
        if place != NONE and place < used and entry[place] == entry[at] and instant[place] == instant[at]:
            rows[place] += rows[at]
            for column in range(ints.shape[1]):
                ints[place, column] += ints[at, column]
            for column in range(approx.shape[1]):
                approx[place, column] += approx[at, column]
            for column in range(0, pairs.shape[1], 2):
                high, low = add_pair(
                    pairs[place, column], pairs[place, column + 1], pairs[at, column], pairs[at, column + 1]
                )
                pairs[place, column] = high
                pairs[place, column + 1] = low
            continue
        place_of[entry[at]] = used
        change_input[used], entry[used], rows[used], instant[used] = change_input[at], entry[at], rows[at], instant[at]
        for column in range(ints.shape[1]):
            ints[used, column] = ints[at, column]
        for column in range(approx.shape[1]):
            approx[used, column] = approx[at, column]
        for column in range(pairs.shape[1]):
            pairs[used, column] = pairs[at, column]
        used += 1
    return used


def net_changes_definition(changes: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """The law, for rows alone: (instant, entry, rows) summed up by instant and entry.

    >>> net_changes_definition([(0, 7, 1), (0, 7, -1), (1, 7, 1)])
    {(0, 7): 0, (1, 7): 1}
    """
    found: dict[tuple[int, int], Any] = {}
    for instant, entry, rows in changes:
        found[instant, entry] = found.get((instant, entry), 0) + rows
    return found

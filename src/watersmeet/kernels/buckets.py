"""Buckets of a hash table as ranges of one array, in arrival order, with room to grow.

New rows go to the end of their bucket's range, and expired rows leave at its front. A bucket without room slides to the
start of its range if at least half of that is out of use, and otherwise moves to a larger range. So a row is copied a
constant number of times on average, and a scan walks memory forwards.

A bucket consists of the places `heads … tails - 1`. Its range is `starts … limits - 1`. The rows before its head have
expired, but rows from `first_row` on may return: a later batch can bring earlier rows, which they match.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, INT, OUT_INT64, kernel

Int64s = NDArray[np.int64]


@kernel(IN_INT64, *[OUT_INT64] * 9, INT, INT)
def make_room(
    arriving: Int64s,
    incoming: Int64s,
    starts: Int64s,
    limits: Int64s,
    heads: Int64s,
    tails: Int64s,
    placed_row: Int64s,
    placed_first: Int64s,
    placed_second: Int64s,
    used: Int64s,
    stop: int,
    first_row: int,
) -> bool:
    """Make room for new rows, given the bucket of each; return False if the array is full.

    `incoming` has a zero per bucket, before and after the call. A row has a number and two values. If `placed_second`
    is empty, it has one value. The places from `used[0]` up to `stop` are free.
    """
    for bucket in arriving:
        incoming[bucket] += 1
    enough = True
    for bucket in arriving:
        count = incoming[bucket]
        incoming[bucket] = 0
        if count == 0 or tails[bucket] + count <= limits[bucket] or not enough:
            continue
        start = first = starts[bucket]
        while first < heads[bucket] and placed_row[first] < first_row:
            first += 1
        kept = tails[bucket] - first
        if first - start < kept or start + kept + count > limits[bucket]:
            start, room = used[0], 2 * (kept + count)
            if start + room > stop:
                enough = False
                continue
            used[0] += room
            starts[bucket], limits[bucket] = start, start + room
        for place in range(kept):
            placed_row[start + place] = placed_row[first + place]
            placed_first[start + place] = placed_first[first + place]
            if placed_second.size:
                placed_second[start + place] = placed_second[first + place]
        heads[bucket] += start - first
        tails[bucket] = start + kept
    return enough

"""What every algorithm in this package returns, as a loop over all combinations."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray


def window_join_definition(
    times: NDArray[np.int64],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    old: NDArray[np.int64],
    window_us: int,
    reach_us: NDArray[np.int64],
) -> list[tuple[int, ...]]:
    """Combinations of one row per stream with equal codes, every two rows inside the window of both their streams, not
    all of them old.

    Two rows of streams s and r may be `min(window_us, reach_us[s], reach_us[r])` apart. With one window for all pairs
    that is `max ts - min ts <= window_us`. Rows are numbered from the start of their own stream.

    >>> times, codes = np.array([0, 50, 10, 60]), np.array([7, 7, 7, 7])
    >>> window_join_definition(times, codes, np.array([0, 2, 4]), np.array([1, 1]), 10, np.array([10, 10]))
    [(1, 1)]

    References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002), sections 3 and
    5.1.
    """
    apart = {
        pair: min(window_us, int(reach_us[pair[0]]), int(reach_us[pair[1]]))
        for pair in combinations(range(old.size), 2)
    }
    streams = [range(int(size)) for size in np.diff(offsets)]
    start, before = offsets.tolist(), old.tolist()
    time, code = times.tolist(), codes.tolist()
    found = []
    for rows in product(*streams):
        places = [start[s] + row for s, row in enumerate(rows)]
        same = len({code[place] for place in places}) == 1
        fresh = any(row >= before[s] for s, row in enumerate(rows))
        if same and fresh and all(abs(time[places[s]] - time[places[r]]) <= most for (s, r), most in apart.items()):
            found.append(rows)
    return found

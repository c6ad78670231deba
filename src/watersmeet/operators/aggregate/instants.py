"""When an aggregation is evaluated: of all instants only those at which a row enters or leaves a window, because no
other can differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US

Int64s = NDArray[np.int64]


def find_evaluation_instants(
    starts_us: list[Int64s], ends_us: list[Int64s], every_us: int, after_us: int, until_us: int
) -> Int64s:
    """Return the multiples of `every_us` since the epoch, after one instant and up to another, at which a row has
    entered or left a window.

    `starts_us` and `ends_us` are, by input, the first and the last instants of the rows.
    """
    candidates = [_round_up_to_multiple(each, every_us) for each in starts_us]
    candidates += [_round_up_to_multiple(each[each < FOREVER_US] + 1, every_us) for each in ends_us]
    inside = [each[(each > after_us) & (each <= until_us)] for each in candidates]
    return np.unique(np.concatenate(inside))


def _round_up_to_multiple(times_us: Int64s, every_us: int) -> Int64s:
    """The first multiple at or after each time.

    >>> _round_up_to_multiple(np.array([-1, 0, 1, 10]), 10).tolist()
    [0, 0, 10, 10]
    """
    return -(-times_us // every_us) * every_us

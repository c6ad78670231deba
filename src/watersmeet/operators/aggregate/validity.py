"""Validity of rows in an aggregation, and evaluation instants.

A row is valid from the first to the last instant at which it is in its window. Its window knows both
(`algebra.windows`), except where later rows decide when a counted row ends (`window_join.admission`). The rows of a
relation, and of a stream without a window, never end.

Only instants at which a row enters or leaves a window are evaluated, because no other instant can differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US, Window

Int64s = NDArray[np.int64]


def row_starts_us(window: Window | None, times: Int64s, every_us: int | None) -> Int64s:
    """Return the first instant at which each row is in its window."""
    return times if window is None else window.row_starts_us(times, every_us)


def row_ends_us(window: Window | None, times: Int64s, every_us: int | None) -> Int64s:
    """Return the last instant at which each row is in its window."""
    return np.full(times.size, FOREVER_US, np.int64) if window is None else window.row_ends_us(times, every_us)


def last_instant_us(windows: Iterable[Window | None], largest_us: int) -> int:
    """Return the last instant evaluated when a finite input ends: the latest that a window asks for."""
    if largest_us <= -FOREVER_US:
        return largest_us
    return max([largest_us, *(each.last_instant_us(largest_us) for each in windows if each is not None)])


def find_evaluation_instants(
    starts_us: list[Int64s], ends_us: list[Int64s], every_us: int, after_us: int, until_us: int
) -> Int64s:
    """Return the multiples of `every_us` since the epoch at which a row has entered or left a window.

    Only multiples after `after_us` and up to `until_us` count. `starts_us` and `ends_us` hold, by input, the first and
    last instants of the rows.
    """
    candidates = [_round_up_to_multiple(each, every_us) for each in starts_us]
    candidates += [_round_up_to_multiple(each[each < FOREVER_US] + 1, every_us) for each in ends_us]
    inside = [each[(each > after_us) & (each <= until_us)] for each in candidates]
    return np.unique(np.concatenate(inside))


def _round_up_to_multiple(times_us: Int64s, every_us: int) -> Int64s:
    """Return the first multiple at or after each time.

    >>> _round_up_to_multiple(np.array([-1, 0, 1, 10]), 10).tolist()
    [0, 0, 10, 10]
    """
    return -(-times_us // every_us) * every_us

"""Validity of rows in an aggregation, and evaluation instants.

A row is valid from the first to the last instant at which it is in its window. With EVERY, a TUMBLE window shows its
finished tile: a row of tile k (`kT <= ts < (k + 1)T`) is valid during `[max(ts, kT + 1 µs), (k + 1)T]`. So the instant
at which a tile ends sees all of that tile and nothing of the next. Without EVERY, and in joins without aggregation, a
row of tile k is valid during `[ts, (k + 1)T - 1 µs]`.

ROWS windows are not here: later rows decide when a counted row ends (`window_join.admission`).

Only instants at which a row enters or leaves a window are evaluated, because no other instant can differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.windows import FOREVER_US, RangeWindow, TumbleWindow, Window

Int64s = NDArray[np.int64]


def row_starts_us(window: Window | None, times: Int64s, every_us: int | None) -> Int64s:
    """Return the first instant at which each row is in its window.

    >>> row_starts_us(TumbleWindow(10), np.array([-10, 0, 5]), every_us=10).tolist()
    [-9, 1, 5]
    >>> row_starts_us(TumbleWindow(10), np.array([-10, 0, 5]), every_us=None).tolist()
    [-10, 0, 5]
    """
    if every_us is None or not isinstance(window, TumbleWindow):
        return times
    return np.where(times % window.length_us == 0, times + 1, times)


def row_ends_us(window: Window | None, times: Int64s, every_us: int | None) -> Int64s:
    """Return the last instant at which each row is in its window.

    >>> row_ends_us(TumbleWindow(10), np.array([-10, 0, 5]), every_us=10).tolist()
    [0, 10, 10]
    >>> row_ends_us(TumbleWindow(10), np.array([-10, 0, 5]), every_us=None).tolist()
    [-1, 9, 9]
    """
    match window:
        case RangeWindow(length_us):
            return times + length_us
        case TumbleWindow(length_us):
            next_tile_us = (times // length_us + 1) * length_us
            return next_tile_us if every_us is not None else next_tile_us - 1
        case _:
            return np.full(times.size, FOREVER_US, np.int64)


def last_instant_us(windows: Iterable[Window | None], largest_us: int) -> int:
    """Return the last instant evaluated when a finite input ends: the largest time, or the end of its tile if later.

    >>> last_instant_us([RangeWindow(7)], 23), last_instant_us([TumbleWindow(10), TumbleWindow(4), RangeWindow(7)], 23)
    (23, 30)
    """
    if largest_us <= -FOREVER_US:
        return largest_us
    tile_ends_us = [
        (largest_us // each.length_us + 1) * each.length_us for each in windows if isinstance(each, TumbleWindow)
    ]
    return max([largest_us, *tile_ends_us])


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

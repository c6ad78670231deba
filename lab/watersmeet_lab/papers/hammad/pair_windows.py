"""Windows per pair of streams, and the recheck of the results.

GCA joins with the largest window for all streams, LCA with the largest window per stream.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.wjoin.mw_join import mw_join
from watersmeet.kernels.wjoin.nlw_join import nlw_join
from watersmeet.kernels.wjoin.outputs import WindowJoinResult
from watersmeet_lab.papers.hammad.arrival_streams import Int64s
from watersmeet_lab.papers.hammad.service_time import NLW, KernelRows, TimedKernel

GCA, LCA = "GCA", "LCA"

#: Decides which combinations, given as the times of their rows per stream, are results.
ResultFilter = Callable[[list[Int64s]], NDArray[np.bool_]]


def refined_kernel(name: str, pairs_us: Int64s, is_result: ResultFilter) -> TimedKernel:
    """Return a kernel whose results are rechecked.

    GCA is MW-join with the largest window, LCA is MW-join with each stream's largest, and NLW is NLW-join with each
    stream's largest.
    """
    largest = pairs_us.max(axis=1)
    window_us = int(largest.max())
    reach = np.full(len(largest), window_us, np.int64) if name == GCA else largest
    kernel = nlw_join if name == NLW else mw_join

    def join(rows: KernelRows) -> WindowJoinResult:
        found = kernel(rows.times, rows.codes, rows.offsets, rows.old, window_us, reach)
        times = [rows.times[start + found.rows[stream]] for stream, start in enumerate(rows.offsets[:-1])]
        kept = found.rows[:, is_result(times)]
        return WindowJoinResult(kept, found.counters)

    return TimedKernel(join, window_us)


def within_pairs(pairs_us: Int64s) -> ResultFilter:
    """Accept results in which every two rows are within the window of their pair."""

    def is_result(times: list[Int64s]) -> NDArray[np.bool_]:
        kept = np.ones(times[0].size, np.bool_)
        for one in range(len(times)):
            for other in range(one):
                kept &= np.abs(times[one] - times[other]) <= pairs_us[one, other]
        return kept

    return is_result


def along_path(steps_us: Int64s) -> ResultFilter:
    """Accept results whose rows follow their neighbours within the step's window, all forwards or all backwards."""

    def is_result(times: list[Int64s]) -> NDArray[np.bool_]:
        forth, back = np.ones(times[0].size, np.bool_), np.ones(times[0].size, np.bool_)
        for at, step in enumerate(steps_us):
            ahead = times[at + 1] - times[at]
            forth &= (ahead >= 0) & (ahead <= step)
            back &= (ahead <= 0) & (-ahead <= step)
        return forth | back

    return is_result


def path_pair_windows(steps_us: Int64s) -> Int64s:
    """Return the windows of all pairs of a path: the sum of the steps between them.

    >>> path_pair_windows(np.array([1, 2])).tolist()
    [[0, 1, 3], [1, 0, 2], [3, 2, 0]]
    """
    along = np.concatenate([[0], np.cumsum(steps_us)]).astype(np.int64)
    return np.asarray(np.abs(along[:, None] - along[None, :]), np.int64)

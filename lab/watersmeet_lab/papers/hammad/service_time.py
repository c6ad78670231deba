"""Service time per tuple, averaged over blocks of 1,000: the time of a kernel for a block, given its buffers.

A kernel is called once per block, with the rows in its buffers as old rows. Building the buffers from the old rows is
not part of serving a tuple, so it is measured separately, with a block of a single row, and subtracted. The comparisons
are exact.

A call first evicts old rows that cannot match any of its new rows. So rows that were kept only because a slow stream
sent nothing are not read again in the next block. Comparisons equal those of one call over all tuples. The same holds
for rows read, except in Figure 9c, whose text mentions it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.kernels.wjoin.hw_join import hw_join
from watersmeet.kernels.wjoin.mw_join import mw_join
from watersmeet.kernels.wjoin.nlw_join import nlw_join
from watersmeet.kernels.wjoin.outputs import WindowJoinResult
from watersmeet.kernels.wjoin.ripple_join import CLEAN_UP_EVERY, ripple_join, xjoin
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.hammad.arrival_streams import ArrivalSequence, Int64s

BLOCK = 1000
BUCKETS = 128
_NEVER = 1 << 40

NLW, HW, MW, RIPPLE, XJOIN = "NLW-join", "HW-join", "MW-join", "ripple join", "XJoin"


@dataclass(frozen=True, slots=True)
class KernelRows:
    """Arguments of a kernel: rows stream after stream, and the number of old rows of each stream."""

    times: Int64s
    codes: Int64s
    offsets: Int64s
    old: Int64s


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """A kernel with its window.

    Most kernels keep only the rows in reach. A kernel that cleans up every `cleanup_rows` rows keeps the rows that were
    in reach at its last clean-up, and all rows since.
    """

    join: Callable[[KernelRows], WindowJoinResult]
    window_us: int
    cleanup_rows: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Microseconds and comparisons per tuple, by block.

    `tuples` counts the tuples of all streams up to the end of each block. `out_of_window_share` is the share of the
    rows read that are outside the window.
    """

    tuples: tuple[float, ...]
    us_per_tuple: tuple[float, ...]
    comparisons: tuple[float, ...]
    out_of_window_share: float = 0.0

    @property
    def mean_us(self) -> float:
        return float(np.mean(self.us_per_tuple))

    @property
    def mean_comparisons(self) -> float:
        return float(np.mean(self.comparisons))


def list_kernels(
    names: Sequence[str], window_us: int, reach_us: Sequence[int], buckets: int = BUCKETS
) -> dict[str, TimedKernel]:
    """Return the kernels by the paper's names.

    `reach_us` is the window of each stream; no two rows of a result are farther apart than `window_us`.
    """
    reach, tables = np.array(reach_us, np.int64), np.full(len(reach_us), buckets, np.int64)
    known = {
        NLW: TimedKernel(lambda r: nlw_join(r.times, r.codes, r.offsets, r.old, window_us, reach), window_us),
        HW: TimedKernel(lambda r: hw_join(r.times, r.codes, r.offsets, r.old, window_us, reach, tables), window_us),
        MW: TimedKernel(lambda r: mw_join(r.times, r.codes, r.offsets, r.old, window_us, reach), window_us),
        RIPPLE: TimedKernel(
            lambda r: ripple_join(r.times, r.codes, r.offsets, r.old, window_us, reach, _NEVER),
            window_us,
            CLEAN_UP_EVERY,
        ),
        XJOIN: TimedKernel(
            lambda r: xjoin(r.times, r.codes, r.offsets, r.old, window_us, reach, tables, _NEVER),
            window_us,
            CLEAN_UP_EVERY,
        ),
    }
    return {name: known[name] for name in names}


def measure_service_times(
    effort: Effort, arrivals: ArrivalSequence, chosen: Mapping[str, TimedKernel], first: int = 0, block: int = BLOCK
) -> dict[str, ServiceTimes]:
    """Measure each algorithm on the blocks from row number `first` on; the algorithms run in turns in every block."""
    starts = range(first, len(arrivals) - block + 1, block)
    points: dict[str, list[tuple[float, float, float]]] = {name: [] for name in chosen}
    for start in starts:
        cases = {
            name: (_block_rows(arrivals, each, start, block), _block_rows(arrivals, each, start, 1))
            for name, each in chosen.items()
        }
        spent = _measure_block(effort, {name: (chosen[name].join, *case) for name, case in cases.items()})
        for name, (seconds, comparisons, touched) in spent.items():
            points[name].append((1e6 * seconds / (block - 1), comparisons / block, touched / block))
    places = tuple(float(start + block) for start in starts)
    return {name: _to_service_times(places, each) for name, each in points.items()}


def _to_service_times(places: tuple[float, ...], points: list[tuple[float, float, float]]) -> ServiceTimes:
    us, comparisons, touched = (tuple(column) for column in zip(*points, strict=True))
    return ServiceTimes(places, us, comparisons, 1 - sum(comparisons) / sum(touched) if sum(touched) else 0.0)


def _measure_block(
    effort: Effort, cases: Mapping[str, tuple[Callable[[KernelRows], WindowJoinResult], KernelRows, KernelRows]]
) -> dict[str, tuple[float, float, float]]:
    """Return the seconds of the block beyond those of its first row, the rows compared and the rows read."""
    gc.collect()
    whole, single = dict.fromkeys(cases, np.inf), dict.fromkeys(cases, np.inf)
    work = dict.fromkeys(cases, (0.0, 0.0))
    for _ in range(max(2, effort.repeats)):
        for name, (join, rows, first_row) in cases.items():
            seconds, joined = _time_call(join, rows)
            work[name] = float(joined.counters.comparisons.sum()), float(joined.counters.touched.sum())
            whole[name] = min(whole[name], seconds)
            single[name] = min(single[name], _time_call(join, first_row)[0])
    return {name: (max(0.0, whole[name] - single[name]), *work[name]) for name in cases}


def _time_call(join: Callable[[KernelRows], WindowJoinResult], rows: KernelRows) -> tuple[float, WindowJoinResult]:
    start = time.process_time()
    joined = join(rows)
    return time.process_time() - start, joined


def _block_rows(arrivals: ArrivalSequence, algorithm: TimedKernel, start: int, block: int) -> KernelRows:
    """Return the rows in the buffers before the block, and the rows of the block."""
    new = np.arange(start, start + block)
    since_us = _buffer_start_us(arrivals, algorithm, start)
    parts: list[Int64s] = []
    sizes, olds = [], []
    for stream in range(arrivals.stream_count):
        old = np.arange(np.searchsorted(arrivals.times, since_us[stream]), start)
        its_old, its_new = (which[arrivals.stream_numbers[which] == stream] for which in (old, new))
        parts += [its_old, its_new]
        sizes.append(its_old.size + its_new.size)
        olds.append(its_old.size)
    chosen = np.concatenate(parts)
    return KernelRows(
        arrivals.times[chosen],
        arrivals.codes[chosen],
        np.cumsum([0, *sizes]).astype(np.int64),
        np.array(olds, np.int64),
    )


def _buffer_start_us(arrivals: ArrivalSequence, algorithm: TimedKernel, start: int) -> list[int]:
    """Return, per stream, the time from which rows are in its buffer when the block arrives.

    For kernels that clean up at intervals, it is the time as of the last clean-up. The paper's rule: a row leaves once
    it is farther than the window from the last row of every other stream. So a slow stream keeps rows in all other
    buffers.
    """
    every = algorithm.cleanup_rows
    at = start if every is None else start // every * every
    last_us = [_last_time_us(arrivals, stream, at) for stream in range(arrivals.stream_count)]
    return [
        min(last for other, last in enumerate(last_us) if other != stream) - algorithm.window_us
        for stream in range(len(last_us))
    ]


def _last_time_us(arrivals: ArrivalSequence, stream: int, at: int) -> int:
    """Return the time of a stream's last row before the given place, or the first time if it has none yet."""
    behind = np.flatnonzero(arrivals.stream_numbers[:at][::-1] == stream)
    return int(arrivals.times[at - 1 - behind[0]]) if behind.size else int(arrivals.times[0])

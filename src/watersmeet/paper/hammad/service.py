"""Service time per tuple, averaged over blocks of 1,000: what a kernel takes for a block, given the buffers it would hold by then.

A kernel is called once per block, with the rows its buffers hold as old rows. Laying those out is no part of serving a tuple: it is
measured apart, with a block of a single row, and taken off. Beside the time stand the comparisons, which are exact.
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
from watersmeet.kernels.wjoin.outputs import WindowJoin
from watersmeet.kernels.wjoin.ripple_join import CLEAN_UP_EVERY, ripple_join
from watersmeet.kernels.wjoin.xjoin import xjoin
from watersmeet.paper.effort import Effort
from watersmeet.paper.hammad.streams import Arrivals, Int64s

BLOCK = 1000
BUCKETS = 128
_NEVER = 1 << 40

NLW, HW, MW, RIPPLE, XJOIN = "NLW-join", "HW-join", "MW-join", "ripple join", "XJoin"


@dataclass(frozen=True, slots=True)
class Rows:
    """A kernel's arguments: rows stream after stream, and how many of each stream are old."""

    times: Int64s
    codes: Int64s
    offsets: Int64s
    old: Int64s


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A kernel with its windows. One that cleans up only now and then holds everything since; the others what is in reach."""

    join: Callable[[Rows], WindowJoin]
    window_us: int
    cleans_up_every: int | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """Per block: microseconds and comparisons per tuple."""

    tuples: tuple[float, ...]
    us: tuple[float, ...]
    comparisons: tuple[float, ...]

    @property
    def mean_us(self) -> float:
        return float(np.mean(self.us))

    @property
    def mean_comparisons(self) -> float:
        return float(np.mean(self.comparisons))


def algorithms(names: Sequence[str], window_us: int, reach_us: Sequence[int], buckets: int = BUCKETS) -> dict[str, Algorithm]:
    """The kernels by the paper's names, with a reach per stream inside one window."""
    reach, tables = np.array(reach_us, np.int64), np.full(len(reach_us), buckets, np.int64)
    known = {
        NLW: Algorithm(lambda r: nlw_join(r.times, r.codes, r.offsets, r.old, window_us, reach), window_us),
        HW: Algorithm(lambda r: hw_join(r.times, r.codes, r.offsets, r.old, window_us, reach, tables), window_us),
        MW: Algorithm(lambda r: mw_join(r.times, r.codes, r.offsets, r.old, window_us, reach), window_us),
        RIPPLE: Algorithm(lambda r: ripple_join(r.times, r.codes, r.offsets, r.old, window_us, reach, _NEVER), window_us, CLEAN_UP_EVERY),
        XJOIN: Algorithm(lambda r: xjoin(r.times, r.codes, r.offsets, r.old, window_us, reach, tables, _NEVER), window_us, CLEAN_UP_EVERY),
    }
    return {name: known[name] for name in names}


def served(effort: Effort, arrivals: Arrivals, chosen: Mapping[str, Algorithm], first: int = 0, block: int = BLOCK) -> dict[str, Served]:
    """The service times of each algorithm over the blocks from `first` on; the algorithms take turns in every block."""
    starts = range(first, len(arrivals) - block + 1, block)
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for start in starts:
        cases = {name: (_rows(arrivals, each, start, block), _rows(arrivals, each, start, 1)) for name, each in chosen.items()}
        spent = _least(effort, {name: (chosen[name].join, *case) for name, case in cases.items()})
        for name, (seconds, comparisons) in spent.items():
            points[name].append((1e6 * seconds / (block - 1), comparisons / block))
    places = tuple(float(start + block) for start in starts)
    return {name: Served(places, tuple(us for us, _ in each), tuple(count for _, count in each)) for name, each in points.items()}


def _least(effort: Effort, cases: Mapping[str, tuple[Callable[[Rows], WindowJoin], Rows, Rows]]) -> dict[str, tuple[float, float]]:
    """Seconds for the block beyond those for its first row, and comparisons."""
    gc.collect()
    whole, single = dict.fromkeys(cases, np.inf), dict.fromkeys(cases, np.inf)
    comparisons = dict.fromkeys(cases, 0.0)
    for _ in range(max(2, effort.repeats)):
        for name, (join, rows, first_row) in cases.items():
            seconds, joined = _timed(join, rows)
            comparisons[name] = float(joined.counters.comparisons.sum())
            whole[name] = min(whole[name], seconds)
            single[name] = min(single[name], _timed(join, first_row)[0])
    return {name: (max(0.0, whole[name] - single[name]), comparisons[name]) for name in cases}


def _timed(join: Callable[[Rows], WindowJoin], rows: Rows) -> tuple[float, WindowJoin]:
    start = time.process_time()
    joined = join(rows)
    return time.process_time() - start, joined


def _rows(arrivals: Arrivals, algorithm: Algorithm, start: int, block: int) -> Rows:
    """The rows in the buffers before the block, and the block's own."""
    held = _held_since(arrivals, algorithm, start)
    old, new = np.arange(held, start), np.arange(start, start + block)
    parts: list[Int64s] = []
    sizes, olds = [], []
    for stream in range(arrivals.streams):
        its_old, its_new = (which[arrivals.stream[which] == stream] for which in (old, new))
        parts += [its_old, its_new]
        sizes.append(its_old.size + its_new.size)
        olds.append(its_old.size)
    chosen = np.concatenate(parts)
    return Rows(arrivals.times[chosen], arrivals.codes[chosen], np.cumsum([0, *sizes]).astype(np.int64), np.array(olds, np.int64))


def _held_since(arrivals: Arrivals, algorithm: Algorithm, start: int) -> int:
    """The oldest row still in a buffer: in reach now, or in reach when buffers were last cleaned."""
    every = algorithm.cleans_up_every
    at = start if every is None else start // every * every
    if at == 0:
        return 0
    return int(np.searchsorted(arrivals.times, arrivals.times[min(at, len(arrivals) - 1)] - algorithm.window_us))

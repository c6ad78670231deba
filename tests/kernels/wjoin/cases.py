"""Small window joins: streams of (time, code), old and new, and every algorithm under one signature."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.wjoin.buffers import Buffers
from watersmeet.kernels.wjoin.hw_join import hw_join
from watersmeet.kernels.wjoin.mw_join import mw_join
from watersmeet.kernels.wjoin.nlw_join import nlw_join
from watersmeet.kernels.wjoin.outputs import WindowJoinResult, window_join_definition
from watersmeet.kernels.wjoin.plane_sweep import SweepRows, merge_new_rows
from watersmeet.kernels.wjoin.ripple_join import ripple_join

Row = tuple[int, int]
Streams = Sequence[Sequence[Row]]
Arguments = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int64]]
Algorithm = Callable[["WindowJoinCase"], WindowJoinResult]

FOREVER_US = 2**63 - 1


@dataclass(frozen=True)
class WindowJoinCase:
    """Old and new rows per stream, their reach, buckets per hash table, and the clean-up interval."""

    old: Streams
    new: Streams
    window_us: int
    reach_us: tuple[int, ...]
    buckets: int = 3
    clean_up_every: int = 4

    @property
    def arguments(self) -> Arguments:
        streams = [[*sorted(old), *sorted(new)] for old, new in zip(self.old, self.new, strict=True)]
        rows = np.array([row for stream in streams for row in stream], np.int64).reshape(-1, 2)
        offsets = np.cumsum([0, *map(len, streams)], dtype=np.int64)
        old = np.array([len(stream) for stream in self.old], np.int64)
        times, codes = rows[:, 0].copy(), rows[:, 1].copy()
        return times, codes, offsets, old, self.window_us, np.array(self.reach_us, np.int64)

    @property
    def bucket_counts(self) -> NDArray[np.int64]:
        return np.full(len(self.new), self.buckets, np.int64)


def join_nested(
    case: WindowJoinCase, kernel: Callable[..., WindowJoinResult], *further: int, hashed: bool
) -> WindowJoinResult:
    """Run a kernel of nested loops on its own buffers, lists or hash tables. All other arrays are read-only."""
    times, codes, offsets, old, window_us, reach_us = case.arguments
    n = len(case.new)
    later_by_us = np.minimum(window_us, np.minimum.outer(reach_us, reach_us))
    loops = np.array([[(origin + step) % n for step in range(n)] for origin in range(n)], np.int64)
    read_only = (times, codes, offsets, offsets[:-1] + old, offsets[1:].copy(), later_by_us, loops)
    for array in read_only:
        array.flags.writeable = False
    return kernel(*read_only, build_buffers(case, case.buckets if hashed else 1), *further)


def build_buffers(case: WindowJoinCase, buckets: int) -> Buffers:
    """Return buffers with the old rows, and room for all new rows in every bucket."""
    times, codes, offsets, old, *_ = case.arguments
    room, n = max(1, times.size), len(case.new)
    columns = [np.zeros(n * buckets * room, np.int64) for _ in range(3)]
    front = np.arange(n * buckets) * room
    filled = front.copy()
    for stream in range(n):
        for row in range(int(old[stream])):
            at = int(offsets[stream]) + row
            bucket = stream * buckets + int(codes[at]) % buckets
            for column, value in zip(columns, (times[at], codes[at], row), strict=True):
                column[filled[bucket]] = value
            filled[bucket] += 1
    return Buffers(columns[0], columns[1], columns[2], front, filled, np.arange(n + 1) * buckets)


def join_by_sweep(case: WindowJoinCase) -> WindowJoinResult:
    """Run MW-join on the old rows in order of time, with the new rows merged in."""
    times, codes, offsets, old, window_us, reach_us = case.arguments
    starts = offsets[:-1].copy()
    numbers = np.concatenate([np.arange(size) for size in np.diff(offsets)] or [starts]).astype(np.int64)
    sweep = SweepRows(times.copy(), codes.copy(), numbers, starts, starts + old)
    news = [slice(int(start + held), int(stop)) for start, held, stop in zip(starts, old, offsets[1:], strict=True)]
    for stream, new in enumerate(news):
        merge_new_rows(sweep, stream, times[new].copy(), codes[new].copy(), int(old[stream]))
    arrived = np.concatenate([times[new] for new in news] or [starts])
    first_us, last_us = (int(arrived.min()), int(arrived.max())) if arrived.size else (FOREVER_US, -FOREVER_US - 1)
    return mw_join(sweep, old, first_us, last_us, np.minimum(window_us, reach_us))


ALGORITHMS: dict[str, Algorithm] = {
    "nlw_join": lambda case: join_nested(case, nlw_join, hashed=False),
    "hw_join": lambda case: join_nested(case, hw_join, hashed=True),
    "mw_join": join_by_sweep,
    "ripple_join": lambda case: join_nested(case, ripple_join, case.clean_up_every, hashed=False),
    "xjoin": lambda case: join_nested(case, ripple_join, case.clean_up_every, hashed=True),
}


def expected_matches(case: WindowJoinCase) -> list[tuple[int, ...]]:
    return window_join_definition(*case.arguments)


def sorted_matches(result: WindowJoinResult) -> list[tuple[int, ...]]:
    """Return the results in the definition's order, with repetitions, if there are any."""
    return sorted(zip(*result.rows.tolist(), strict=True))


def single_window_case(new: Streams, window_us: int, old: Streams | None = None) -> WindowJoinCase:
    return WindowJoinCase([[] for _ in new] if old is None else old, new, window_us, (window_us,) * len(new))


def random_case(seed: int) -> WindowJoinCase:
    """Return two to five streams that prefer edge cases.

    These are equal times, silent streams, old rows after new ones, bursts, a hot key, and no key.
    """
    draw = random.Random(seed)
    n = draw.randint(2, 5)
    span = draw.choice((0, 3, 8, 20))
    origin_us = draw.choice((0, 0, 0, -10, 2**62, -(2**63), 2**63 - 1 - 2 * span))
    keys = draw.choice(((0,), (0, 1), (0, 0, 0, 0, 1, 2), (-(2**63), 2**63 - 1)))
    streams = [_random_stream(draw, {2: 14, 3: 9, 4: 6, 5: 5}[n], span, origin_us, keys) for _ in range(n)]
    cuts = [draw.choice((0, len(stream) // 2, draw.randint(0, len(stream)))) for stream in streams]
    if draw.random() < 0.5:  # otherwise old rows are as often later than new ones
        streams = [sorted(stream) for stream in streams]
    window_us = draw.choice(
        (0, draw.randint(0, span + 1), draw.randint(0, span + 1), draw.randint(0, span + 1), FOREVER_US)
    )
    one = draw.random() < 0.5
    reach_us = tuple(window_us if one else draw.choice((window_us, draw.randint(0, span + 1))) for _ in range(n))
    return WindowJoinCase(
        [stream[:cut] for stream, cut in zip(streams, cuts, strict=True)],
        [stream[cut:] for stream, cut in zip(streams, cuts, strict=True)],
        window_us,
        reach_us,
        buckets=draw.randint(1, 5),
        clean_up_every=draw.randint(1, 8),
    )


def _random_stream(draw: random.Random, most: int, span: int, origin_us: int, keys: Sequence[int]) -> list[Row]:
    if draw.random() < 0.08:
        return []
    burst = origin_us + draw.randint(0, span)
    bursty = draw.random() < 0.3
    times = [
        burst if bursty and draw.random() < 0.7 else origin_us + draw.randint(0, span)
        for _ in range(draw.randint(1, most))
    ]
    return [(time, draw.choice(keys)) for time in times]

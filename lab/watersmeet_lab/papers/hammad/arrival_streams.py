"""The paper's streams: rows at exponential time gaps, rates that toggle, and sales of shops with opening hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US


@dataclass(frozen=True, slots=True)
class ArrivalSequence:
    """Rows of all streams in time order: time, stream number and value."""

    times: Int64s
    stream_numbers: Int64s
    codes: Int64s
    stream_count: int

    def __len__(self) -> int:
        return self.times.size


def poisson_arrivals(rates_per_s: Sequence[float], rows: int, values: int, seed: int = 0) -> ArrivalSequence:
    """Generate streams with exponential gaps at these rates, and uniform values below `values`."""
    rng = np.random.default_rng(seed)
    seconds = 1.1 * rows / sum(rates_per_s)
    gaps = [rng.exponential(SECOND_US / rate, int(1.5 * rate * seconds) + 50) for rate in rates_per_s]
    return merge_streams([np.cumsum(each) for each in gaps], rows, values, rng)


def toggling_arrivals(
    steady_per_s: Sequence[float], low_per_s: float, high_per_s: float, rows_per_toggle: int, rows: int, values: int
) -> ArrivalSequence:
    """Generate steady streams, and a last one that starts at the low rate and toggles every `rows_per_toggle` rows."""
    rng = np.random.default_rng(0)
    # The last stream has at most `rows` rows in the result, so `rows` gaps are enough.
    means = np.where(np.arange(rows) // rows_per_toggle % 2, SECOND_US / high_per_s, SECOND_US / low_per_s)
    seconds = 1.1 * rows / sum(steady_per_s)
    gaps = [rng.exponential(SECOND_US / rate, int(1.5 * rate * seconds) + 50) for rate in steady_per_s]
    return merge_streams([*(np.cumsum(each) for each in gaps), np.cumsum(rng.exponential(means))], rows, values, rng)


def store_arrivals(count: int, rows: int, items: int, rows_per_hour: float, seed: int = 0) -> ArrivalSequence:
    """Generate sales of stores that open at 7:30 and close at 20:00, busiest in the middle of the day."""
    rng = np.random.default_rng(seed)
    opening_us, open_length_us = 7.5 * HOUR_US, 12.5 * HOUR_US
    per_day = int(rows_per_hour * 12.5)
    days = 2 + rows // (per_day * count)
    times = [
        np.sort(
            np.concatenate(
                [day * 24 * HOUR_US + opening_us + open_length_us * rng.beta(1.6, 1.6, per_day) for day in range(days)]
            )
        )
        for _ in range(count)
    ]
    return merge_streams(times, rows, items, rng)


def merge_streams(
    times: Sequence[NDArray[np.float64]], rows: int, values: int, rng: np.random.Generator
) -> ArrivalSequence:
    """Merge the streams in time order, keep the first `rows` rows, and draw a value for each."""
    everything = np.concatenate(times)
    stream = np.repeat(np.arange(len(times)), [each.size for each in times])
    order = np.argsort(everything, kind="stable")[:rows]
    return ArrivalSequence(
        everything[order].astype(np.int64), stream[order], rng.integers(0, values, order.size), len(times)
    )

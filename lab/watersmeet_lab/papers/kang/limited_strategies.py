"""Figures 5 to 7 of Kang et al. on real streams: the engine runs the join with each strategy's shares.

References: Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.operators.shed.sampling import RoleShares
from watersmeet.planner.models.kang_limited import CPU_STRATEGIES, MEMORY_STRATEGIES, LimitedJoin
from watersmeet.runtime.embedded.allocation import (
    BEST,
    Limits,
    collect_allocated,
    compute_shares,
    divide_resources,
)
from watersmeet_lab.papers.kang.models import FIGURE_5, FIGURE_6, FIGURE_7


@dataclass(frozen=True, slots=True)
class StrategyOutput:
    """A strategy in a figure: predicted and measured output rows per second."""

    figure: int
    strategy: str
    predicted_per_s: float
    measured_per_s: float


def measure_strategies(seconds: int = 400, seed: int = 0) -> Iterator[StrategyOutput]:
    """Measure every bar of the three figures on streams that run for `seconds` after their windows are full."""
    figures = (
        (5, FIGURE_5, Limits(service_per_s=100), [(name, name, BEST) for name in CPU_STRATEGIES]),
        (6, FIGURE_6, Limits(memory_rows=1000), [(name, BEST, name) for name in MEMORY_STRATEGIES]),
        (7, FIGURE_7, Limits(service_per_s=10, memory_rows=100), _two_limit_strategies()),
    )
    for figure, join, limits, strategies in figures:
        slow = 10 if figure > 5 else 1  # tens of rows per second need longer to average out
        rows = LimitedStreams(join, seconds * slow, seed)
        for name, probes, windows in strategies:
            found = divide_resources(join, limits, probes, windows)
            yield StrategyOutput(figure, name, found.output_rows_per_s, rows.joined_per_s(*compute_shares(join, found)))


class LimitedStreams:
    """Two streams with a figure's rates, at even times; keys are equal with the figure's selectivity."""

    def __init__(self, join: LimitedJoin, seconds: int, seed: int) -> None:
        self.windows_us = [int(1e6 * rows / rate) for rows, rate in zip(join.window_rows, join.rows_per_s, strict=True)]
        self.fill_us, self.seconds = max(self.windows_us), seconds
        keys, rng = round(1 / join.selectivity), np.random.default_rng(seed)
        self.streams: dict[str, wm.Stream | wm.Relation] = {}
        for name, rate in zip("ab", join.rows_per_s, strict=True):
            times = np.sort(
                rng.integers(0, self.fill_us + seconds * 1_000_000, int(rate * (seconds + self.fill_us / 1e6)))
            )
            table = pa.table(
                {
                    "ts": pa.array(times),
                    "k": pa.array(rng.integers(0, keys, times.size)),
                    "id": pa.array(np.arange(times.size)),
                }
            )
            self.streams[name] = wm.stream(table, time="ts", unit="us")

    def joined_per_s(self, a: RoleShares, b: RoleShares) -> float:
        a_us, b_us = self.windows_us
        query = (
            f"SELECT a.ts AS x, b.ts AS y FROM a [RANGE {a_us} MICROSECONDS], b [RANGE {b_us} MICROSECONDS] WHERE "
            "a.k = b.k"
        )
        rows = collect_allocated(wm.sql(query), self.streams, {"a": a, "b": b})
        newest = np.maximum(rows["x"].to_numpy(), rows["y"].to_numpy())
        return float(np.count_nonzero(newest >= self.fill_us)) / self.seconds


def _two_limit_strategies() -> list[tuple[str, str, str]]:
    """Return name, probing stream and stored stream; the figure names the stored stream first."""
    named = [(f"{windows}/{probes}", probes, windows) for windows in ("MaxA", "MaxB") for probes in ("MaxB", "MaxA")]
    return [*named, ("equal", "equal", "equal")]

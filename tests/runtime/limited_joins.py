"""The joins of Figures 5 to 7 of Kang, Naughton and Viglas, scaled so that joining costs more than reading rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import watersmeet as wm


@dataclass(frozen=True)
class LimitedWorkload:
    """A join of two streams, and the best allocation of the paper, whose cost is the budget.

    The selectivity is one match in `keys` rows.
    """

    rows_per_s: tuple[float, float]
    window_rows: tuple[int, int]
    keys: int
    probe: tuple[float, float]
    window: tuple[float, float]
    short: tuple[str, ...]
    plan: wm.Plan

    @property
    def full_output_per_s(self) -> float:
        """Output without shedding."""
        (a, b), (rows_a, rows_b) = self.rows_per_s, self.window_rows
        return (a * rows_b + b * rows_a) / self.keys

    @property
    def best_per_s(self) -> float:
        """Output of the paper's best allocation."""
        (a, b), (rows_a, rows_b) = self.rows_per_s, self.window_rows
        (probe_a, probe_b), (window_a, window_b) = self.probe, self.window
        return (a * probe_a * rows_b * window_b + b * probe_b * rows_a * window_a) / self.keys

    @property
    def stats(self) -> dict[str, wm.StreamStats]:
        return {
            name: wm.stats(rate=rate, distinct={"k": self.keys, "ts": 1e6}, row_bytes=16)
            for name, rate in zip(("sa", "sb"), self.rows_per_s, strict=True)
        }

    def query(self, kind: str) -> wm.Query:
        a, b = (
            f"ROWS {rows}" if kind == "ROWS" else f"RANGE {round(rows / rate * 1e6)} MICROSECONDS"
            for rows, rate in zip(self.window_rows, self.rows_per_s, strict=True)
        )
        return wm.sql(f"SELECT a.k, a.ts, b.ts AS later FROM sa [{a}] AS a, sb [{b}] AS b WHERE a.k = b.k")

    def budget(self, kind: str) -> wm.Budget:
        """Return the CPU or memory that the paper's best allocation needs."""
        allocated = wm.plan(
            self.plan.algorithm,
            probe=dict(zip("ab", self.probe, strict=True)),
            window=dict(zip("ab", self.window, strict=True)),
        )
        cost = wm.explain(self.query(kind), self.stats, plan=allocated).chosen.cost
        return wm.Budget(
            processors=cost.cpu_per_s * 1.0001 if "cpu" in self.short else 1.0,
            memory_bytes=cost.state_bytes * 1.0001 if "memory" in self.short else None,
        )

    def tables(self, seconds: int) -> dict[str, pa.Table]:
        rng = np.random.default_rng(5)
        found = {}
        for name, rate in zip(("sa", "sb"), self.rows_per_s, strict=True):
            rows = int(rate * seconds)
            times = np.sort(rng.integers(0, seconds * 1_000_000, rows))
            found[name] = pa.table({"ts": pa.array(times), "k": pa.array(rng.integers(0, self.keys, rows))})
        return found

    def streams(self, seconds: int) -> dict[str, wm.Stream]:
        return {name: wm.stream(table, time="ts") for name, table in self.tables(seconds).items()}


#: CPU is short: all probes of the paper's best allocation are A's, into the larger window.
FIG_5 = LimitedWorkload((8000, 2000), (1000, 2000), 1000, (0.125, 0.0), (0.0, 1.0), ("cpu",), wm.plan("eager-nlj"))
#: Memory is short: all of it goes to the window of the slower stream.
FIG_6 = LimitedWorkload((10, 50), (1000, 1000), 200, (0.0, 1.0), (1.0, 0.0), ("memory",), wm.plan("runs"))
#: Both are short: one stream gets the window, the other the probes.
FIG_7 = LimitedWorkload(
    (5000, 5000), (5000, 5000), 1000, (0.2, 0.0), (0.0, 0.2), ("cpu", "memory"), wm.plan("eager-nlj")
)

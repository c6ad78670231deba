"""Seeded workloads. The same number gives the same rows on every machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

ALIASES = "abcdefgh"


@dataclass(frozen=True, slots=True)
class CommonKey:
    """Streams of three int64 columns (`ts`, `k`, `id`) that arrive in time order and join on `k` over equal RANGE windows."""

    streams: int = 2
    rows: int = 4_000_000
    keys: int = 500_000
    rows_per_s: int = 50_000
    window_s: int = 10
    seed: int = 0

    @property
    def aliases(self) -> str:
        return ALIASES[: self.streams]

    @property
    def window_us(self) -> int:
        return self.window_s * 1_000_000

    def table(self, number: int) -> pa.Table:
        rng = np.random.default_rng([self.seed, number])
        span_us = self.rows * 1_000_000 // self.rows_per_s
        return pa.table(
            {
                "ts": np.sort(rng.integers(0, span_us, self.rows)),
                "k": rng.integers(0, self.keys, self.rows),
                "id": np.arange(self.rows),
            }
        )

    def tables(self) -> dict[str, pa.Table]:
        return {alias: self.table(number) for number, alias in enumerate(self.aliases)}

    @property
    def outputs(self) -> list[str]:
        """Every column of every stream once; the key of the first stands for all."""
        return ["a.k AS k", *(f"{alias}.{name} AS {alias}_{name}" for alias in self.aliases for name in ("ts", "id"))]

    def query(self) -> str:
        sources = ", ".join(f"{alias} [RANGE {self.window_s} SECONDS]" for alias in self.aliases)
        equal = " AND ".join(f"a.k = {alias}.k" for alias in self.aliases[1:])
        return f"SELECT {', '.join(self.outputs)} FROM {sources} WHERE {equal}"

    def duckdb_query(self) -> str:
        """The same rows in DuckDB's SQL: on the finite input, two RANGE windows are a band on the times of every pair."""
        joins = []
        for number, alias in enumerate(self.aliases[1:], start=1):
            bands = (
                f"{alias}.ts BETWEEN {other}.ts - {self.window_us} AND {other}.ts + {self.window_us}" for other in self.aliases[:number]
            )
            joins.append(f"JOIN {alias} ON a.k = {alias}.k AND {' AND '.join(bands)}")
        return f"SELECT {', '.join(self.outputs)} FROM a {' '.join(joins)}"

    def with_window(self, window_s: int) -> CommonKey:
        """The same workload over another window, with as many keys more, so that each probe finds as many matches."""
        return replace(self, window_s=window_s, keys=self.keys * window_s // self.window_s)

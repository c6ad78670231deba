"""The regret suite: seeded workloads of two to six streams, with rates over three orders of magnitude, skew,
selections, equalities and comparisons, windows in time and in rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ALIASES = "abcdef"
VALUES = 1000  # of column x


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream: rows per second, its window, distinct values of its key, and the exponent of their skew (0: none)."""

    rows_per_s: float
    window: str
    distinct: int
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class RegretWorkload:
    """Streams, what joins them, and how they come: `seconds` of stream in so many batches."""

    name: str
    flows: tuple[Flow, ...]
    where: str
    seconds: float
    batches: int = 1

    @property
    def aliases(self) -> str:
        return ALIASES[: len(self.flows)]

    @property
    def query(self) -> str:
        outputs = ", ".join(f"{alias}.id AS {alias}_id" for alias in self.aliases)
        sources = ", ".join(f"{alias} [{flow.window}]" for alias, flow in zip(self.aliases, self.flows, strict=True))
        return f"SELECT {outputs} FROM {sources} WHERE {self.where}"

    def tables(self, scale: float = 1.0) -> dict[str, pa.Table]:
        return {alias: self._table(number, scale) for number, alias in enumerate(self.aliases)}

    def rounds(self, scale: float = 1.0) -> list[dict[str, pa.Table]]:
        """The same rows, cut into batches of equal length in time."""
        tables = self.tables(scale)
        cuts = np.linspace(0, self.seconds * scale * 1e6, self.batches + 1)[1:-1]
        places = {
            alias: [0, *np.searchsorted(table["ts"].to_numpy(), cuts).tolist(), len(table)]
            for alias, table in tables.items()
        }
        return [
            {
                alias: table.slice(places[alias][r], places[alias][r + 1] - places[alias][r])
                for alias, table in tables.items()
            }
            for r in range(self.batches)
        ]

    def _table(self, number: int, scale: float) -> pa.Table:
        flow, seconds = self.flows[number], self.seconds * scale
        rng = np.random.default_rng([len(self.name), *self.name.encode(), number])
        rows = max(1, round(flow.rows_per_s * seconds))
        return pa.table(
            {
                "ts": np.sort(rng.integers(0, int(seconds * 1e6), rows)),
                "k": _keys(rng, flow, rows),
                "j": _keys(rng, flow, rows),
                "x": rng.integers(0, VALUES, rows),
                "id": np.arange(rows),
            }
        )


def _keys(rng: np.random.Generator, flow: Flow, rows: int) -> NDArray[np.int64]:
    if not flow.skew:
        return rng.integers(0, flow.distinct, rows)
    weights = np.arange(1, flow.distinct + 1, dtype=np.float64) ** -flow.skew
    return np.asarray(rng.choice(flow.distinct, rows, p=weights / weights.sum()), np.int64)


def equal(aliases: str, column: str = "k") -> str:
    return " AND ".join(f"a.{column} = {alias}.{column}" for alias in aliases[1:])


def _two_streams() -> list[RegretWorkload]:
    second, wide = "RANGE 1 SECOND", "RANGE 8 SECONDS"
    return [
        RegretWorkload("two-even", (Flow(5000, second, 1000), Flow(5000, second, 1000)), equal("ab"), 5),
        RegretWorkload("two-even-batches", (Flow(5000, second, 1000), Flow(5000, second, 1000)), equal("ab"), 5, 20),
        RegretWorkload("two-thousandfold", (Flow(20_000, second, 500), Flow(20, wide, 500)), equal("ab"), 6),
        RegretWorkload(
            "two-thousandfold-batches", (Flow(20, wide, 500), Flow(20_000, second, 500)), equal("ab"), 6, 12
        ),
        RegretWorkload("two-skewed", (Flow(3000, second, 5000, 1.0), Flow(3000, second, 5000, 1.0)), equal("ab"), 6),
        RegretWorkload(
            "two-skewed-batches", (Flow(3000, second, 5000, 1.1), Flow(300, wide, 5000, 1.1)), equal("ab"), 8, 8
        ),
        RegretWorkload(
            "two-selected", (Flow(20_000, second, 300), Flow(5000, second, 300)), f"{equal('ab')} AND a.x < 30", 5
        ),
        RegretWorkload("two-theta", (Flow(2000, second, 10), Flow(2000, second, 10)), "a.x < b.x - 900", 4),
        RegretWorkload(
            "two-theta-batches", (Flow(3000, second, 10), Flow(300, wide, 10)), "a.x = b.x + 1 AND a.k < b.k", 6, 10
        ),
        RegretWorkload(
            "two-band", (Flow(3000, second, 10), Flow(3000, second, 10)), "a.x BETWEEN b.x - 2 AND b.x + 2", 4
        ),
        RegretWorkload(
            "two-unlike", (Flow(500, second, 4), Flow(500, second, 4)), "a.k <> b.k AND a.x > b.x + 950", 8, 4
        ),
        RegretWorkload("two-rows", (Flow(10_000, "ROWS 2500", 900), Flow(10_000, "ROWS 2500", 900)), equal("ab"), 2),
        RegretWorkload(
            "two-rows-batches", (Flow(10_000, "ROWS 2000", 900), Flow(100, "ROWS 50", 900)), equal("ab"), 4, 10
        ),
        RegretWorkload(
            "two-rows-theta", (Flow(3000, "ROWS 300", 10), Flow(3000, "ROWS 300", 10)), "a.x > b.x + 980", 4
        ),
    ]


def _three_streams() -> list[RegretWorkload]:
    second, wide = "RANGE 1 SECOND", "RANGE 8 SECONDS"
    chain = "a.k = b.k AND b.j = c.j"
    return [
        RegretWorkload("three-even", tuple(Flow(3000, second, 3000) for _ in "abc"), equal("abc"), 6),
        RegretWorkload("three-even-batches", tuple(Flow(3000, second, 3000) for _ in "abc"), equal("abc"), 6, 12),
        RegretWorkload(
            "three-rates", (Flow(5000, second, 2000), Flow(500, second, 200), Flow(5, wide, 20)), equal("abc"), 8
        ),
        RegretWorkload(
            "three-rates-batches",
            (Flow(5, wide, 20), Flow(500, second, 200), Flow(5000, second, 2000)),
            equal("abc"),
            8,
            8,
        ),
        RegretWorkload(
            "three-chain", (Flow(2000, second, 50), Flow(2000, second, 2000), Flow(200, second, 20)), chain, 6
        ),
        RegretWorkload(
            "three-chain-batches", (Flow(800, second, 300), Flow(100, wide, 300), Flow(800, second, 300)), chain, 6, 6
        ),
        RegretWorkload("three-skewed", tuple(Flow(800, second, 4000, 0.8) for _ in "abc"), equal("abc"), 8),
        RegretWorkload(
            "three-mixed",
            (Flow(1000, second, 300), Flow(1000, second, 300), Flow(50, wide, 9)),
            "a.k = b.k AND b.x < c.x - 900",
            6,
        ),
        RegretWorkload(
            "three-rows",
            (Flow(3000, "ROWS 1000", 800), Flow(3000, second, 800), Flow(300, "ROWS 100", 80)),
            equal("abc"),
            4,
            4,
        ),
        RegretWorkload(
            "three-selected",
            tuple(Flow(4000, second, 400) for _ in "abc"),
            f"{equal('abc')} AND a.x < 100 AND c.x < 200",
            4,
        ),
    ]


def _many_streams() -> list[RegretWorkload]:
    second, wide = "RANGE 1 SECOND", "RANGE 4 SECONDS"
    table_5 = (Flow(1000, second, 500), Flow(100, second, 50), Flow(100, "RANGE 2 SECONDS", 40), Flow(300, second, 5))
    chain = "a.k = b.k AND b.j = c.j AND c.k = d.k"
    return [
        RegretWorkload("four-even", tuple(Flow(1500, second, 1500) for _ in "abcd"), equal("abcd"), 5),
        RegretWorkload("four-paper", table_5, equal("abcd"), 10, 4),
        RegretWorkload(
            "four-rates",
            (Flow(4000, second, 4000), Flow(400, second, 4000), Flow(40, wide, 400), Flow(4, wide, 40)),
            equal("abcd"),
            8,
            4,
        ),
        RegretWorkload(
            "four-chain",
            (Flow(400, second, 400), Flow(400, second, 200), Flow(60, wide, 200), Flow(400, second, 400)),
            chain,
            6,
        ),
        RegretWorkload("five-even", tuple(Flow(1000, second, 1200) for _ in "abcde"), equal("abcde"), 5),
        RegretWorkload(
            "five-rates",
            (Flow(3000, second, 900), *(Flow(100, wide, 900) for _ in "bcd"), Flow(3, wide, 9)),
            equal("abcde"),
            8,
            6,
        ),
        RegretWorkload("six-even", tuple(Flow(600, second, 800) for _ in "abcdef"), equal("abcdef"), 5),
        RegretWorkload(
            "six-rows", (Flow(1000, second, 900), *(Flow(200, "ROWS 200", 300) for _ in "bcdef")), equal("abcdef"), 5, 3
        ),
    ]


SUITE: tuple[RegretWorkload, ...] = (*_two_streams(), *_three_streams(), *_many_streams())

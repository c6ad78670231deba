"""Workloads for measuring regret: the time of the chosen plan over that of the fastest one (`regret_measurement`).

The workloads are seeded and have two to six streams. They cover rates over three orders of magnitude, skew,
selections, equalities and comparisons, and windows in time and in rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ALIASES = "abcdef"
#: Distinct values of column x.
DISTINCT_X = 1000


@dataclass(frozen=True, slots=True)
class RegretStream:
    """A stream: rows per second, its window, distinct key values, and the exponent of their skew (0: none)."""

    rows_per_s: float
    window: str
    distinct: int
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class RegretWorkload:
    """Streams and their join predicate; `seconds` of event time arrive in `batches` batches."""

    name: str
    streams: tuple[RegretStream, ...]
    where: str
    seconds: float
    batches: int = 1

    @property
    def aliases(self) -> str:
        return ALIASES[: len(self.streams)]

    @property
    def query(self) -> str:
        outputs = ", ".join(f"{alias}.id AS {alias}_id" for alias in self.aliases)
        sources = ", ".join(f"{alias} [{flow.window}]" for alias, flow in zip(self.aliases, self.streams, strict=True))
        return f"SELECT {outputs} FROM {sources} WHERE {self.where}"

    def tables(self, scale: float = 1.0) -> dict[str, pa.Table]:
        return {alias: self._table(number, scale) for number, alias in enumerate(self.aliases)}

    def rounds(self, scale: float = 1.0) -> list[dict[str, pa.Table]]:
        """Return the same rows, cut into batches of equal length in time."""
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
        flow, seconds = self.streams[number], self.seconds * scale
        rng = np.random.default_rng([len(self.name), *self.name.encode(), number])
        rows = max(1, round(flow.rows_per_s * seconds))
        return pa.table(
            {
                "ts": pa.array(np.sort(rng.integers(0, int(seconds * 1e6), rows))),
                "k": pa.array(_draw_keys(rng, flow, rows)),
                "j": pa.array(_draw_keys(rng, flow, rows)),
                "x": pa.array(rng.integers(0, DISTINCT_X, rows)),
                "id": pa.array(np.arange(rows)),
            }
        )


def _draw_keys(rng: np.random.Generator, flow: RegretStream, rows: int) -> NDArray[np.int64]:
    if not flow.skew:
        return rng.integers(0, flow.distinct, rows)
    weights = np.arange(1, flow.distinct + 1, dtype=np.float64) ** -flow.skew
    return np.asarray(rng.choice(flow.distinct, rows, p=weights / weights.sum()), np.int64)


def equal_keys(aliases: str, column: str = "k") -> str:
    """Return equalities of a column between the first alias and all others."""
    return " AND ".join(f"a.{column} = {alias}.{column}" for alias in aliases[1:])


def _two_streams() -> list[RegretWorkload]:
    second, wide = "RANGE 1 SECOND", "RANGE 8 SECONDS"
    return [
        RegretWorkload(
            "two-even", (RegretStream(5000, second, 1000), RegretStream(5000, second, 1000)), equal_keys("ab"), 5
        ),
        RegretWorkload(
            "two-even-batches",
            (RegretStream(5000, second, 1000), RegretStream(5000, second, 1000)),
            equal_keys("ab"),
            5,
            20,
        ),
        RegretWorkload(
            "two-thousandfold", (RegretStream(20_000, second, 500), RegretStream(20, wide, 500)), equal_keys("ab"), 6
        ),
        RegretWorkload(
            "two-thousandfold-batches",
            (RegretStream(20, wide, 500), RegretStream(20_000, second, 500)),
            equal_keys("ab"),
            6,
            12,
        ),
        RegretWorkload(
            "two-skewed",
            (RegretStream(3000, second, 5000, 1.0), RegretStream(3000, second, 5000, 1.0)),
            equal_keys("ab"),
            6,
        ),
        RegretWorkload(
            "two-skewed-batches",
            (RegretStream(3000, second, 5000, 1.1), RegretStream(300, wide, 5000, 1.1)),
            equal_keys("ab"),
            8,
            8,
        ),
        RegretWorkload(
            "two-selected",
            (RegretStream(20_000, second, 300), RegretStream(5000, second, 300)),
            f"{equal_keys('ab')} AND a.x < 30",
            5,
        ),
        RegretWorkload(
            "two-theta", (RegretStream(2000, second, 10), RegretStream(2000, second, 10)), "a.x < b.x - 900", 4
        ),
        RegretWorkload(
            "two-theta-batches",
            (RegretStream(3000, second, 10), RegretStream(300, wide, 10)),
            "a.x = b.x + 1 AND a.k < b.k",
            6,
            10,
        ),
        RegretWorkload(
            "two-band",
            (RegretStream(3000, second, 10), RegretStream(3000, second, 10)),
            "a.x BETWEEN b.x - 2 AND b.x + 2",
            4,
        ),
        RegretWorkload(
            "two-unlike",
            (RegretStream(500, second, 4), RegretStream(500, second, 4)),
            "a.k <> b.k AND a.x > b.x + 950",
            8,
            4,
        ),
        RegretWorkload(
            "two-rows",
            (RegretStream(10_000, "ROWS 2500", 900), RegretStream(10_000, "ROWS 2500", 900)),
            equal_keys("ab"),
            2,
        ),
        RegretWorkload(
            "two-rows-batches",
            (RegretStream(10_000, "ROWS 2000", 900), RegretStream(100, "ROWS 50", 900)),
            equal_keys("ab"),
            4,
            10,
        ),
        RegretWorkload(
            "two-rows-theta",
            (RegretStream(3000, "ROWS 300", 10), RegretStream(3000, "ROWS 300", 10)),
            "a.x > b.x + 980",
            4,
        ),
    ]


def _three_streams() -> list[RegretWorkload]:
    second, wide = "RANGE 1 SECOND", "RANGE 8 SECONDS"
    chain = "a.k = b.k AND b.j = c.j"
    return [
        RegretWorkload("three-even", tuple(RegretStream(3000, second, 3000) for _ in "abc"), equal_keys("abc"), 6),
        RegretWorkload(
            "three-even-batches", tuple(RegretStream(3000, second, 3000) for _ in "abc"), equal_keys("abc"), 6, 12
        ),
        RegretWorkload(
            "three-rates",
            (RegretStream(5000, second, 2000), RegretStream(500, second, 200), RegretStream(5, wide, 20)),
            equal_keys("abc"),
            8,
        ),
        RegretWorkload(
            "three-rates-batches",
            (RegretStream(5, wide, 20), RegretStream(500, second, 200), RegretStream(5000, second, 2000)),
            equal_keys("abc"),
            8,
            8,
        ),
        RegretWorkload(
            "three-chain",
            (RegretStream(2000, second, 50), RegretStream(2000, second, 2000), RegretStream(200, second, 20)),
            chain,
            6,
        ),
        RegretWorkload(
            "three-chain-batches",
            (RegretStream(800, second, 300), RegretStream(100, wide, 300), RegretStream(800, second, 300)),
            chain,
            6,
            6,
        ),
        RegretWorkload(
            "three-skewed", tuple(RegretStream(800, second, 4000, 0.8) for _ in "abc"), equal_keys("abc"), 8
        ),
        RegretWorkload(
            "three-mixed",
            (RegretStream(1000, second, 300), RegretStream(1000, second, 300), RegretStream(50, wide, 9)),
            "a.k = b.k AND b.x < c.x - 900",
            6,
        ),
        RegretWorkload(
            "three-rows",
            (RegretStream(3000, "ROWS 1000", 800), RegretStream(3000, second, 800), RegretStream(300, "ROWS 100", 80)),
            equal_keys("abc"),
            4,
            4,
        ),
        RegretWorkload(
            "three-selected",
            tuple(RegretStream(4000, second, 400) for _ in "abc"),
            f"{equal_keys('abc')} AND a.x < 100 AND c.x < 200",
            4,
        ),
    ]


def _many_streams() -> list[RegretWorkload]:
    second, wide = "RANGE 1 SECOND", "RANGE 4 SECONDS"
    # Table 5 of Golab and Özsu, with a hundred times its rates and a hundredth of its window lengths.
    golab_table_5 = (
        RegretStream(1000, second, 500),
        RegretStream(100, second, 50),
        RegretStream(100, "RANGE 2 SECONDS", 40),
        RegretStream(300, second, 5),
    )
    chain = "a.k = b.k AND b.j = c.j AND c.k = d.k"
    return [
        RegretWorkload("four-even", tuple(RegretStream(1500, second, 1500) for _ in "abcd"), equal_keys("abcd"), 5),
        RegretWorkload("four-paper", golab_table_5, equal_keys("abcd"), 10, 4),
        RegretWorkload(
            "four-rates",
            (
                RegretStream(4000, second, 4000),
                RegretStream(400, second, 4000),
                RegretStream(40, wide, 400),
                RegretStream(4, wide, 40),
            ),
            equal_keys("abcd"),
            8,
            4,
        ),
        RegretWorkload(
            "four-chain",
            (
                RegretStream(400, second, 400),
                RegretStream(400, second, 200),
                RegretStream(60, wide, 200),
                RegretStream(400, second, 400),
            ),
            chain,
            6,
        ),
        RegretWorkload("five-even", tuple(RegretStream(1000, second, 1200) for _ in "abcde"), equal_keys("abcde"), 5),
        RegretWorkload(
            "five-rates",
            (RegretStream(3000, second, 900), *(RegretStream(100, wide, 900) for _ in "bcd"), RegretStream(3, wide, 9)),
            equal_keys("abcde"),
            8,
            6,
        ),
        RegretWorkload("six-even", tuple(RegretStream(600, second, 800) for _ in "abcdef"), equal_keys("abcdef"), 5),
        RegretWorkload(
            "six-rows",
            (RegretStream(1000, second, 900), *(RegretStream(200, "ROWS 200", 300) for _ in "bcdef")),
            equal_keys("abcdef"),
            5,
            3,
        ),
    ]


REGRET_WORKLOADS: tuple[RegretWorkload, ...] = (*_two_streams(), *_three_streams(), *_many_streams())

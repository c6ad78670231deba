"""Tables 2 and 3: a lazily evaluated join must not miss results.

It must not use rows that had expired when the newest row arrived, either.
"""

from __future__ import annotations

import pyarrow as pa

import watersmeet as wm
from watersmeet_lab.papers.claims import Value, words_claim
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.exhibit import Exhibit, Table

TIMES = {"s1": (90, 100), "s2": (150, 180), "s3": (195, 205)}
CORRECT = ((100, 150, 195), (100, 180, 195))
LAZY = ("lazy-nlj", "general-lazy-nlj", "naive-nlj", "lazy-hash")
QUERY = """
    SELECT s1.ts AS s1, s2.ts AS s2, s3.ts AS s3
    FROM s1 [RANGE 100 MICROSECONDS], s2 [RANGE 100 MICROSECONDS], s3 [RANGE 100 MICROSECONDS]
    WHERE s1.attr = s2.attr AND s2.attr = s3.attr
"""


def table_3(effort: Effort) -> Exhibit:
    """Compute the results for the two new rows of the third stream with every lazy algorithm."""
    found = {name: collect_results(name) for name in LAZY}
    claims = tuple(
        words_claim(
            f"golab.table3.{name}",
            f"{name} yields the two correct results of Table 3 and no other",
            _format_rows(CORRECT),
            _format_rows(rows),
        )
        for name, rows in found.items()
    )
    return Exhibit(
        "Tables 2 and 3: lazy evaluation and expiry",
        "Windows of 100, S1 = {90, 100}, S2 = {150, 180}, S3 = {195, 205}, all with the same attribute, evaluated "
        "every 20. "
        "The row of 90 has expired when either row of S3 arrives; the row of 100 when the second one does.",
        claims,
        (
            Table(
                "table-3",
                "Table 3, results of our lazy algorithms",
                ("algorithm", "results"),
                tuple(_table_rows(found)),
            ),
        ),
    )


def collect_results(algorithm: str) -> tuple[tuple[int, ...], ...]:
    streams = {
        name: wm.stream(pa.table({"ts": pa.array(times, pa.int64()), "attr": [1, 1]}), time="ts", unit="us")
        for name, times in TIMES.items()
    }
    plan = wm.plan(algorithm, evaluate="20 microseconds", expire="20 microseconds")
    rows = wm.collect(QUERY, streams, plan=plan).to_pylist()
    return tuple(sorted(tuple(row.values()) for row in rows))


def _format_rows(rows: tuple[tuple[int, ...], ...]) -> Value:
    return " ".join(f"({', '.join(map(str, row))})" for row in rows)


def _table_rows(found: dict[str, tuple[tuple[int, ...], ...]]) -> list[tuple[str, str]]:
    return [(name, str(_format_rows(rows))) for name, rows in found.items()]

"""Aggregates over a shed join: exact if nothing is shed, otherwise covered by their intervals as often as promised."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.aggregate.estimates import run_estimates
from watersmeet.errors import InputError, PlanError
from watersmeet.sources.declarations import bind_query

GROUPED = """
    SELECT a.g AS g, COUNT(*) AS n, COUNT(a.x) AS present, SUM(a.x) AS total,
           AVG(b.y) AS mean, MIN(b.y) AS low, MAX(a.x) AS high
    FROM a [RANGE 40 MICROSECONDS], b [{window}] WHERE a.k = b.k GROUP BY a.g {every}
"""
WHOLE = """
    SELECT a.g AS g, COUNT(*) AS n, SUM(a.x) AS total, AVG(a.x) AS mean, MIN(a.x) AS low
    FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k GROUP BY a.g
"""
Tables = dict[str, pa.Table]


def tables_of(rng: Random, rows: int, span: int, keys: int) -> Tables:
    def column(pool: Callable[[], Any]) -> list[Any]:
        return [None if rng.random() < 0.1 else pool() for _ in range(rows)]

    def times() -> list[int]:
        return sorted(rng.randrange(span) for _ in range(rows))

    left = {
        "k": column(lambda: rng.randrange(keys)),
        "g": column(lambda: rng.choice("xyz")),
        "x": column(lambda: rng.randrange(100)),
    }
    right: dict[str, list[Any] | pa.Array[Any]] = {
        "k": column(lambda: rng.randrange(keys)),
        "y": pa.array(column(lambda: rng.random() * 10), pa.float64()),
    }
    return {"a": pa.table({"ts": times(), **left}), "b": pa.table({"ts": times(), **right})}


def streams_of(rng: Random, tables: Tables) -> dict[str, wm.Stream | wm.Relation]:
    """In batches of any size, with enough lateness."""
    cuts = {name: sorted(rng.randrange(table.num_rows) for _ in range(3)) for name, table in tables.items()}
    parts = {
        name: [
            table.slice(start, stop - start)
            for start, stop in zip([0, *cuts[name]], [*cuts[name], table.num_rows], strict=True)
        ]
        for name, table in tables.items()
    }
    return {name: wm.stream(parts[name], time="ts", lateness="1 millisecond") for name in tables}


def round_rows(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    shown = [{name: value for name, value in row.items() if not name.endswith(("_stderr", "_bound"))} for row in rows]
    return sorted(
        (tuple(round(float(v), 9) if isinstance(v, int | float) else v for v in row.values()) for row in shown), key=str
    )


@pytest.mark.parametrize("every", ["", "EVERY 10 MICROSECONDS"])
@pytest.mark.parametrize("window", ["RANGE 25 MICROSECONDS", "TUMBLE 30 MICROSECONDS", "LANDMARK"])
def test_with_nothing_shed_the_estimates_are_the_exact_aggregates(window: str, every: str) -> None:
    query = GROUPED.format(window=window, every=every)
    for seed in range(20):
        tables = tables_of(Random(seed), 60, 300, 6)
        exact = wm.collect(query, streams_of(Random(seed), tables)).to_pylist()
        sources = streams_of(Random(seed), tables)
        estimated = run_estimates(bind_query(query, sources), sources).collect().to_pylist()
        assert round_rows(estimated) == round_rows(exact), f"seed {seed}"
        assert all((row[f"{name}_stderr"] or 0) == 0 for row in estimated for name in ("n", "total", "mean"))


def test_over_a_thousand_seeds_the_intervals_cover_the_truth_in_93_to_97_percent() -> None:
    rng = np.random.default_rng(9)
    rows = 700
    tables = {
        "a": pa.table(
            {
                "ts": pa.array(np.arange(rows)),
                "k": pa.array(rng.integers(0, 50, rows)),
                "g": pa.array(rng.integers(0, 2, rows)),
                "x": pa.array(rng.gamma(3, 10, rows)),
            }
        ),
        "b": pa.table({"ts": pa.array(np.arange(rows)), "k": pa.array(rng.integers(0, 50, rows))}),
    }
    streams = {name: wm.stream(table, time="ts") for name, table in tables.items()}
    truth = {row["g"]: row for row in wm.collect(WHOLE, streams).to_pylist()}
    hits, sums = dict.fromkeys(("n", "total", "mean"), 0), dict.fromkeys(("n", "total", "mean"), 0.0)
    for seed in range(1000):
        for row in wm.collect(WHOLE, streams, plan=wm.plan(drop={"a": 0.5, "b": 0.4}, drop_seed=seed)).to_pylist():
            for name in hits:
                hits[name] += abs(row[name] - truth[row["g"]][name]) <= 1.96 * row[f"{name}_stderr"]
                sums[name] += row[name] / truth[row["g"]][name] / 2000
            assert row["low"] >= truth[row["g"]]["low"]
            assert row["low_bound"] == "at most"
    for name, count in hits.items():
        assert 0.93 <= count / 2000 <= 0.97, name
        assert sums[name] == pytest.approx(1, abs=0.01), f"{name} is not unbiased"


def test_shed_aggregates_come_with_their_error_and_the_ledger_balances() -> None:
    streams = streams_of(Random(3), tables_of(Random(3), 200, 1000, 5))
    query = GROUPED.format(window="RANGE 25 MICROSECONDS", every="EVERY 50 MICROSECONDS")
    run = wm.run(query, streams, plan=wm.plan(drop={"a": 0.3}))
    table = run.collect()
    assert table.column_names == [
        "g", "n", "n_stderr", "present", "present_stderr", "total", "total_stderr", "mean", "mean_stderr",
        "low", "low_bound", "high", "high_bound", "as_of",
    ]  # fmt: skip
    assert {row["high_bound"] for row in table.to_pylist()} == {"at least"}
    assert any(row["n"] == 0 and row["total"] is None for row in table.to_pylist()), (
        "a group that empties is shown once more"
    )
    assert all(entry.arrived == entry.kept + entry.shed + entry.late for entry in run.ledger.values())
    assert run.ledger["a"].shed > 0


def test_having_and_expressions_read_the_estimates() -> None:
    streams = {name: wm.stream(table, time="ts") for name, table in tables_of(Random(4), 300, 1000, 5).items()}
    query = """
        SELECT a.g AS g, COUNT(*) AS n, SUM(a.x) + 1 AS more
        FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k GROUP BY a.g HAVING COUNT(*) > 10
    """
    rows = wm.collect(query, streams, plan=wm.plan(drop={"b": 0.5})).to_pylist()
    assert rows
    assert all(row["n"] > 10 and isinstance(row["more"], int) for row in rows)


def test_aggregates_that_cannot_be_estimated_are_refused() -> None:
    streams = {name: wm.stream(table, time="ts") for name, table in tables_of(Random(5), 50, 100, 5).items()}
    drop = wm.plan(drop={"a": 0.5})
    with pytest.raises(PlanError, match="would hold as many rows as before"):
        wm.collect("SELECT COUNT(*) AS n FROM a [ROWS 5], b [RANGE 1 SECOND] WHERE a.k = b.k", streams, plan=drop)
    with pytest.raises(PlanError, match="cannot aggregate early"):
        wm.collect(WHOLE, streams, plan=wm.plan(drop={"a": 0.5}, early=["b"]))
    with pytest.raises(InputError, match="not evaluated at every row"):
        wm.collect(WHOLE, streams, plan=drop, evaluate="row")
    run = wm.run(WHOLE, streams, plan=drop)
    with pytest.raises(PlanError, match="cannot change its drop rates"):
        run.replan(wm.plan(drop={"a": 0.9}))


def test_an_aggregation_over_its_budget_sheds_and_estimates() -> None:
    streams = {name: wm.stream(table, time="ts") for name, table in tables_of(Random(6), 3000, 1_000_000, 50).items()}
    query = WHOLE.replace("1 HOUR", "100 MILLISECONDS")
    whole = wm.collect(query, streams, budget=wm.Budget(processors=10), shed=True)
    assert "n_stderr" not in whole.column_names
    tight = wm.Budget(memory_bytes=wm.explain(query, streams).chosen.cost.state_bytes * 0.8)
    with pytest.raises(PlanError, match="cannot keep up"):
        wm.collect(query, streams, budget=tight)
    table = wm.collect(query, streams, budget=tight, shed=True)
    assert "n_stderr" in table.column_names
    assert np.sum(table["n"].to_numpy()) == pytest.approx(np.sum(whole["n"].to_numpy()), rel=0.5)

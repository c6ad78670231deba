"""MIN and MAX that inputs compute early: little work, the same rows, and changes of the plan between batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.properties.generators.aggregation_cases import SavedStateParts
from watersmeet.operators.aggregate.step import AggregateOperator

QUERY = """
    SELECT a.g, COUNT(*) AS n, MAX(b.v) AS most, MIN(b.v) AS least, MIN(b.name) AS first, MAX(a.v) AS top
    FROM a [{window}] AS a, b [{window}] AS b WHERE a.k = b.k GROUP BY a.g EVERY 1 SECOND
"""
PLACEMENTS = [wm.plan(early=early) for early in ([], ["a"], ["b"], ["a", "b"])]


def make_rows(seed: int, rows: int) -> pa.Table:
    random = np.random.default_rng(seed)
    values = random.integers(0, 1_000_000, rows)
    return pa.table(
        {
            "ts": pa.array(np.sort(random.integers(0, 60_000_000, rows))),
            "k": pa.array(random.integers(0, 5, rows)),
            "g": pa.array(random.integers(0, 3, rows)),
            "v": pa.array(values, mask=random.random(rows) < 0.1),
            "name": pa.array([f"n{value % 37}" for value in values]),
        }
    )


def make_streams(rows: int) -> dict[str, wm.Stream]:
    return {name: wm.stream(make_rows(seed, rows), time="ts", unit="us") for name, seed in (("a", 1), ("b", 2))}


def sort_rows(table: pa.Table) -> list[dict[str, object]]:
    return table.sort_by([("as_of", "ascending"), ("g", "ascending")]).to_pylist()


@pytest.mark.parametrize("window", ["RANGE 5 SECONDS", "ROWS 20", "LANDMARK", "TUMBLE 3 SECONDS"])
def test_every_placement_gives_the_same_extremes(window: str) -> None:
    late, *early = (
        sort_rows(wm.collect(QUERY.format(window=window), make_streams(400), plan=plan)) for plan in PLACEMENTS
    )
    assert late
    assert all(found == late for found in early)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("window", ["RANGE 5 SECONDS", "ROWS 20", "LANDMARK"])
def test_plans_change_between_batches(window: str, *, restarts: bool) -> None:
    query, batches = QUERY.format(window=window), 12
    expected = sort_rows(wm.collect(query, make_streams(400), plan=PLACEMENTS[0]))
    tables = {name: make_rows(seed, 400) for name, seed in (("a", 1), ("b", 2))}
    nothing = {name: wm.stream(iter([table.slice(0, 0)]), time="ts", unit="us") for name, table in tables.items()}
    run, kept = wm.run(query, nothing, plan=PLACEMENTS[0]), SavedStateParts()
    found: list[pa.RecordBatch] = []
    for number in range(batches):
        cut_us = 60_000_000 // batches
        found += run.advance(
            {name: table.filter((np.asarray(table["ts"]) // cut_us) == number) for name, table in tables.items()}
        )
        if restarts:
            kept.save(run.state)
        run.replan(PLACEMENTS[number % len(PLACEMENTS)])
        assert isinstance(run.operator, AggregateOperator)
        if restarts:
            run.state = kept.restore(run.operator.config)
    found += run.finish()
    assert sort_rows(pa.Table.from_batches(found, run.result)) == expected


def test_an_extreme_joins_no_more_entries_than_a_sum() -> None:
    touched = {}
    for aggregate in ("SUM", "MAX"):
        query = f"""SELECT a.g, {aggregate}(b.v) AS x FROM a [RANGE 20 SECONDS] AS a, b [RANGE 20 SECONDS] AS b
            WHERE a.k = b.k GROUP BY a.g EVERY 1 SECOND"""
        run = wm.run(query, make_streams(5_000), plan=wm.plan(early=["a", "b"]))
        assert run.collect().num_rows
        touched[aggregate] = int(run.tally.touched.sum())
    assert 0 < touched["MAX"] <= touched["SUM"]

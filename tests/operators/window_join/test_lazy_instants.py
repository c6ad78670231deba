"""Evaluation and expiration intervals are instants of event time: batches do not move them, and rows wait in state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.operators.build import build_operator
from watersmeet.operators.protocol import Clock, InputBatch, SavedPart, exhaust
from watersmeet.runtime.embedded.run import EmbeddedRun
from watersmeet.sources.declarations import bind_query

SECONDS = 24
QUERY = """
    SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM a [RANGE 3 SECONDS], b [RANGE 4 SECONDS], c [RANGE 2 SECONDS]
    WHERE a.k = b.k AND b.k = c.k
"""
LAZY = {
    "lazy-nlj": wm.plan("lazy-nlj", evaluate="4 seconds", expire="4 seconds"),
    "general-lazy-nlj": wm.plan(
        "general-lazy-nlj",
        order={"a": ["b", "a", "c"], "b": ["a", "c", "b"], "c": ["c", "a", "b"]},
        evaluate="4 seconds",
        expire="6 seconds",
    ),
    "naive-nlj": wm.plan("naive-nlj", order=["b", "a", "c"], evaluate="3 seconds", expire="3 seconds"),
    "lazy-hash": wm.plan("lazy-hash", evaluate="2 seconds", expire="6 seconds"),
    "hybrid-nlj-hash": wm.plan("hybrid-nlj-hash", indexes={"a": "hash(3)"}, evaluate="6 seconds", expire="6 seconds"),
    "eager-nlj": wm.plan("eager-nlj", expire="3 seconds"),
}


def draw_tables(seed: int = 1, rate: int = 9) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    tables = {}
    for name in "abc":
        times = np.sort(rng.integers(0, SECONDS * 1_000_000, rate * SECONDS))
        tables[name] = pa.table({"ts": pa.array(times), "k": pa.array(rng.integers(0, 4, times.size))})
    return tables


def cut(table: pa.Table, batch_us: int) -> Iterator[pa.Table]:
    times = table["ts"].to_numpy()
    for start in range(0, SECONDS * 1_000_000, batch_us):
        first, last = np.searchsorted(times, [start, start + batch_us])
        yield table.slice(first, last - first)


def start(plan: wm.Plan, batch_us: int) -> EmbeddedRun:
    streams = {
        name: wm.stream(list(cut(table, batch_us)), time="ts", unit="us") for name, table in draw_tables().items()
    }
    return wm.run(QUERY, streams, plan=plan)


def as_set(table: pa.Table) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture(scope="module")
def expected_rows() -> list[tuple[int, ...]]:
    return as_set(wm.collect(QUERY, {name: wm.stream(t, time="ts", unit="us") for name, t in draw_tables().items()}))


@pytest.mark.parametrize("name", LAZY)
def test_batches_change_neither_rows_nor_comparisons(name: str, expected_rows: list[tuple[int, ...]]) -> None:
    counted = []
    for batch_us in (24_000_000, 7_000_000, 1_000_000, 300_000):
        run = start(LAZY[name], batch_us)
        assert as_set(run.collect()) == expected_rows
        counted.append(run.tally.comparisons.tolist())
    assert counted[1:] == counted[:1] * 3


@pytest.mark.parametrize("name", LAZY)
def test_every_row_expires_once(name: str) -> None:
    run = start(LAZY[name], 1_000_000)
    run.collect()
    whole = start(LAZY[name], 24_000_000)
    whole.collect()
    assert run.tally.expirations.tolist() == whole.tally.expirations.tolist()
    assert (run.tally.expirations <= run.tally.inserts).all()
    assert (run.tally.expirations > run.tally.inserts // 2).all()


def test_the_first_results_come_with_the_first_instant() -> None:
    #  s        0    1    2    3    4    5
    #  batches  [    ][   ][   ][   ][   ]
    #  τ        |                   |
    run = start(LAZY["lazy-nlj"], 1_000_000)
    rows = [sum(batch.num_rows for batch in results) for results in run.batches()]
    assert rows[:4] == [0, 0, 0, 0]
    assert rows[4] > 0
    assert rows[5:8] == [0, 0, 0]


def split_times(batch: pa.Table) -> InputBatch:
    return InputBatch(batch, batch["ts"].to_numpy())


@pytest.mark.parametrize("name", LAZY)
@pytest.mark.parametrize("other", ["runs", "eager-hash", "lazy-nlj"])
def test_waiting_rows_are_saved_and_any_plan_joins_them(
    name: str, other: str, expected_rows: list[tuple[int, ...]]
) -> None:
    tables = draw_tables()
    bound = bind_query(QUERY, {alias: wm.stream(table, time="ts", unit="us") for alias, table in tables.items()})
    plans = [LAZY[name], LAZY.get(other, wm.plan(other))]
    batches = list(zip(*(cut(tables[alias], 1_000_000) for alias in "abc"), strict=True))
    results: list[pa.RecordBatch] = []
    saved: list[SavedPart] | None = None
    waited = False
    for number, rows in enumerate(batches):
        operator = build_operator(bound, plans[number // 3 % 2], lambda source: source.fields.empty_table())
        state = operator.empty() if saved is None else operator.restore(saved)
        future_us = 2**62 if number == len(batches) - 1 else (number + 1) * 1_000_000
        clock = Clock(number * 1_000_000, future_us, future_us)
        found, (after, _) = exhaust(operator.advance(state, dict(enumerate(map(split_times, rows))), clock))
        results += found
        saved = [
            SavedPart(part.input_number, part.kind, part.to_bytes())
            for part in operator.parts(operator.trim(state, after, clock))
        ]
        waited |= any(part.kind == "waiting" for part in saved)
    assert as_set(pa.Table.from_batches(results)) == expected_rows
    assert waited == any(plan.evaluate_us > 0 for plan in plans)


def test_an_aggregation_over_kept_rows_sees_every_result_of_a_batch() -> None:
    query = "SELECT COUNT(*) AS n FROM a [RANGE 3 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"
    tables = draw_tables()
    found = []
    for plan in (wm.plan("runs", drop={"a": 0.5}), wm.plan("lazy-nlj", drop={"a": 0.5}, evaluate="4 s", expire="4 s")):
        streams = {alias: wm.stream(list(cut(tables[alias], 1_000_000)), time="ts", unit="us") for alias in "ab"}
        found.append(wm.collect(query, streams, plan=plan).to_pylist())
    assert found[0] == found[1]

"""Rows and indexes that algorithms keep between batches: they follow the windows, and belong to one state only."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.window_join.test_state_between_batches import result_rows, start_run
from tests.oracle import as_multiset, table_rows
from tests.properties.engine import expected_rows
from tests.properties.generators.join_cases import generate_case
from tests.properties.generators.random_plans import random_plans
from tests.volume import scale_volume
from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.calibration.measurement import A, B, build_input_batch, build_join_config
from watersmeet.operators.window_join.driver import iter_join_batch, join_batch
from watersmeet.operators.window_join.state import empty_state
from watersmeet.operators.window_join.tactics import live_rows
from watersmeet.runtime.embedded.run import EmbeddedRun

SEEDS = scale_volume(5)
SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def _no_spare_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give windows little room, so that rows are moved to the front and buckets move often."""
    monkeypatch.setattr(live_rows, "SPARE_ROWS", 2)


@pytest.mark.parametrize("chunk", range(4))
def test_batches_that_run_again_change_no_result(chunk: int) -> None:
    """Indexes are updated in place, so a batch that runs again from an older state must not use them."""
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        case, rng = generate_case(seed), Random(seed)
        plan = rng.choice([each for each in random_plans(rng, case) if each.algorithm != "runs"] or [Plan()])
        run, rounds = start_run(case, rng)
        run.replan(plan)
        found: list[pa.RecordBatch] = []
        for tables in rounds:
            before = run.state
            if rng.random() < 0.4:
                run.advance(rng.choice(rounds) if rng.random() < 0.3 else tables)
                run.state = before
            if rng.random() < 0.2:
                run.restore_state(run.save_state())
            if rng.random() < 0.2:
                run.replan(Plan())
            found += run.advance(tables)
            run.replan(plan)
        assert result_rows(run, found + run.finish()) == expected_rows(case), f"seed {seed}, {plan}"


def test_a_batch_that_was_given_up_half_way_leaves_no_indexes() -> None:
    plan = Plan("window-join", indexes=(("a", Index("ttree", 4)), ("b", Index("hash", 3))))
    config = build_join_config(plan, window_a_us=50, window_b_us=20)
    rng = np.random.default_rng(1)
    kept = given_up = empty_state(config)
    for start in range(0, 300, 10):
        times = start + np.arange(10)
        batch = {i: build_input_batch(times, rng.integers(0, 4, 10)) for i in (A, B)}
        unfinished = iter_join_batch(config, given_up, batch, -FOREVER_US, start + 9)
        assert next(unfinished).num_rows
        unfinished.close()
        whole, again = (join_batch(config, state, batch, -FOREVER_US, start + 9) for state in (kept, given_up))
        assert _sort_rows(again.results) == _sort_rows(whole.results) != []
        kept, given_up = whole.state, again.state


def _sort_rows(results: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for batch in results for row in batch.to_pylist())


QUERIES = {
    "keys": "SELECT a.id AS x, b.id AS y FROM a [RANGE 20 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k",
    "bands": (
        "SELECT a.id AS x, b.id AS y FROM a [RANGE 20 SECONDS], b [RANGE 9 SECONDS] WHERE a.v BETWEEN b.v - 1 AND b.v"
    ),
    "rows": "SELECT a.id AS x, b.id AS y FROM a [ROWS 30], b [ROWS 11] WHERE a.k = b.k",
    "text": (
        "SELECT a.id AS x, b.id AS y, c.id AS z FROM a [RANGE 20 SECONDS], b [RANGE 9 SECONDS], c [RANGE 15 SECONDS]"
        " WHERE a.k = b.k AND b.k = c.k AND a.s || b.s <> 'xy' AND a.v < c.v"
    ),
    "one window": (
        "SELECT a.id AS x, b.id AS y, c.id AS z FROM a, b, c WINDOW = 9 SECONDS WHERE a.k = b.k AND b.k = c.k"
    ),
}
INDEXES = {
    "lists": (Index(), Index(), Index()),
    "hash": (Index("hash", 1), Index("hash", 7), Index("hash", 3)),
    "trees": (Index("btree", 4), Index("ttree", 4), Index("btree", 2)),
    "mixed": (Index("hash", 5), Index("ttree", 2), Index()),
}


@pytest.mark.parametrize("disorder_s", (0, 40, 6)[: 1 + scale_volume(1)])
@pytest.mark.parametrize("indexes", INDEXES)
@pytest.mark.parametrize("query", QUERIES)
def test_indexes_follow_their_windows_over_many_batches(query: str, indexes: str, disorder_s: int) -> None:
    text, chosen = QUERIES[query], INDEXES[indexes]
    if query == "bands" and indexes in ("hash", "mixed"):
        pytest.skip("a hash index answers no band")
    aliases = [name for name in "abc" if f"{name}.id" in text]
    plans = [Plan("window-join", indexes=tuple(zip(aliases, chosen, strict=False)))]
    if indexes == "lists":
        plans += [Plan("lazy-nlj", evaluate_us=2 * SECOND_US, expire_us=3 * SECOND_US), Plan("eager-nlj")]
        plans += [Plan("nlw-join"), Plan("lca"), Plan("gca"), Plan("ripple-join", cleanup_rows=70)] * (query != "rows")
    if indexes == "hash" and query in ("keys", "text", "one window"):
        tables_of = plans[0].indexes
        plans += [Plan("hw-join", indexes=tables_of), Plan("xjoin", indexes=tables_of, cleanup_rows=50)]
    if query == "one window" and indexes == "lists":
        plans.append(Plan("mw-join"))
    disorder_us = disorder_s * SECOND_US
    tables = _tables(Random(disorder_s), rows=400, disorder_us=disorder_us)
    rounds = _rounds(tables, 5)
    expected = _run_all(_start(text, tables, Plan(), disorder_us), rounds)
    assert expected
    for plan in plans:
        assert _run_all(_start(text, tables, plan, disorder_us), rounds) == expected, plan


def test_the_engine_is_kept_between_batches() -> None:
    tables = _tables(Random(2), rows=400, disorder_us=0)
    plan = Plan("window-join", indexes=(("a", Index("ttree", 4)), ("b", Index("btree", 4))))
    run, engines = _start(QUERIES["keys"], tables, plan), set()
    for batch in _rounds({name: tables[name] for name in "ab"}, 5):
        run.advance(batch)
        handle = run.state.derived
        assert isinstance(handle, live_rows.LiveHandle)
        engines.add(id(handle.engine))
    assert len(engines) < 8, "it is built again only when a window has grown"


Tables = dict[str, pa.Table]


def _tables(rng: Random, rows: int, disorder_us: int) -> Tables:
    """Return three streams of one row per second on average, each up to `disorder_us` later than it should arrive."""
    tables = {}
    for name in "abc":
        times = [rng.randrange(rows) * SECOND_US for _ in range(rows)]
        times.sort(key=lambda each: each + rng.randint(0, disorder_us))
        tables[name] = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "k": pa.array([rng.choice([*range(6), None]) for _ in times], pa.int64()),
                "v": pa.array([rng.choice([*range(30), None]) for _ in times], pa.int64()),
                "s": pa.array([rng.choice("xyz") for _ in times]),
                "id": pa.array(range(rows), pa.int64()),
            }
        )
    return tables


def _rounds(tables: Tables, batch: int) -> list[Tables]:
    longest = max(table.num_rows for table in tables.values())
    return [{name: table.slice(start, batch) for name, table in tables.items()} for start in range(0, longest, batch)]


def _start(text: str, tables: Tables, plan: Plan, disorder_us: int = 0) -> EmbeddedRun:
    streams = {
        name: wm.stream(table, time="ts", lateness=f"{disorder_us} microseconds")
        for name, table in tables.items()
        if f"{name}.id" in text
    }
    return wm.run(text, streams, plan=plan)


def _run_all(run: EmbeddedRun, rounds: list[Tables]) -> object:
    names = {source.name for source in run.config.inputs}
    found: list[pa.RecordBatch] = []
    for tables in rounds:
        found += run.advance({name: table for name, table in tables.items() if name in names})
    return as_multiset(table_rows(pa.Table.from_batches(found + run.finish(), run.config.result)))

"""Comparisons that a correct engine passes: restarts, allocations and budgets of shedding aggregations."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa

import watersmeet as wm
from tests.properties.test_shedding_restarts import check_restarts
from watersmeet.errors import PlanError
from watersmeet.operators.shed import sampling
from watersmeet.operators.shed.sampling import RoleShares
from watersmeet.runtime.embedded.allocation import collect_allocated
from watersmeet.runtime.embedded.run import run_batch_with_metrics

Streams = dict[str, wm.Stream | wm.Relation]

SEEDS = 60
PAIRS = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 30 MICROSECONDS], b [RANGE 50 MICROSECONDS] WHERE a.k = b.k"
GROUPED = """
    SELECT a.g AS g, COUNT(*) AS n, SUM(b.x) AS total
    FROM a [RANGE 300 MICROSECONDS], b [RANGE 500 MICROSECONDS] WHERE a.k = b.k GROUP BY a.g
"""
EVERY_SECOND = """
    SELECT a.g AS g, COUNT(*) AS n FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS]
    WHERE a.k = b.k GROUP BY a.g EVERY 1 SECOND
"""
SHARES = {"a": RoleShares(0.5, 0.7), "b": RoleShares(0.8, 0.4)}


def check_restarted_runs() -> None:
    """Compare runs restarted at random batches with uninterrupted ones."""
    for seed in range(SEEDS):
        check_restarts(seed)


def check_allocated_pairs() -> None:
    """Compare pairs and ledger with the definition, with each row's draws from the drop boxes of its roles."""
    for seed in range(5):
        rng = Random(seed)
        tables = {
            name: pa.table({"ts": [rng.randrange(200) for _ in range(60)], "k": [rng.randrange(5) for _ in range(60)]})
            for name in "ab"
        }
        streams: Streams = {name: wm.stream(table, time="ts") for name, table in tables.items()}
        keeps = {
            (name, role): sampling.make_role_drop_box(name, role, SHARES[name], seed).select_kept(tables[name])
            for name in "ab"
            for role in ("probe", "window")
        }
        wanted: Counter[tuple[int, int]] = Counter()
        for i, left in enumerate(tables["a"].to_pylist()):
            for j, right in enumerate(tables["b"].to_pylist()):
                x, y = left["ts"], right["ts"]
                first, second = (("a", i), ("b", j)) if x >= y else (("b", j), ("a", i))
                kept = keeps[first[0], "probe"][first[1]] and keeps[second[0], "window"][second[1]]
                if left["k"] == right["k"] and -30 <= x - y <= 50 and kept:
                    wanted[x, y] += 1
        found = collect_allocated(wm.sql(PAIRS), streams, SHARES, seed=seed)
        assert Counter(zip(found["x"].to_pylist(), found["y"].to_pylist(), strict=True)) == wanted
        ledger = json.loads(found.schema.metadata[b"watersmeet"])["ledger"]
        for name in "ab":
            assert ledger[name]["kept"] == int((keeps[name, "probe"] | keeps[name, "window"]).sum())


def check_role_draws() -> None:
    """Check that half of the rows drawn for one role are also drawn for the other."""
    table = pa.table({"id": range(20_000)})
    probe, window = (
        sampling.make_role_drop_box("a", role, RoleShares(0.5, 0.5), 3).select_kept(table)
        for role in ("probe", "window")
    )
    assert abs(float((probe & window).mean()) - 0.25) < 0.02


def check_allocated_estimates() -> None:
    """Check estimates over many draws.

    They must be unbiased, one per group, and within two standard errors as often as expected.
    """
    streams = _grouped_streams()
    truth = {row["g"]: row["n"] for row in wm.collect(GROUPED, streams).to_pylist()}
    ratios, hits = [], []
    for seed in range(SEEDS):
        rows = collect_allocated(wm.sql(GROUPED), streams, SHARES, seed=seed).to_pylist()
        assert sorted(row["g"] for row in rows) == sorted(truth)
        ratios += [row["n"] / truth[row["g"]] for row in rows]
        hits += [abs(row["n"] - truth[row["g"]]) <= 1.96 * row["n_stderr"] for row in rows]
    assert abs(float(np.mean(ratios)) - 1) < 0.05
    assert 0.88 <= float(np.mean(hits)) <= 0.995


def check_exact_without_limits() -> None:
    """Check that an aggregation by allocation without a limit is exact."""
    streams = _grouped_streams()
    assert sorted(map(str, wm.allocate(GROUPED, streams).to_pylist())) == sorted(
        map(str, wm.collect(GROUPED, streams).to_pylist())
    )


def check_budgets() -> None:
    """Check that a query is feasible if and only if it is not refused, and that the shed plan fits the budget."""
    streams = _slow_streams()
    cost = wm.explain(EVERY_SECOND, streams).chosen.cost
    for part in (0.3, 0.9, 1.1, 10):
        for budget in (wm.Budget(processors=cost.cpu_per_s * part), wm.Budget(memory_bytes=cost.state_bytes * part)):
            feasible = wm.explain(EVERY_SECOND, streams, budget=budget).feasible
            assert _runs(streams, budget) == feasible
            assert feasible == (part > 1)


def check_shedding_costs() -> None:
    """Check that estimates cost more than the exact result when they regroup many combinations.

    Spark's costs must come on top of both.
    """
    streams, dropping = _slow_streams(), wm.plan(drop={"a": 0.1, "b": 0.1})
    exact = wm.explain(EVERY_SECOND, streams).chosen.cost
    estimated = wm.explain(EVERY_SECOND, streams, plan=dropping).chosen.cost
    assert estimated.cpu_per_s > 2 * exact.cpu_per_s
    assert estimated.state_bytes > 2 * exact.state_bytes  # most of it is combinations
    for plan in (None, dropping):
        here, spark = (
            wm.explain(EVERY_SECOND, streams, plan=plan, engine=engine).chosen.cost for engine in ("embedded", "spark")
        )
        assert spark.cpu_per_s > here.cpu_per_s + 0.001


def check_state_metrics() -> None:
    """Check that the metrics of a batch count windows and combinations."""
    run = wm.run(EVERY_SECOND, _slow_streams(), plan=wm.plan(drop={"a": 0.1}))
    _, figures = run_batch_with_metrics(run, 0, next(run.read_rounds()))
    assert figures.state_bytes > run.state.join.nbytes
    assert figures.state_rows > run.state.join.rows


CHECKS = (
    check_restarted_runs,
    check_allocated_pairs,
    check_role_draws,
    check_allocated_estimates,
    check_exact_without_limits,
    check_budgets,
    check_shedding_costs,
    check_state_metrics,
)


def _runs(streams: Streams, budget: wm.Budget) -> bool:
    try:
        wm.run(EVERY_SECOND, streams, budget=budget)
    except PlanError:
        return False
    return True


def _grouped_streams() -> Streams:
    rng = np.random.default_rng(2)
    found: Streams = {}
    for name, rows in (("a", 400), ("b", 300)):
        columns = {
            "k": np.minimum(rng.geometric(0.1, rows), 30),
            "g": rng.integers(0, 3, rows),
            "x": rng.gamma(3, 10, rows),
        }
        columns = {"ts": np.sort(rng.integers(0, 500, rows)), **columns, "id": np.arange(rows)}
        found[name] = wm.stream(pa.table({key: pa.array(values) for key, values in columns.items()}), time="ts")
    return found


def _slow_streams() -> Streams:
    rng, rows = np.random.default_rng(8), 2_000
    found: Streams = {}
    for name in "ab":
        columns = {"k": rng.integers(0, 10, rows), "g": rng.integers(0, 5, rows)}
        columns = {"ts": np.sort(rng.integers(0, 60_000_000, rows)), **columns}
        found[name] = wm.stream(pa.table({key: pa.array(values) for key, values in columns.items()}), time="ts")
    return found

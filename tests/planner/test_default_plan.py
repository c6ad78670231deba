"""The plan without a pin: the one that `explain` shows, chosen on sampled rows, and replanned as rows arrive."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.runtime.planning import MIN_PLANNING_ROWS
from watersmeet.sources.declarations import Stream

EQUI = "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
THETA = "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.x < b.x - 990"


def table(rows: int, seed: int, distinct: int = 100) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys, values = rng.integers(0, distinct, rows), rng.integers(0, 1000, rows)
    return pa.table(
        {
            "ts": pa.array(np.arange(rows) * 1000),
            "k": pa.array(keys),
            "x": pa.array(values),
            "id": pa.array(np.arange(rows)),
        }
    )


def streams(rows: int) -> dict[str, Stream]:
    return {name: wm.stream(table(rows, seed), time="ts") for seed, name in enumerate("ab")}


def test_the_explained_plan_is_the_plan_that_runs() -> None:
    for query in (EQUI, THETA):
        for rows in (10, MIN_PLANNING_ROWS // 2, MIN_PLANNING_ROWS, 5000):
            declared = streams(rows)
            assert wm.explain(query, declared).plan == wm.run(query, declared).config.plan


def test_inequalities_use_sorted_ranges_and_equalities_use_runs() -> None:
    assert wm.run(EQUI, streams(5000)).config.plan.algorithm == "runs"
    assert wm.run(THETA, streams(5000)).config.plan.algorithm == "sorted-ranges"


def test_few_rows_use_the_default_plan_and_explain_gives_the_reason() -> None:
    explanation = wm.explain(THETA, streams(20))
    assert explanation.plan.algorithm == "runs"
    assert f"fewer than {MIN_PLANNING_ROWS} rows available" in str(explanation)
    assert f"fewer than {MIN_PLANNING_ROWS} rows available" in " ".join(explanation.to_dict()["trace"])


def test_a_run_is_replanned_when_its_rows_have_grown() -> None:
    batches = {name: [table(5000, seed).slice(at, 500) for at in range(0, 5000, 500)] for seed, name in enumerate("ab")}
    first = {name: [parts[0].slice(0, 5), *parts] for name, parts in batches.items()}  # hardly any rows at first
    run = wm.run(THETA, {name: wm.stream(parts, time="ts", lateness="1 hour") for name, parts in first.items()})
    assert run.config.plan.algorithm == "runs"
    found = run.collect()
    assert run.config.plan.algorithm == "window-join", (
        "batches are short: to update a tree is cheaper than to sort again"
    )
    pinned = {name: wm.stream(parts, time="ts", lateness="1 hour") for name, parts in first.items()}
    assert sorted(found.to_pylist(), key=str) == sorted(
        wm.collect(THETA, pinned, plan=wm.plan("runs")).to_pylist(), key=str
    )


def test_a_pinned_plan_and_a_manually_changed_plan_stay() -> None:
    run = wm.run(THETA, streams(5000))
    run.replan(wm.plan("runs"))
    run.collect()
    orders = {"a": ["b"], "b": ["a"]}
    assert run.config.plan == wm.plan("runs", order=orders)
    assert wm.run(THETA, streams(5000), plan=wm.plan("eager-nlj")).config.plan == wm.plan("eager-nlj", order=orders)


def test_samples_predict_matches_including_skew() -> None:
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, 1001) ** 1.1
    rows = {name: table(20_000, seed) for seed, name in enumerate("ab")}
    skewed = {
        name: each.set_column(1, "k", pa.array(rng.choice(1000, 20_000, p=weights / weights.sum())))
        for name, each in rows.items()
    }
    declared = {name: wm.stream(each, time="ts") for name, each in skewed.items()}
    predicted = wm.explain(EQUI, declared).chosen.cost.rows_out_per_s * 20
    actual = wm.collect(EQUI, declared).num_rows
    assert 0.8 < predicted / actual < 1.25


def test_samples_show_that_disjoint_keys_never_match() -> None:
    left, right = table(20_000, 0), table(20_000, 1)
    apart = right.set_column(1, "k", pa.array(right["k"].to_numpy() + 1000))
    declared = {"a": wm.stream(left, time="ts"), "b": wm.stream(apart, time="ts")}
    assert wm.explain(EQUI, declared).chosen.cost.rows_out_per_s < 10

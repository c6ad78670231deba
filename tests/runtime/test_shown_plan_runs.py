"""The plan that `explain` shows is the plan that runs, for all open parts: orders, indexes, intervals, trees."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.volume import scale_volume
from watersmeet.errors import PlanError
from watersmeet.operators.aggregate.step import AggregateOperator
from watersmeet.operators.window_join.tactics.registry import TACTICS
from watersmeet.runtime.planning import MIN_PLANNING_ROWS
from watersmeet.sources.declarations import bind_query

BAND = "a.x >= b.x - 2 AND a.x <= b.x + 2 AND b.x >= c.x - 2 AND b.x <= c.x + 2"
#: Conditions by name, with the streams they join.
QUERIES = {
    "equality of two": ("ab", "a.k = b.k"),
    "theta of two": ("ab", "a.x < b.x - 900"),
    "band of three": ("abc", BAND),
    "chain of three": ("abc", "a.k = b.k AND b.j = c.j"),
    "common key of three": ("abc", "a.k = b.k AND b.k = c.k"),
    "mixed of three": ("abc", "a.k = b.k AND b.x >= c.x - 2 AND b.x <= c.x + 2"),
    "expression of three": ("abc", "ABS(a.x - c.x) < 3 AND a.k = b.k"),
    "star of four": ("abcd", "a.k = b.k AND a.j = c.j AND a.x = d.x"),
    "chain of five": ("abcde", "a.k = b.k AND b.j = c.j AND c.k = d.k AND d.j = e.j"),
}
#: Pairs of a query and an algorithm. `make test` takes every fourth, so each query and each algorithm has some of them.
CASES = [
    (name, algorithm)
    for row, name in enumerate(QUERIES)
    for column, algorithm in enumerate(TACTICS)
    if (row + column) % max(1, 4 // scale_volume(1)) == 0
]
RATES = {"a": 900, "b": 500, "c": 200, "d": 60, "e": 20}


def table(name: str, rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 1_000_000, rows))
    columns = {
        "ts": times,
        "k": rng.integers(0, 40, rows),
        "j": rng.integers(0, 300, rows),
        "x": rng.integers(0, 1000, rows),
        "id": np.arange(rows),
    }
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def query(names: str, where: str) -> str:
    columns = ", ".join(f"{name}.id AS {name}" for name in names)
    return f"SELECT {columns} FROM {', '.join(f'{name} [RANGE 50 MILLISECONDS]' for name in names)} WHERE {where}"


def sources(names: str, share: float = 1.0) -> dict[str, wm.Stream]:
    return {name: wm.stream(table(name, int(RATES[name] * share), seed), time="ts") for seed, name in enumerate(names)}


def get_shown_plan(text: str, over: Any, plan: wm.Plan | None, **how: Any) -> wm.Plan | str:
    """The plan that explain shows, or why the pinned one is refused."""
    try:
        return wm.explain(text, over, plan=plan, **how).plan
    except PlanError as refusal:
        return str(refusal)


@cache
def get_shown_plan_of(name: str, algorithm: str) -> wm.Plan | str:
    """The plan that explain shows for a query and an algorithm, over all rows."""
    names, where = QUERIES[name]
    return get_shown_plan(query(names, where), sources(names), wm.plan(algorithm))


def get_running_plan(text: str, over: Any, plan: wm.Plan | None, **how: Any) -> wm.Plan | str:
    """The plan that the run holds, or why the pinned one is refused."""
    try:
        return wm.run(text, over, plan=plan, **how).config.plan
    except PlanError as refusal:
        return str(refusal)


def get_spark_plan(text: str, over: Any, plan: wm.Plan | None, **how: Any) -> wm.Plan | str:
    """The plan that the buckets hold on Spark; needs pyspark, but no Java."""
    pytest.importorskip("pyspark")
    from watersmeet.runtime.buckets.execution_plan import build_execution_plan

    try:
        return build_execution_plan(bind_query(text, over), over, plan, 4, 4, **how).bucket.config.plan
    except PlanError as refusal:
        return str(refusal)


@pytest.mark.parametrize(("name", "algorithm"), CASES)
def test_the_plan_that_explain_shows_is_the_plan_that_runs(name: str, algorithm: str) -> None:
    names, where = QUERIES[name]
    text, plan = query(names, where), wm.plan(algorithm)
    for share in (1.0, 0.05):  # the second has too few rows to plan by
        over = sources(names, share)
        shown = get_shown_plan_of(name, algorithm) if share == 1.0 else get_shown_plan(text, over, plan)
        assert shown == get_running_plan(text, over, plan)
        assert get_shown_plan(text, over, plan, engine="spark") == get_spark_plan(text, over, plan)


@pytest.mark.parametrize("name", QUERIES)
def test_without_a_pinned_plan_too(name: str) -> None:
    names, where = QUERIES[name]
    for share in (1.0, 0.05):
        over = sources(names, share)
        assert get_shown_plan(query(names, where), over, None) == get_running_plan(query(names, where), over, None)
        assert get_shown_plan(query(names, where), over, None, engine="spark") == get_spark_plan(
            query(names, where), over, None
        )


@pytest.mark.parametrize("algorithm", [None, "runs", "eager-nlj", "window-join", "eager-hash", "tree"])
def test_declared_statistics_affect_both(algorithm: str | None) -> None:
    names, where = QUERIES["chain of three"]
    text, over = query(names, where), sources(names)
    plan = None if algorithm is None else wm.plan(algorithm)
    for rates in ((1, 50_000, 10), (50_000, 1, 10)):
        stats = {
            name: wm.stats(rate=rate, distinct={"k": 10, "j": 5000}) for name, rate in zip(names, rates, strict=True)
        }
        assert get_shown_plan(text, over, plan, stats=stats) == get_running_plan(text, over, plan, stats=stats)
        assert get_shown_plan(text, over, plan, stats=stats, engine="spark") == get_spark_plan(
            text, over, plan, stats=stats
        )


def test_each_query_and_each_algorithm_has_a_case() -> None:
    assert {name for name, _ in CASES} == {*QUERIES}
    assert {algorithm for _, algorithm in CASES} == {*TACTICS}


@pytest.mark.parametrize("algorithm", TACTICS)
def test_a_plan_without_open_parts_stays_as_it_is(algorithm: str) -> None:
    for name in (name for name, chosen in CASES if chosen == algorithm):
        names, where = QUERIES[name]
        over = sources(names)
        full = get_shown_plan_of(name, algorithm)
        if not isinstance(full, str):
            assert (
                get_shown_plan(query(names, where), over, full)
                == get_running_plan(query(names, where), over, full)
                == full
            )


def test_open_parts_next_to_pinned_ones_are_filled() -> None:
    names, where = QUERIES["chain of three"]
    pinned = wm.plan("window-join", order={"a": ["c", "b"]}, indexes={"b": "list"})
    full = get_running_plan(query(names, where), sources(names), pinned)
    assert isinstance(full, wm.Plan)
    assert dict(full.orders)["a"] == ("c", "b")
    assert {*dict(full.orders)} == {*names}
    assert str(dict(full.indexes)["b"]) == "list"
    assert {*dict(full.indexes)} == {*names}


def test_a_band_join_runs_in_the_order_that_is_shown() -> None:
    names, where = QUERIES["band of three"]
    text, over = query(names, where), sources(names)
    explanation = wm.explain(text, over, plan=wm.plan("eager-nlj"))
    open_run, shown_run = wm.run(text, over, plan=wm.plan("eager-nlj")), wm.run(text, over, plan=explanation.plan)
    crossed = wm.run(text, over, plan=wm.plan("eager-nlj", order={"a": ["c", "b"], "b": ["a", "c"], "c": ["a", "b"]}))
    rows = [run.collect().num_rows for run in (open_run, shown_run, crossed)]
    assert rows[0] == rows[1] == rows[2] > 0
    assert open_run.tally.comparisons.tolist() == shown_run.tally.comparisons.tolist()
    assert 3 * open_run.tally.comparisons.sum() < crossed.tally.comparisons.sum()
    assert explanation.to_dict()["orders"] == {origin: list(order) for origin, order in open_run.config.plan.orders}


def test_an_origin_with_no_predicted_match_still_follows_the_band() -> None:
    """With one batch and rates that differ by chance, the model gives all matches to one origin.

    The run may give them to another.
    """
    names, where = QUERIES["band of three"]
    over = {name: wm.stream(table(name, 800, seed), time="ts") for seed, name in enumerate(names)}
    run = wm.run(query(names, where), over, plan=wm.plan("runs"))
    assert [dict(run.config.plan.orders)[origin][0] for origin in "ac"] == ["b", "b"]


def test_without_statistics_no_cross_product_comes_before_a_band() -> None:
    names, where = QUERIES["band of three"]
    few = {name: wm.stream(table(name, 20, seed), time="ts") for seed, name in enumerate(names)}
    for algorithm in ("runs", "eager-nlj"):
        full = get_running_plan(query(names, where), few, wm.plan(algorithm))
        assert isinstance(full, wm.Plan)
        assert dict(full.orders) == {"a": ("b", "c"), "b": ("a", "c"), "c": ("b", "a")}
    mixed = query("abc", "ABS(a.x - c.x) < 3 AND ABS(b.x - c.x) < 3")
    full = get_running_plan(mixed, few, wm.plan("tree"))
    assert isinstance(full, wm.Plan)
    assert full.tree == (("a", "c"), "b")


def test_a_changed_plan_is_filled_as_one_that_starts_a_run() -> None:
    names, where = QUERIES["band of three"]
    text, over = query(names, where), sources(names)
    run = wm.run(text, over)
    run.replan(wm.plan("eager-nlj"))
    assert run.config.plan == get_shown_plan(text, over, wm.plan("eager-nlj"))


def test_growing_directories_are_planned_by_their_first_file(tmp_path: Path) -> None:
    from watersmeet.runtime.embedded.run import start_run
    from watersmeet.sources.declarations import Stream
    from watersmeet.sources.directories import FileSource

    names, where = QUERIES["band of three"]
    for seed, name in enumerate(names):
        (tmp_path / name).mkdir()
        pq.write_table(table(name, RATES[name], seed), tmp_path / name / "0.parquet")
    assert sum(RATES[name] for name in names) >= MIN_PLANNING_ROWS
    growing = {name: Stream(FileSource(tmp_path / name, "ts"), "ts") for name in names}
    followed = {name: wm.stream(tmp_path / name, time="ts", follow=True) for name in names}
    for plan in (None, wm.plan("eager-nlj"), wm.plan("tree")):
        assert (
            get_shown_plan(query(names, where), growing, plan)
            == start_run(query(names, where), growing, plan).config.plan
        )
        assert get_shown_plan(query(names, where), followed, plan, engine="spark") == get_spark_plan(
            query(names, where), followed, plan
        )


def test_an_aggregation_probes_in_the_order_that_is_shown() -> None:
    names = "abc"
    windows = ", ".join(f"{name} [RANGE 50 MILLISECONDS]" for name in names)
    text = f"SELECT a.k, COUNT(*) AS n FROM {windows} WHERE a.k = b.k AND b.k = c.k GROUP BY a.k EVERY 100 MILLISECONDS"
    over = sources(names)
    for plan in (None, wm.plan(), wm.plan(early=["c"]), wm.plan(early=["b", "c"])):
        explanation, run = wm.explain(text, over, plan=plan), wm.run(text, over, plan=plan)
        assert explanation.plan == run.config.plan
        assert isinstance(run.operator, AggregateOperator)
        inputs = run.config.inputs
        orders = {
            inputs[i].alias: [inputs[step.target].alias for step in run.operator.config.join.orders[i]]
            for i in run.config.stream_inputs
        }
        assert explanation.to_dict()["orders"] == orders


def test_the_plan_of_an_aggregation_on_spark_does_not_depend_on_its_rows() -> None:
    """Its state depends on its plan, so a restart has to find the same one."""
    windows = "a [RANGE 10 SECONDS], b [RANGE 10 SECONDS]"
    text = f"SELECT a.k, COUNT(*) AS n FROM {windows} WHERE a.k = b.k GROUP BY a.k EVERY 100 MILLISECONDS"
    plans = [get_spark_plan(text, sources("ab", share), None) for share in (0.05, 1.0)]
    assert (
        plans[0]
        == plans[1]
        == get_spark_plan(text, sources("ab"), None, stats={"a": wm.stats(rate=1, distinct={"k": 9})})
    )
    assert plans[0] == get_shown_plan(text, sources("ab"), None, engine="spark")


def test_a_lazy_join_without_intervals_gets_the_cheapest_interval() -> None:
    names, where = QUERIES["equality of two"]
    full = get_running_plan(query(names, where), sources(names), wm.plan("lazy-nlj"))
    assert isinstance(full, wm.Plan)
    assert full.evaluate_us == full.expire_us > 0
    ten_per_window = replace(full, evaluate_us=5_000, expire_us=5_000)
    found, other = (
        wm.explain(query(names, where), sources(names), plan=plan).chosen.cost.cpu_per_s
        for plan in (full, ten_per_window)
    )
    assert found <= other


def test_a_lazy_join_over_rows_alone_still_needs_its_interval() -> None:
    text = "SELECT a.id AS a, b.id AS b FROM a [ROWS 5], b [ROWS 5] WHERE a.k = b.k"
    with pytest.raises(PlanError, match="needs an evaluation interval"):
        wm.run(text, sources("ab"), plan=wm.plan("lazy-nlj"))

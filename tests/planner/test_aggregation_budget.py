"""Budgets of aggregations: explain, collect and run cost the aggregation itself, and shed only if it does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.windows import RangeWindow
from watersmeet.errors import PlanError
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.early_aggregation import EstimateLoad, EstimateWeights, estimation_cost_per_s

GROUPED = """
    SELECT a.g AS g, COUNT(*) AS n, SUM(b.x) AS total FROM a [RANGE {length} SECONDS], b [RANGE 10 SECONDS]
    WHERE a.k = b.k GROUP BY a.g EVERY 1 SECOND
"""
QUERIES = {
    "grouped": GROUPED.format(length=10),
    "every batch": "SELECT COUNT(*) AS n FROM a [RANGE 5 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    "one stream": "SELECT a.g AS g, AVG(a.x) AS mean FROM a [RANGE 10 SECONDS] GROUP BY a.g EVERY 5 SECONDS",
    "counted": "SELECT COUNT(*) AS n FROM a [ROWS 50], b [RANGE 10 SECONDS] WHERE a.k = b.k EVERY 5 SECONDS",
    "join": "SELECT a.x AS x, b.x AS y FROM a [RANGE 2 SECONDS], b [RANGE 1 SECOND] WHERE a.k = b.k",
}
Streams = dict[str, wm.Stream | wm.Relation]


@pytest.fixture(scope="module")
def streams() -> Streams:
    """Return two streams of 30 rows/s whose windows match in 4,500 pairs at any time."""
    rng, rows = np.random.default_rng(8), 3_000
    found: Streams = {}
    for name in "ab":
        columns = {"k": rng.integers(0, 20, rows), "g": rng.integers(0, 10, rows), "x": rng.random(rows)}
        columns = {"ts": np.sort(rng.integers(0, 100_000_000, rows)), **columns}
        found[name] = wm.stream(pa.table({key: pa.array(values) for key, values in columns.items()}), time="ts")
    return found


def budgets(explanation: Explanation) -> list[wm.Budget]:
    """Return budgets around the predicted cost, including the cost itself."""
    cost = explanation.chosen.cost
    cpus = [wm.Budget(processors=cost.cpu_per_s * part) for part in (0.01, 0.5, 0.9, 1.0, 1.1, 100)]
    memories = [wm.Budget(memory_bytes=cost.state_bytes * part) for part in (0.1, 0.9, 1.0, 1.1)]
    return [
        *cpus,
        *memories,
        wm.Budget(processors=cost.cpu_per_s * 1.5, headroom=0.5),
        wm.Budget(processors=cost.cpu_per_s * 3, headroom=0.5),
    ]


def runs_within(query: str, streams: Streams, **knobs: Any) -> bool:
    try:
        wm.run(query, streams, **knobs)
    except PlanError as error:
        if "cannot keep up" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_feasible_if_and_only_if_it_is_not_refused(streams: Streams, name: str) -> None:
    query = QUERIES[name]
    verdicts = set()
    for budget in budgets(wm.explain(query, streams)):
        explanation = wm.explain(query, streams, budget=budget)
        verdicts.add(explanation.feasible)
        assert (explanation.remedies is None) == explanation.feasible
        assert runs_within(query, streams, budget=budget) == explanation.feasible
        assert runs_within(query, streams, plan=explanation.plan, budget=budget) == explanation.feasible
        for engine, explained in (
            ("embedded", explanation),
            ("spark", wm.explain(query, streams, budget=budget, engine="spark")),
        ):
            try:
                dropped = wm.job(query, streams, budget=budget).choose_pinned_plan(engine)
            except PlanError:
                assert not explained.feasible
            else:
                assert dropped is None
                assert explained.feasible
    assert verdicts == {True, False}


def test_collect_refuses_exactly_the_budgets_that_explain_calls_infeasible(streams: Streams) -> None:
    query = QUERIES["grouped"]
    exact = sorted(wm.collect(query, streams).to_pylist(), key=str)
    for budget in budgets(wm.explain(query, streams)):
        if wm.explain(query, streams, budget=budget).feasible:
            for shed in (False, True):
                table = wm.collect(query, streams, budget=budget, shed=shed)
                assert sorted(table.to_pylist(), key=str) == exact, "a feasible aggregation is exact"
        else:
            with pytest.raises(PlanError, match="cannot keep up"):
                wm.collect(query, streams, budget=budget)


def test_spark_adds_its_own_cost_to_an_aggregation(streams: Streams) -> None:
    here, spark = (wm.explain(QUERIES["grouped"], streams, engine=engine) for engine in ("embedded", "spark"))
    assert spark.engine == "spark"
    assert spark.chosen.cost.cpu_per_s > here.chosen.cost.cpu_per_s
    assert any(part.name == "spark: shuffle" for part in spark.chosen.cost.operators)


def test_each_remedy_alone_makes_an_aggregation_feasible(streams: Streams) -> None:
    query = QUERIES["grouped"]
    need = wm.explain(query, streams).chosen.cost
    budget = wm.Budget(memory_bytes=need.state_bytes / 2)
    explanation = wm.explain(query, streams, budget=budget)
    assert explanation.remedies is not None
    assert explanation.remedies.processors is None
    assert explanation.remedies.memory_bytes is not None
    assert wm.explain(query, streams, budget=replace(budget, memory_bytes=explanation.remedies.memory_bytes)).feasible
    assert explanation.remedies.window_scale is not None
    parsed = wm.sql(query)
    shorter = tuple(
        replace(source, window=RangeWindow(int(10_000_000 * explanation.remedies.window_scale * 0.99)))
        for source in parsed.sources
    )
    assert wm.explain(replace(parsed, sources=shorter), streams, budget=budget).feasible
    approximation = explanation.remedies.approximation
    assert approximation is not None
    assert wm.explain(query, streams, plan=approximation.plan, budget=budget).feasible
    assert "aggregates become estimates from" in str(explanation)
    assert "n_stderr" in wm.collect(query, streams, budget=budget, shed=True).column_names


def test_the_remedies_name_more_processors_if_cpu_is_short(streams: Streams) -> None:
    query = QUERIES["grouped"]
    budget = wm.Budget(processors=wm.explain(query, streams).chosen.cost.cpu_per_s / 2, headroom=0.2)
    explanation = wm.explain(query, streams, budget=budget)
    assert explanation.remedies is not None
    assert explanation.remedies.processors is not None
    assert wm.explain(
        query, streams, budget=replace(budget, processors=explanation.remedies.processors * (1 + 1e-9))
    ).feasible


def test_aggregations_over_rows_windows_explain_why_they_cannot_shed(streams: Streams) -> None:
    query = QUERIES["counted"]
    budget = wm.Budget(processors=wm.explain(query, streams).chosen.cost.cpu_per_s / 2)
    explanation = wm.explain(query, streams, budget=budget)
    assert explanation.remedies is not None
    assert explanation.remedies.approximation is None
    assert "dropping rows is not enough" in str(explanation)
    with pytest.raises(PlanError, match="cannot keep up"):
        wm.collect(query, streams, budget=budget, shed=True)


def test_a_shedding_plan_is_costed_by_its_regrouping(streams: Streams) -> None:
    query = QUERIES["grouped"]
    exact = wm.explain(query, streams).chosen.cost
    little, much = (
        wm.explain(query, streams, plan=wm.plan(drop={"a": drop, "b": drop})).chosen.cost for drop in (0.05, 0.65)
    )
    assert little.cpu_per_s > much.cpu_per_s > 2 * exact.cpu_per_s, (
        "regrouping costs more than the exact answer even with 65 % dropped"
    )
    assert little.state_bytes > exact.state_bytes, "the combinations are state"
    assert little.combinations_per_s is not None
    assert much.combinations_per_s is not None
    assert much.combinations_per_s / little.combinations_per_s == pytest.approx((0.35 / 0.95) ** 2)


def test_rows_are_shed_only_at_rates_whose_estimates_fit_the_budget(streams: Streams) -> None:
    query = QUERIES["grouped"]
    exact = wm.explain(query, streams).chosen.cost
    for part in (0.3, 0.6, 0.9):
        budget = wm.Budget(processors=exact.cpu_per_s * part)
        explanation = wm.explain(query, streams, budget=budget)
        assert explanation.remedies is not None
        approximation = explanation.remedies.approximation
        if approximation is None:
            with pytest.raises(PlanError, match="cannot keep up"):
                wm.run(query, streams, budget=budget, shed=True)
            continue
        assert approximation.costed.cost.cpu_per_s <= budget.cpu_per_s
        assert wm.run(query, streams, budget=budget, shed=True).config.plan.drop == approximation.plan.drop


def test_every_evaluation_pays_for_all_combinations() -> None:
    weights = EstimateWeights(evaluation_s=1.0, combination_s=0.1, waiting_s=0.01, group_s=10.0)
    assert estimation_cost_per_s(EstimateLoad(2, 100, 1000, 3), weights) == pytest.approx(2 * (1 + 10 + 10 + 30))

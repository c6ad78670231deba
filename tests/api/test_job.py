"""A job binds a query once; it gives the answers of the functions, which take the same options by name."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, cast

import pyarrow as pa
import pytest

import watersmeet as wm

QUERY = "SELECT a.k, b.v FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
ROWS = pa.table({"k": [i % 3 for i in range(30)], "v": list(range(30)), "ts": [i * 1_000_000 for i in range(30)]})
STREAMS = {name: wm.stream(ROWS, time="ts", unit="us") for name in "ab"}
STATS = {name: wm.stats(rate=200_000, distinct={"k": 5_000}, row_bytes=24) for name in "ab"}
SMALL = wm.Budget(processors=0.5)


def test_a_job_answers_as_often_as_it_is_asked() -> None:
    job = wm.job(QUERY, STREAMS)
    expected = wm.collect(QUERY, STREAMS)
    assert job.collect() == job.collect() == expected
    assert job.run().collect() == expected
    assert job.explain().plan == wm.explain(QUERY, STREAMS).plan
    assert job.query == wm.sql(QUERY)


def test_a_job_reports_mistakes_at_once() -> None:
    with pytest.raises(wm.QueryError, match="prize"):
        wm.job(QUERY.replace("b.v", "b.prize"), STREAMS)
    with pytest.raises(wm.PlanError, match="quick-join"):
        wm.job(QUERY, STREAMS, plan=wm.plan("quick-join"))
    with pytest.raises(wm.PlanError, match='"c"'):
        wm.job(QUERY, STREAMS, plan=wm.plan(drop={"c": 0.5}))
    with pytest.raises(wm.InputError, match='source "b" is a Table') as refused:
        wm.job(QUERY, {"a": STREAMS["a"], "b": cast(Any, ROWS)})
    assert "wm.stream(source, time=...)" in str(refused.value)


def test_a_job_is_frozen_and_keeps_its_streams() -> None:
    streams = dict(STREAMS)
    job = wm.job(QUERY, streams)
    del streams["b"]
    assert job.collect().num_rows
    with pytest.raises(FrozenInstanceError):
        job.plan = wm.plan()  # type: ignore[misc]


def test_statistics_alone_can_be_explained_but_not_run() -> None:
    job = wm.job(QUERY, STATS)
    assert not job.explain().feasible
    for use in (job.collect, job.run, job.to_spark):
        with pytest.raises(wm.InputError, match='source "a" is a StreamStats'):
            use()


def test_explain_with_shed_shows_the_plan_that_sheds() -> None:
    exact = wm.explain(QUERY, STATS, budget=SMALL)
    shedding = wm.explain(QUERY, STATS, budget=SMALL, shed=True)
    assert not exact.feasible
    assert exact.remedies is not None
    assert exact.remedies.approximation is not None
    assert shedding.plan.drop == exact.remedies.approximation.plan.drop
    assert shedding.plan.drop
    assert shedding.feasible
    assert "rows are shed to fit the budget" in shedding.trace


def test_explain_with_shed_follows_the_policy() -> None:
    policy = wm.SheddingPolicy(least_rows_per_s={"a": 190_000})
    kept = {name: 1 - share for name, share in wm.explain(QUERY, STATS, budget=SMALL, shed=policy).plan.drop}
    assert kept.get("a", 1.0) >= 0.95
    assert kept["b"] < 0.95


@pytest.mark.parametrize("function", [wm.collect, wm.run])
def test_a_plan_by_position_still_works_and_warns(function: Any) -> None:
    with pytest.warns(DeprecationWarning, match=r"pass the plan by name: wm\.\w+\(query, streams, plan=\.\.\.\)"):
        by_position = function(QUERY, STREAMS, wm.plan("eager-nlj"))
    by_name = function(QUERY, STREAMS, plan=wm.plan("eager-nlj"))
    if isinstance(by_name, pa.Table):
        assert by_position == by_name
    else:
        assert by_position.config.plan == by_name.config.plan
    with pytest.raises(TypeError):
        function(QUERY, STREAMS, wm.plan(), wm.Budget())


def test_plan_within_still_works_and_names_the_options() -> None:
    with pytest.warns(DeprecationWarning, match=r"budget=\.\.\., shed=True"):
        plan = wm.plan_within(QUERY, cast(Any, STATS), SMALL, shed=True)
    assert plan is not None
    assert plan.drop == wm.explain(QUERY, STATS, budget=SMALL, shed=True).plan.drop

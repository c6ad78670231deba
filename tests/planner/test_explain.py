"""Predicted costs: numbers that follow from simple statistics, their provenance, and the chosen plan."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import InputError, PlanError

TWO_WAY = "SELECT a.k, a.x, b.x FROM a [RANGE 10 SECONDS], b [RANGE 20 SECONDS] WHERE a.k = b.k"
STATS = {
    "a": wm.stats(rate=1000, distinct={"k": 500}, row_bytes=24),
    "b": wm.stats(rate=100, distinct={"k": 200}, row_bytes=24),
}


def test_rows_out_and_state_follow_from_rates_windows_and_distinct_values() -> None:
    explanation = wm.explain(TWO_WAY, STATS)
    #  a holds 1000 · 10 rows, b 100 · 20; a pair is equal with probability 1/500
    assert explanation.chosen.cost.state_rows == 10_000 + 2_000
    assert explanation.chosen.cost.rows_out_per_s == pytest.approx(1000 * 2_000 / 500 + 100 * 10_000 / 500)


def test_every_number_has_a_provenance() -> None:
    inputs = wm.explain(TWO_WAY, {"a": STATS["a"], "b": wm.stats(rate=100)}).to_dict()["inputs"]
    assert inputs[0]["rows_per_s"]["provenance"] == "declared"
    assert inputs[0]["held_rows"]["provenance"] == "derived"
    assert inputs[1]["distinct"]["k"]["provenance"] == "assumed"


def test_data_is_measured_and_declared_statistics_override_it() -> None:
    table = pa.table(
        {"ts": pa.array(range(0, 1_000_000, 1000), pa.int64()), "k": pa.array(list(range(100)) * 10, pa.int64())}
    )
    streams = {name: wm.stream(table, time="ts") for name in "ab"}
    query = "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
    measured = wm.explain(query, streams).to_dict()["inputs"][0]
    assert measured["distinct"]["k"] == {"value": 100, "provenance": "measured", "note": ""}
    assert measured["rows_per_s"]["value"] == pytest.approx(1000, rel=0.01)
    assert wm.explain(query, streams, stats={"a": wm.stats(rate=7)}).to_dict()["inputs"][0]["rows_per_s"]["value"] == 7


def test_explaining_a_one_shot_iterator_does_not_consume_it() -> None:
    batches = iter([pa.RecordBatch.from_pydict({"ts": pa.array([1], pa.int64()), "k": pa.array([1], pa.int64())})])
    streams = {"a": wm.stream(batches, time="ts")}
    assert (
        wm.explain("SELECT a.k FROM a WHERE a.k = 1", streams).to_dict()["inputs"][0]["rows_per_s"]["provenance"]
        == "assumed"
    )
    assert wm.collect("SELECT a.k FROM a WHERE a.k = 1", streams).num_rows == 1


def test_a_budget_that_is_too_small_is_reported_with_the_numbers() -> None:
    explanation = wm.explain(TWO_WAY, STATS, budget=wm.Budget(memory_bytes=1000))
    assert not explanation.feasible
    assert "1 kB is available" in str(explanation)
    assert wm.explain(TWO_WAY, STATS).feasible
    for nonsense in ({"processors": 0}, {"headroom": 1}, {"memory_bytes": -1}, {"processors": float("nan")}):
        with pytest.raises(PlanError):
            wm.Budget(**nonsense)


def test_the_explanation_is_json_and_lists_the_plans_that_lost_by_cost() -> None:
    explanation = json.loads(json.dumps(wm.explain(TWO_WAY, STATS, all_plans=True).to_dict()))
    alternatives = explanation["alternatives"]
    assert len(alternatives) > 10
    # Plans that delay results come last, because the budget allows no delay.
    ranks = [(each["plan"]["evaluate_us"] > 0, each["cost"]["cpu_per_s"]) for each in alternatives]
    assert ranks == sorted(ranks)
    assert explanation["cost"]["cpu_per_s"] <= ranks[0][1]


def test_a_plan_can_be_taken_from_an_explanation_saved_and_pinned() -> None:
    table = pa.table({"ts": pa.array([1, 2], pa.int64()), "k": pa.array([1, 1], pa.int64())})
    streams = {name: wm.stream(table, time="ts") for name in "ab"}
    query = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
    explanation = wm.explain(query, streams)
    for each in (explanation.chosen, *explanation.others):
        saved = json.loads(json.dumps(each.plan.to_dict()))
        assert wm.Plan.from_dict(saved) == each.plan
        assert wm.collect(query, streams, plan=saved).num_rows == 4


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "fast"])
def test_invalid_statistics_are_refused(rate: object) -> None:
    with pytest.raises(InputError):
        wm.stats(rate=rate)  # type: ignore[arg-type]


def test_an_unknown_column_in_the_statistics_is_refused() -> None:
    table = pa.table({"ts": pa.array([1], pa.int64()), "k": pa.array([1], pa.int64())})
    with pytest.raises(InputError, match="existing columns: ts, k"):
        wm.explain("SELECT a.k FROM a", {"a": wm.stream(table, time="ts")}, stats={"a": wm.stats(distinct={"q": 5})})


def test_streams_that_are_alike_in_everything_are_planned() -> None:
    alike = {name: wm.stats(rate=4_000, distinct={"item": 20_000}, row_bytes=24) for name in ("a", "b", "c")}
    query = (
        "SELECT a.item FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [ROWS 1000]"
        " WHERE a.item = b.item AND b.item = c.item"
    )
    assert wm.explain(query, alike).feasible  # must choose between trees of equal cost

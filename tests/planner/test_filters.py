"""Filters of one stream: ordered by cost and selectivity, tested on the rows that remain, and costed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.algebra.expressions import Like
from watersmeet.algebra.render import format_expression
from watersmeet.errors import InputError, PlanError, QueryError
from watersmeet.operators.expressions import evaluator
from watersmeet.operators.expressions.rows import EvaluationRows
from watersmeet.planner.filters import order_by_rank
from watersmeet.stats.stream_stats import read_stats

FIGURE_4 = "SELECT a.x FROM a [RANGE 1 SECOND] WHERE a.y > 2 AND a.x > 1"
#: The second filter of the figure is written first.
FIGURE_4_STATS = wm.stats(
    rate=1000,
    predicates={"a.x > 1": {"selectivity": 0.25, "cost_us": 500}, "a.y > 2": {"selectivity": 0.5, "cost_us": 1000}},
)


def _selection_cpu(about: wm.Explanation) -> float:
    return sum(part.cpu_per_s for part in about.chosen.cost.operators if part.name.startswith("select"))


def test_the_plans_of_figure_4() -> None:
    best = wm.explain(FIGURE_4, {"a": FIGURE_4_STATS}, budget=wm.Budget())
    assert best.plan.filters == (("a", (2, 1)),)
    steps = best.to_dict()["inputs"][0]["filters"]
    assert [step["cpu_per_s"] for step in steps] == pytest.approx([0.5, 0.25])
    assert best.feasible
    worse = wm.explain(FIGURE_4, {"a": FIGURE_4_STATS}, plan=wm.plan(filters={"a": [1, 2]}), budget=wm.Budget())
    assert _selection_cpu(worse) == pytest.approx(1.25)  # the paper's c(1) = 0.25 and c(2) = 1
    assert not worse.feasible


def test_a_drop_box_before_the_filters_keeps_the_share_that_the_processor_can_test() -> None:
    #  eqs. 18 to 21: with C(p) above 1, x1 = 1 / C(p) and the output shrinks by the same factor
    facts = {"selectivity": 0.5, "cost_us": 500.0}
    stats = wm.stats(rate=4000, predicates={"a.x > 1": facts, "a.y > 2": facts})
    whole = wm.explain(FIGURE_4, {"a": stats})
    assert _selection_cpu(whole) == pytest.approx(3.0)
    shed = wm.explain(FIGURE_4, {"a": stats}, budget=wm.Budget(processors=1.5), shed=True)
    (_, dropped), *_ = shed.plan.drop
    assert 1 - dropped == pytest.approx(0.5, abs=0.01)
    assert shed.chosen.cost.rows_out_per_s == pytest.approx(500, rel=0.02)


def test_an_expensive_filter_costs_more_than_a_cheap_one() -> None:
    cheap, expensive = (
        _selection_cpu(wm.explain(f"SELECT a.x FROM a [RANGE 1 SECOND] WHERE {where}", {"a": wm.stats(rate=1e5)}))
        for where in ("a.x > 3", "a.s LIKE '%foo%'")
    )
    assert expensive > 3 * cheap > 0


@given(
    costs=st.lists(st.floats(0.1, 10), min_size=1, max_size=5),
    shares=st.lists(st.floats(0.05, 0.95), min_size=5, max_size=5),
)
def test_the_order_is_the_cheapest_of_all_for_independent_filters(costs: list[float], shares: list[float]) -> None:
    def total(order: tuple[int, ...]) -> float:
        left = np.cumprod([1.0, *(shares[place] for place in order)])[:-1]
        return float(sum(costs[place] * share for place, share in zip(order, left, strict=True)))

    found = order_by_rank(costs, lambda place, tested: shares[place])
    assert total(found) == pytest.approx(min(total(order) for order in permutations(range(len(costs)))))


def test_measured_selectivities_are_conditional_on_the_filters_before() -> None:
    # u < 100 and v < 100 hold on the same rows, w < 500 on half of them: after u, testing w rejects and v does not
    rng = np.random.default_rng(1)
    u = rng.integers(0, 1000, 5000)
    rows = pa.table(
        {"ts": pa.array(range(5000)), "u": pa.array(u), "v": pa.array(u), "w": pa.array(rng.integers(0, 1000, 5000))}
    )
    query = "SELECT a.u FROM a [RANGE 1 SECOND] WHERE a.u < 100 AND a.v < 100 AND a.w < 500"
    about = wm.explain(query, {"a": wm.stream(rows, time="ts", unit="us")})
    assert about.plan.filter_order("a") == (1, 3, 2)
    shares = [each["share"] for each in about.to_dict()["inputs"][0]["filters"]]
    assert [each["provenance"] for each in shares] == ["measured"] * 3
    assert [each["value"] for each in shares] == pytest.approx([0.1, 0.5, 1.0], abs=0.1)


@pytest.fixture
def like_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows that LIKE is evaluated on."""
    counts: list[int] = []
    evaluate_like: Callable[[Any, EvaluationRows], Any] = evaluator.EVALUATORS[Like]

    def count(node: Like, rows: EvaluationRows) -> Any:
        counts.append(rows.length)
        return evaluate_like(node, rows)

    monkeypatch.setitem(evaluator.EVALUATORS, Like, count)
    return counts


ROWS = pa.table(
    {"ts": pa.array(range(2000)), "x": pa.array(range(2000)), "s": pa.array([f"word {n}" for n in range(2000)])}
)


@pytest.mark.parametrize(("order", "tested"), [([1, 2], 2000), ([2, 1], 20)])
def test_a_run_tests_a_filter_on_the_rows_that_the_filters_before_it_leave(
    order: list[int], tested: int, like_rows: list[int]
) -> None:
    query = "SELECT a.x FROM a [RANGE 1 SECOND] WHERE a.s LIKE '%7%' AND a.x < 20"
    found = wm.collect(query, {"a": wm.stream(ROWS, time="ts", unit="us")}, plan=wm.plan(filters={"a": order}))
    assert found.column("x").to_pylist() == [7, 17]
    assert like_rows[-1] == tested


@pytest.mark.parametrize(
    ("where", "tested"), [("a.x < 20 AND a.s LIKE '%7%'", 20), ("a.x >= 20 OR a.s LIKE '%7%'", 20)]
)
def test_inside_other_expressions_and_and_or_skip_a_costly_argument_on_decided_rows(
    where: str, tested: int, like_rows: list[int]
) -> None:
    query = f"SELECT CASE WHEN {where} THEN 1 ELSE 0 END AS hit FROM a [RANGE 1 SECOND]"
    found = wm.collect(query, {"a": wm.stream(ROWS, time="ts", unit="us")})
    like = [number < 20 and "7" in str(number) for number in range(2000)]
    expected = [int(hit) if "AND" in where else int(hit or number >= 20) for number, hit in enumerate(like)]
    assert found.column("hit").to_pylist() == expected
    assert max(like_rows) == tested  # types are inferred on no rows


FILTERS = ("CAST(a.s AS BIGINT) > 2", "a.x * a.x > 10", "a.x <> 3", "a.s LIKE '%1%'")


@given(
    texts=st.lists(st.sampled_from(["1", "12", "-1", "one", None]), min_size=1, max_size=6),
    numbers=st.lists(st.sampled_from([0, 3, 5, 2**40, None]), min_size=6, max_size=6),
    order=st.permutations([1, 2, 3, 4]),
)
def test_errors_and_rows_do_not_depend_on_the_order_of_filters(
    texts: list[str | None], numbers: list[int | None], order: list[int]
) -> None:
    rows = pa.table(
        {
            "ts": pa.array(range(len(texts))),
            "s": pa.array(texts, pa.string()),
            "x": pa.array(numbers[: len(texts)], pa.int64()),
        }
    )
    query = f"SELECT a.ts FROM a [RANGE 1 SECOND] WHERE {' AND '.join(FILTERS)}"

    def collect(chosen: list[int]) -> list[int | None] | str:
        try:
            plan = wm.plan(filters={"a": chosen})
            return wm.collect(query, {"a": wm.stream(rows, time="ts", unit="us")}, plan=plan).column(0).to_pylist()
        except QueryError:
            return "an error"

    assert collect(order) == collect([1, 2, 3, 4])


def test_a_pinned_order_runs_and_survives_json() -> None:
    about = wm.explain(FIGURE_4, {"a": FIGURE_4_STATS}, plan=wm.plan(filters={"a": [1, 2]}))
    texts = [str(format_expression(each)) for each in about.config.inputs[0].own_predicates]
    assert texts == ["a.y > 2", "a.x > 1"]
    assert wm.Plan.from_dict(about.plan.to_dict()) == about.plan
    assert repr(about.plan) == "wm.plan('runs', filters={'a': [1, 2]})"


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"a": [1]}, 'orders 1 filters of "a", which has 2'),
        ({"a": [1, 1]}, "numbered from 1"),
        ({"b": [1, 2]}, 'orders the filters of "b", which is not a source'),
    ],
)
def test_an_impossible_order_of_filters_is_refused(filters: dict[str, list[int]], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        wm.explain(FIGURE_4, {"a": FIGURE_4_STATS}, plan=wm.plan(filters=filters))


def test_declared_selectivities_of_a_join_hold_for_each_side() -> None:
    query = "SELECT a.k FROM a [ROWS 10], b [ROWS 20] WHERE a.k = b.k"
    stats = {
        "a": wm.stats(rate=10, predicates={"b.k = a.k": 0.5}),
        "b": wm.stats(rate=30, predicates={"a.k = b.k": 0.1}),
    }
    # λo = λa·fa·Wb + λb·fb·Wa
    assert wm.explain(query, stats).chosen.cost.rows_out_per_s == pytest.approx(10 * 0.5 * 20 + 30 * 0.1 * 10)
    one_side = wm.explain(query, {"a": stats["a"], "b": wm.stats(rate=30)})
    assert one_side.chosen.cost.rows_out_per_s == pytest.approx(0.5 * (10 * 20 + 30 * 10))


def test_a_predicate_over_two_streams_costs_what_is_declared_or_what_its_parts_cost() -> None:
    def explain(where: str, **facts: float) -> wm.Explanation:
        stats = {
            "a": wm.stats(rate=100, distinct={"k": 10}, predicates={where: {"selectivity": 0.5, **facts}}),
            "b": wm.stats(rate=100, distinct={"k": 10}),
        }
        query = f"SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k AND {where}"
        return wm.explain(query, stats, plan=wm.plan("runs"))

    def probing(about: wm.Explanation) -> float:
        return sum(part.cpu_per_s for part in about.chosen.cost.operators if part.name.startswith("probe"))

    plain, branches = explain("a.x < b.y"), explain("CASE WHEN a.x < b.y THEN a.x ELSE b.y END > 3")
    assert probing(branches) > 2 * probing(plain)
    declared = explain("a.x < b.y", cost_us=50)
    (check,) = declared.to_dict()["checks"]
    assert check["cost_s"] == pytest.approx(5e-5)
    # 20,000 candidates per second, 50 µs each: one core
    assert probing(declared) - probing(plain) == pytest.approx(20_000 * 5e-5, rel=0.01)


def test_declared_predicates_are_read_from_a_file_and_must_be_in_the_query(tmp_path: Path) -> None:
    file = tmp_path / "stats.toml"
    file.write_text(
        '[streams.a]\nrate = 1000\n[streams.a.predicates]\n"x > 1" = { selectivity = 0.2, cost_us = 500 }\n'
    )
    steps = wm.explain(FIGURE_4, read_stats(file)).to_dict()["inputs"][0]["filters"]
    declared = next(step for step in steps if step["predicate"] == "a.x > 1")
    assert [declared["share"]["value"], declared["cost_s"]["value"]] == pytest.approx([0.2, 5e-4])
    with pytest.raises(InputError, match='name the predicate "x > 2", which the query does not have'):
        wm.explain(FIGURE_4, {"a": wm.stats(rate=1, predicates={"x > 2": 0.5})})
    with pytest.raises(InputError, match="at most one"):
        wm.stats(predicates={"x > 2": 1.5})
    with pytest.raises(InputError, match="selectivity, cost_us"):
        wm.stats(predicates={"x > 2": {"share": 0.5}})

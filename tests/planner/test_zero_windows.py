"""Costs of windows of length 0: finite for every plan, and never so small that no output seems possible."""

from __future__ import annotations

import json
import math

import pytest

import watersmeet as wm
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.tactics.registry import TACTICS

STATS = {name: wm.stats(rate=1000, distinct={"k": 50}, row_bytes=24) for name in "abc"}
FROM = {
    "ranges": "FROM a [RANGE 0 SECONDS], b [RANGE 0 SECONDS] WHERE a.k = b.k",
    "one of two": "FROM a [RANGE 0 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    "all pairs": "FROM a, b, c WINDOW = 0 SECONDS WHERE a.k = b.k AND b.k = c.k",
    "directed": "FROM a, b DWINDOW (a, b) = 0 SECONDS WHERE a.k = b.k",
    "rows": "FROM a [RANGE 0 SECONDS], b [ROWS 5] WHERE a.k = b.k",
}
#: Refuse ROWS windows, whatever their length.
W_JOINS = {"nlw-join", "hw-join", "mw-join", "gca", "gca-nlw", "gca-hw", "lca", "ripple-join", "xjoin"}
BUDGETS = [None, wm.Budget(processors=0.0009), wm.Budget(memory_bytes=1), wm.Budget(processors=1e-9)]


def _sources(form: str) -> dict[str, wm.StreamStats]:
    return {name: STATS[name] for name in ("abc" if form == "all pairs" else "ab")}


def _explain(query: str, form: str, **options: object) -> dict[str, object]:
    """Explain, check that every number is finite, and return the explanation."""
    explanation = wm.explain(query, _sources(form), **options)  # type: ignore[arg-type]
    assert "nan" not in str(explanation)
    facts: dict[str, object] = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    assert math.isfinite(explanation.chosen.cost.cpu_per_s)
    assert explanation.chosen.cost.cpu_per_s > 0
    assert explanation.chosen.cost.rows_out_per_s > 0
    return facts


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("form", FROM)
def test_every_plan_of_a_zero_window_has_a_finite_cost(form: str, budget: wm.Budget | None) -> None:
    _explain(f"SELECT a.k {FROM[form]}", form, budget=budget, all_plans=True)


@pytest.mark.parametrize("name", TACTICS)
@pytest.mark.parametrize("form", FROM)
def test_every_algorithm_can_be_explained_over_zero_windows(form: str, name: str) -> None:
    query = f"SELECT a.k {FROM[form]}"
    if form == "rows" and name in W_JOINS:
        with pytest.raises(PlanError, match="a window in time between every two streams"):
            _explain(query, form, plan=wm.plan(name))
    else:
        _explain(query, form, plan=wm.plan(name))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("every", ["", "EVERY 1 SECOND"])
@pytest.mark.parametrize("form", ["ranges", "one of two", "rows"])
def test_an_aggregation_over_zero_windows_has_a_finite_cost(form: str, every: str, budget: wm.Budget | None) -> None:
    query = f"SELECT a.k, COUNT(*) AS n, SUM(a.x) AS total {FROM[form]} GROUP BY a.k {every}"
    _explain(query, form, budget=budget, all_plans=True)


def test_dropping_rows_of_a_zero_window_costs_rows_out() -> None:
    query = "SELECT a.k FROM a, b WINDOW = 0 SECONDS WHERE a.k = b.k"
    stats = {name: wm.stats(rate=1e6, distinct={"k": 50}) for name in "ab"}
    explanation = wm.explain(query, stats, budget=wm.Budget(processors=0.1))
    assert explanation.remedies is not None
    assert explanation.remedies.approximation is not None
    assert 0 < explanation.remedies.approximation.share_of_output < 1


@pytest.mark.parametrize(
    ("constraint", "window_us"),
    [
        ("WINDOW = 0 SECONDS", 1),
        ("WINDOW = 5 MICROSECONDS", 5),
        ("WINDOW = 1 SECOND", 1_000_000),
        ("DWINDOW (a, b) = 1 SECOND", 1_000_000),
    ],
)
def test_a_lazy_join_evaluates_at_least_once_per_window_and_at_most_every_microsecond(
    constraint: str, window_us: int
) -> None:
    plan = wm.explain(
        f"SELECT a.k FROM a, b {constraint} WHERE a.k = b.k", _sources("ranges"), plan=wm.plan("lazy-nlj")
    ).plan
    assert plan.evaluate_us == plan.expire_us
    assert 1 <= plan.evaluate_us <= window_us

"""Rehearsal of plans on available rows, against complete runs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.planner import rehearsal
from watersmeet.runtime import planning

JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"
LAST_ROWS = "SELECT a.v, b.v AS w FROM a [ROWS 50], b [ROWS 50] WHERE a.k = b.k"
GROUPS = """
    SELECT a.k, COUNT(*) AS n FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k GROUP BY a.k
    EVERY 1 SECOND
"""
ROWS, ROWS_PER_S = 20_000, 200


@pytest.fixture(autouse=True)
def _rehearse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "rehearses", True)


def generate(seed: int, rows: int = ROWS) -> pa.Table:
    """Generate rows whose keys come in bursts: a key is used for two seconds and then never again."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, rows * 1_000_000 // ROWS_PER_S, rows))
    columns = {"ts": times, "k": times // 2_000_000 * 10 + rng.integers(0, 10, rows), "v": np.arange(rows)}
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def declare(rows: int = ROWS) -> dict[str, wm.Stream]:
    return {name: wm.stream(generate(i, rows), time="ts", unit="us") for i, name in enumerate("ab")}


def span_s(streams: dict[str, wm.Stream]) -> float:
    times = [np.asarray(generate(i)["ts"]) for i in range(2)]
    return float(max(each.max() for each in times) - min(each.min() for each in times)) / 1e6


@pytest.mark.parametrize("query", [JOIN, LAST_ROWS, GROUPS])
@pytest.mark.parametrize("limit_s", [1000.0, 0.0])
def test_bursts_do_not_mislead_the_forecast(query: str, limit_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "LIMIT_S", limit_s)  # all rows, or slices
    monkeypatch.setattr(planning, "_rehearsals", planning.ResultsByTables())
    streams = declare()
    about = wm.explain(query, streams)
    assert about.rehearsal is not None
    assert (about.rehearsal.share == 1) == (limit_s > 0)
    truth = wm.collect(query, streams).num_rows / span_s(streams)
    factor = 1.3 if limit_s else 2.0
    assert truth / factor <= about.chosen.cost.rows_out_per_s <= truth * factor


@pytest.mark.parametrize("query", [JOIN, LAST_ROWS, GROUPS])
def test_the_state_is_that_of_a_run(query: str) -> None:
    streams = declare()
    about, run = wm.explain(query, streams), wm.run(query, streams)
    held = [(run.state_rows, run.state_bytes) for _ in run.batches()]
    rows, size = max(held)
    assert about.chosen.cost.state_rows == pytest.approx(rows, rel=0.1)
    assert about.chosen.cost.state_bytes == pytest.approx(size, rel=0.1)


def test_the_formulas_are_wrong_about_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = declare()
    truth = wm.collect(JOIN, streams).num_rows / span_s(streams)
    monkeypatch.setattr(planning, "rehearses", False)
    assert wm.explain(JOIN, streams).chosen.cost.rows_out_per_s < truth / 2


def test_few_rows_are_rehearsed_too() -> None:
    streams = declare(300)
    about = wm.explain(JOIN, streams)
    low, high = about.ranges["rows_out_per_s"]
    assert about.rehearsal is not None
    assert low <= about.chosen.cost.rows_out_per_s <= high
    assert "estimates: rehearsed on all rows" in str(about)


def test_the_same_rows_give_the_same_figures() -> None:
    streams = declare(2_000)
    first, second = (wm.explain(JOIN, streams) for _ in range(2))
    assert first.chosen.cost == second.chosen.cost


def test_operators_add_up_to_the_measured_cpu_time() -> None:
    about = wm.explain(JOIN, declare(2_000))
    assert about.rehearsal is not None
    assert about.chosen.cost.cpu_per_s == pytest.approx(about.rehearsal.cpu_per_s)


def test_a_range_that_crosses_the_budget_is_no_promise() -> None:
    streams = declare(2_000)
    low, high = wm.explain(JOIN, streams).ranges["cpu_per_s"]
    assert wm.explain(JOIN, streams, budget=wm.Budget(processors=high * 1.01)).verdict == "it keeps up"
    middle = wm.explain(JOIN, streams, budget=wm.Budget(processors=(low * high) ** 0.5 * 1.01))
    assert middle.verdict.startswith("it may not keep up")
    assert wm.explain(JOIN, streams, budget=wm.Budget(processors=low)).verdict.startswith("it cannot keep up")


def test_a_plan_that_sheds_is_rehearsed_with_its_drop_rates() -> None:
    streams = declare(4_000)
    whole = wm.explain(JOIN, streams, plan=wm.plan("runs"))
    half = wm.explain(JOIN, streams, plan=wm.plan("runs", drop={"a": 0.5}))
    assert half.rehearsal is not None
    assert half.chosen.cost.rows_out_per_s == pytest.approx(whole.chosen.cost.rows_out_per_s / 2, rel=0.2)

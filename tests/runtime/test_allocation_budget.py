"""A short budget divides probes and windows between two streams: Figures 5 to 7 of Kang, Naughton and Viglas."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.runtime.limited_joins import FIG_5, FIG_6, FIG_7, LimitedWorkload
from watersmeet.planner.models.kang_limited import Pair, output_rows_per_s

KINDS = ("RANGE", "ROWS")


def _explain_within(case: LimitedWorkload, kind: str, strategy: str | None = None) -> wm.Explanation:
    return wm.explain(
        case.query(kind),
        case.stats,
        plan=case.plan,
        budget=case.budget(kind),
        shed=wm.SheddingPolicy(strategy=strategy),
    )


def _formula(case: LimitedWorkload, plan: wm.Plan) -> float:
    """Return σ(λa·B + λb·A) with the probes and windows of a plan (eq. 12)."""
    probe, window = dict(plan.probe), dict(plan.window)
    probes = Pair(*(rate * probe[name] for name, rate in zip("ab", case.rows_per_s, strict=True)))
    windows = Pair(*(rows * window[name] for name, rows in zip("ab", case.window_rows, strict=True)))
    return output_rows_per_s(probes, windows, 1 / case.keys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [FIG_5, FIG_6, FIG_7], ids=["Fig. 5", "Fig. 6", "Fig. 7"])
def test_the_planner_finds_the_output_of_the_papers_best_allocation(case: LimitedWorkload, kind: str) -> None:
    about = _explain_within(case, kind, "allocate")
    assert about.plan.is_allocated
    output = about.chosen.cost.rows_out_per_s
    assert output == pytest.approx(_formula(case, about.plan), rel=0.05)
    assert output >= 0.95 * case.best_per_s
    assert about.feasible


@pytest.mark.parametrize("kind", KINDS)
def test_with_little_memory_the_window_of_the_slower_stream_gets_it(kind: str) -> None:
    about = _explain_within(FIG_6, kind)
    assert about.plan.is_allocated, "it wins against drop boxes"
    assert dict(about.plan.window)["b"] == 0
    assert about.chosen.cost.rows_out_per_s / FIG_6.full_output_per_s == pytest.approx(5 / 6, rel=0.05)


def test_explain_shows_both_strategies_and_what_each_keeps() -> None:
    about = wm.explain(FIG_6.query("RANGE"), FIG_6.stats, plan=FIG_6.plan, budget=FIG_6.budget("RANGE"))
    assert about.remedies is not None
    best, other = about.remedies.approximation, about.remedies.other_strategies[0]
    assert best is not None
    assert best.plan.is_allocated
    assert not other.plan.is_allocated
    assert other.share_of_output == pytest.approx(0.25, abs=0.06)
    assert "storing 0 % of b" in str(about)
    assert "(not chosen)" in str(about)
    shown = about.to_dict()["remedies"]
    assert [shown["approximation"]["strategy"], shown["other_strategies"][0]["strategy"]] == ["allocate", "drop"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_within_the_budget_keeps_the_predicted_share_of_the_output(kind: str) -> None:
    streams, stats = FIG_6.streams(seconds=900), FIG_6.stats
    query, budget = FIG_6.query(kind), FIG_6.budget(kind)
    predicted = _explain_within(FIG_6, kind).chosen.cost.rows_out_per_s / FIG_6.full_output_per_s
    kept = wm.collect(query, streams, plan=FIG_6.plan, budget=budget, shed=True, stats=stats)
    whole = wm.collect(query, streams)
    assert kept.num_rows / whole.num_rows == pytest.approx(predicted, rel=0.05)
    ledger = json.loads(kept.schema.metadata[b"watersmeet"])["ledger"]
    for entry in ledger.values():
        assert entry["arrived"] == entry["kept"] + entry["shed"] + entry["late"]


def test_minimum_rates_are_kept_in_both_roles() -> None:
    policy = wm.SheddingPolicy({"sa": 2.0}, strategy="allocate")
    about = wm.explain(FIG_6.query("RANGE"), FIG_6.stats, plan=FIG_6.plan, budget=FIG_6.budget("RANGE"), shed=policy)
    assert dict(about.plan.probe)["a"] >= 0.2
    assert dict(about.plan.window)["a"] >= 0.2


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(wm.WatersmeetError, match="no strategy"):
        wm.SheddingPolicy(strategy="guess")


def test_a_run_that_divides_its_resources_goes_on_when_the_rates_fall() -> None:
    rng = np.random.default_rng(3)
    case = FIG_6
    tables = case.tables(seconds=600)
    later_us = 600_000_000
    quiet = {
        name: pa.table(
            {
                "ts": pa.array(np.sort(rng.integers(later_us, 2 * later_us, 3000))),
                "k": pa.array(rng.integers(0, case.keys, 3000)),
            }
        )
        for name in tables
    }
    batches = {
        name: [table.slice(at, 1000) for at in range(0, table.num_rows, 1000)]
        + [quiet[name].slice(at, 500) for at in range(0, 3000, 500)]
        for name, table in tables.items()
    }
    streams = {name: wm.stream(list(each), time="ts") for name, each in batches.items()}
    run = wm.run(case.query("RANGE"), streams, budget=case.budget("RANGE"), shed=True, stats=case.stats)
    assert run.collect().num_rows > 0
    assert run.operator.config.plan.is_allocated

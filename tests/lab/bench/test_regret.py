"""Plan regret: coverage of its workloads, equal rows from every plan, and correct numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from watersmeet.algebra.plan import Plan
from watersmeet_lab.bench.regret_measurement import (
    RegretMeasurement,
    TimedPlan,
    draw_plans,
    format_algorithms,
    format_verdict,
    list_best_plans,
    measure_regret,
    plot_regrets,
    rank_correlation,
    summarize_regrets,
)
from watersmeet_lab.bench.regret_workloads import REGRET_WORKLOADS


def test_the_suite_covers_rates_skew_windows_and_batches() -> None:
    assert len(REGRET_WORKLOADS) >= 30
    assert len({each.name for each in REGRET_WORKLOADS}) == len(REGRET_WORKLOADS)
    assert {len(each.streams) for each in REGRET_WORKLOADS} == {2, 3, 4, 5, 6}
    rates = [flow.rows_per_s for each in REGRET_WORKLOADS for flow in each.streams]
    assert max(rates) / min(rates) >= 1000
    assert any(flow.skew for each in REGRET_WORKLOADS for flow in each.streams)
    assert any("ROWS" in flow.window for each in REGRET_WORKLOADS for flow in each.streams)
    assert any("=" not in each.where or "<" in each.where for each in REGRET_WORKLOADS)
    assert any(each.batches > 1 for each in REGRET_WORKLOADS)


@pytest.mark.parametrize("name", ["two-theta", "three-mixed"])
def test_every_plan_of_a_small_workload_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    (workload,) = (each for each in REGRET_WORKLOADS if each.name == name)
    space = partial(draw_plans, most=12)
    found = measure_regret(workload, plan_space=space, repeats=1, scale=0.15)  # refuses plans whose rows differ
    assert len(found.timed_plans) > 1
    assert all(each.predicted_s > 0 for each in found.timed_plans)
    assert found.chosen in found.timed_plans
    assert plot_regrets([found], tmp_path / "regret.svg").read_text().startswith("<?xml")


def test_every_algorithm_runs_its_best_plan() -> None:
    (workload,) = (each for each in REGRET_WORKLOADS if each.name == "three-chain")
    found = measure_regret(workload, plan_space=list_best_plans, repeats=1, scale=0.1)
    algorithms = [each.plan.algorithm for each in found.timed_plans]
    assert len(algorithms) == len({*algorithms})
    assert {"runs", "naive-nlj", "eager-hash", "window-join", "nlw-join", "mw-join", "gca", "lca", "tree"} <= {
        *algorithms
    }
    assert "runs" in format_algorithms(found)


def test_regret_and_correlation_are_those_of_the_measured_times() -> None:
    times = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 8.0)]
    timed = tuple(TimedPlan(Plan(drop_seed=number), *each) for number, each in enumerate(times))
    found = RegretMeasurement("made up", 2, timed[0], timed, excluded_plans=0)
    assert (found.regret, found.correlation, found.best) == (2.0, 0.8, timed[1])
    assert summarize_regrets([found]) == {"median_regret": 2.0, "worst_regret": 2.0, "median_correlation": 0.8}
    assert "worst 2.00 (limit 1.30)" in format_verdict([found])


def test_equal_values_share_their_rank() -> None:
    assert rank_correlation([1, 1, 2], [1, 1, 2]) == 1.0
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == -1.0
    assert rank_correlation([5, 5], [1, 2]) == 1.0

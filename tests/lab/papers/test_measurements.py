"""Measurements measure what they should: blocks lose and repeat no result, and windows stay full."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import DerivedState
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.models.kang import TwoStreams
from watersmeet_lab.papers.effort import Effort
from watersmeet_lab.papers.golab.figure_3 import FAST, best_plan
from watersmeet_lab.papers.golab.models import FOUR_EQUAL, ONE_FAST
from watersmeet_lab.papers.golab.multi_join_runs import lazy_plan, run_fastest
from watersmeet_lab.papers.hammad import arrival_streams, service_time
from watersmeet_lab.papers.hammad.pair_windows import (
    GCA,
    LCA,
    join_along_path,
    join_within_pairs,
)
from watersmeet_lab.papers.kang import structure_costs
from watersmeet_lab.papers.tran.figures_8_and_9 import early_aggregation_gain
from watersmeet_lab.workloads.golab_streams import StreamSpec


def results(arrivals: arrival_streams.ArrivalSequence, join: service_time.StreamingJoin, block: int) -> int:
    run = service_time.StreamRun(join)
    for start in range(0, len(arrivals), block):
        run.advance(arrivals, start, min(start + block, len(arrivals)))
    return run.results


@pytest.mark.parametrize(
    "name", [service_time.NLW, service_time.MW, service_time.HW, service_time.RIPPLE, service_time.XJOIN]
)
def test_batches_find_the_results_of_one_batch(name: str) -> None:
    arrivals = arrival_streams.poisson_arrivals([300.0, 200.0, 100.0], rows=1500, values=10)
    joins = service_time.list_joins([service_time.NLW, name], 50_000, 3)
    assert results(arrivals, joins[name], block=100) == results(arrivals, joins[service_time.NLW], block=1500) > 0


def test_global_and_local_windows_keep_the_same_results() -> None:
    arrivals = arrival_streams.poisson_arrivals([300.0] * 3, rows=900, values=8)
    pairs = np.array([[0, 60, 20], [60, 0, 20], [20, 20, 0]], np.int64) * 1000
    found = {
        name: results(arrivals, join_within_pairs(name, pairs), block=100) for name in (GCA, LCA, service_time.NLW)
    }
    assert len(set(found.values())) == 1
    assert found[GCA] > 0


def test_a_path_is_found_forwards_and_backwards_with_few_comparisons() -> None:
    arrivals = arrival_streams.poisson_arrivals([300.0] * 4, rows=2000, values=10)
    steps = np.array([20_000, 10_000, 20_000], np.int64)
    lca, nlw = (join_along_path(name, steps) for name in (LCA, service_time.NLW))
    assert results(arrivals, lca, block=100) == results(arrivals, nlw, block=100) > 0
    times = service_time.measure_service_times(Effort(repeats=1), arrivals, {"lca": lca, "nlw": nlw}, first=1000)
    assert times["nlw"].mean_comparisons < 0.5 * times["lca"].mean_comparisons


def test_a_stream_that_toggles_brings_as_many_rows_fast_as_slow() -> None:
    arrivals = arrival_streams.toggling_arrivals(
        [100.0], low_per_s=10, high_per_s=1000, rows_per_toggle=50, rows=4000, values=3
    )
    gaps = np.diff(arrivals.times[arrivals.stream_numbers == 1])
    assert np.median(gaps[:40]) > 20 * np.median(gaps[60:90])


def test_stores_are_closed_at_night() -> None:
    arrivals = arrival_streams.store_arrivals(2, rows=5000, items=10, rows_per_hour=50)
    hours = arrivals.times / arrival_streams.HOUR_US % 24
    assert hours.min() >= 7.5
    assert hours.max() <= 20
    assert np.all(np.diff(arrivals.times) >= 0)


@pytest.mark.parametrize("pair", ["HH", "TN", "BT"])
def test_the_windows_of_two_streams_stay_full(pair: str) -> None:
    case = structure_costs.build_join_case(pair, TwoStreams(200, 100, a_per_s=20, b_per_s=50), seconds=10)
    tally = WorkCounters(2)
    for _, found in find_tactic(case.config.plan).compile_plan(case.config, case.config.plan)(
        case.config, case.old, case.new, tally, DerivedState()
    ):
        assert not found.rows[0].size, "keys never match"
    assert tally.inserts.tolist() == [200, 500]
    assert np.abs(tally.expirations - tally.inserts).max() <= 2


def test_plans_of_figure_3_evaluate_at_the_given_interval() -> None:
    plan = best_plan("GENERAL", FAST, ONE_FAST, 50)
    assert plan.evaluate_us == plan.expire_us == 50 * 13
    assert dict(plan.orders)["s4"][-1] == "s4", "many new rows of the fast stream come last"
    assert best_plan("LAZY", FAST, FOUR_EQUAL, 5).algorithm == "lazy-nlj"


def test_plans_are_compared_on_the_same_rows() -> None:
    streams_of_three = (StreamSpec(2, 50, 20),) * 3
    plan = lazy_plan("lazy-nlj", streams_of_three, 5, (0, 1, 2))
    ran = run_fastest(Effort(repeats=3), streams_of_three, {"one": plan, "other": plan}, rows=2000)
    assert ran["one"].comparisons_per_unit == ran["other"].comparisons_per_unit


def test_more_inputs_gain_more() -> None:
    assert early_aggregation_gain(3) > 2 * early_aggregation_gain(2)

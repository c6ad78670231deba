"""The model of the W-joins counts the comparisons and the rows touched of real runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import watersmeet as wm
from watersmeet.algebra.plan import DEFAULT_CLEANUP_ROWS
from watersmeet.planner.algorithms import ALGORITHMS
from watersmeet.planner.cost_of_w_joins import (
    GLOBAL_SWEEP,
    NESTED_SCAN,
    SWEEP,
    WINDOWLESS_SCAN,
    WJoinModel,
    WJoinScan,
)
from watersmeet.planner.workload import ArrivalPattern

SCANS = {
    "nlw-join": NESTED_SCAN,
    "hw-join": NESTED_SCAN,
    "mw-join": SWEEP,
    "gca": GLOBAL_SWEEP,
    "lca": SWEEP,
    "ripple-join": WINDOWLESS_SCAN,
    "xjoin": WINDOWLESS_SCAN,
}
HASHED = ("hw-join", "xjoin")
VALUES, BUCKETS = 40, 7

ONE_WINDOW = """
    SELECT a.k FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS], c [RANGE 5 SECONDS] WHERE a.k = b.k AND b.k = c.k
"""
PAIRS = """
    SELECT a.k FROM a, b, c WINDOW (a, b) = 2 SECONDS AND WINDOW (b, c) = 5 SECONDS AND WINDOW (a, c) = 2 SECONDS
    WHERE a.k = b.k AND b.k = c.k
"""
PATH = """
    SELECT a.k FROM a, b, c, d DWINDOW (a, b) = 2 SECONDS AND DWINDOW (b, c) = 1 SECOND AND DWINDOW (c, d) = 3 SECONDS
    WHERE a.k = b.k AND b.k = c.k AND c.k = d.k
"""

Counts = NDArray[np.float64]


def poisson_table(rate: float, seconds: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    times = np.cumsum(draw.exponential(1e6 / rate, int(2 * rate * seconds) + 50)).astype(np.int64)
    times = times[times < seconds * 1_000_000]
    return pa.table({"ts": pa.array(times), "k": pa.array(draw.integers(0, VALUES, times.size))})


def cut_into_batches(table: pa.Table, batch_s: int, seconds: int) -> Iterator[pa.Table]:
    times = table["ts"].to_numpy()
    for start in range(0, seconds, batch_s):
        first, last = np.searchsorted(times, [start * 1_000_000, (start + batch_s) * 1_000_000])
        yield table.slice(first, last - first)


def count_work(query: str, rates: list[float], plan: wm.Plan, batch_s: int, warm_up_s: int, seconds: int) -> Counts:
    """Return comparisons and touched rows per second, by origin, after the windows have filled."""
    streams = {
        name: wm.stream(list(cut_into_batches(poisson_table(rate, seconds, seed), batch_s, seconds)), time="ts")
        for seed, (name, rate) in enumerate(zip("abcd", rates, strict=False))
    }
    run = wm.run(query, streams, plan=plan)
    counted = [[run.tally.comparisons.sum(axis=1), run.tally.touched.sum(axis=1)] for _ in run.batches()]
    before, after = (np.array(counted[at // batch_s - 1]) for at in (warm_up_s, seconds))
    return np.asarray(after - before, np.float64) / (seconds - warm_up_s)


def predict_work(query: str, rates: list[float], plan: wm.Plan, scan: WJoinScan, arrivals: ArrivalPattern) -> Counts:
    stats = {name: wm.stats(rate=rate, distinct={"k": VALUES}) for name, rate in zip("abcd", rates, strict=False)}
    about = wm.explain(query, stats, plan=plan)
    model = WJoinModel(about.config, replace(about.workload, arrivals=arrivals), about.profile, about.plan, scan)
    loops = [model.loops(origin) for origin in range(len(rates))]
    return np.array(
        [
            [rate * sum(loop.compared for loop in each) for rate, each in zip(rates, loops, strict=True)],
            [rate * sum(loop.touched for loop in each) for rate, each in zip(rates, loops, strict=True)],
        ]
    )


def build_plan(name: str, sources: int, cleanup_rows: int = DEFAULT_CLEANUP_ROWS) -> wm.Plan:
    indexes = dict.fromkeys("abcd"[:sources], f"hash({BUCKETS})") if name in HASHED else {}
    return wm.plan(name, indexes=indexes, cleanup_rows=cleanup_rows)


def assert_within(ratio: float, predicted: Counts, counted: Counts) -> None:
    assert (predicted < ratio * counted).all(), f"{predicted} predicted, {counted} counted"
    assert (counted < ratio * predicted).all(), f"{predicted} predicted, {counted} counted"


def test_the_table_names_these_scans() -> None:
    assert {name: ALGORITHMS[name].predict for name in SCANS} == {name: scan.predict for name, scan in SCANS.items()}


@pytest.mark.parametrize("batch_s", [1, 10])
@pytest.mark.parametrize("name", SCANS)
def test_one_window_for_all_pairs(name: str, batch_s: int) -> None:
    rates, plan = [50.0, 100.0, 20.0], build_plan(name, 3)
    counted = count_work(ONE_WINDOW, rates, plan, batch_s, warm_up_s=20, seconds=60)
    assert_within(1.2, predict_work(ONE_WINDOW, rates, plan, SCANS[name], ArrivalPattern(batch_s)), counted)


@pytest.mark.parametrize("name", [name for name in SCANS if name != "mw-join"])
def test_a_window_per_pair(name: str) -> None:
    rates, plan = [60.0, 30.0, 90.0], build_plan(name, 3)
    counted = count_work(PAIRS, rates, plan, batch_s=1, warm_up_s=20, seconds=60)
    assert_within(1.2, predict_work(PAIRS, rates, plan, SCANS[name], ArrivalPattern(1.0)), counted)


@pytest.mark.parametrize("name", [name for name in SCANS if name != "mw-join"])
def test_a_directed_path_through_four_streams(name: str) -> None:
    rates, plan = [60.0, 30.0, 90.0, 40.0], build_plan(name, 4)
    counted = count_work(PATH, rates, plan, batch_s=1, warm_up_s=20, seconds=60)
    predicted = predict_work(PATH, rates, plan, SCANS[name], ArrivalPattern(1.0))
    # along the path, the first streams meet only rows of their own instant, and there are hardly any
    seen = counted > 0
    assert (predicted[~seen] < 0.1).all()
    assert_within(1.2, predicted[seen], counted[seen])


@pytest.mark.parametrize("name", SCANS)
def test_a_slow_stream_spares_the_sweep_most_rows_and_keeps_rows_in_the_other_buffers(name: str) -> None:
    query, rates = ONE_WINDOW.replace("5 SECONDS", "200 MILLISECONDS"), [200.0, 200.0, 2.0]
    plan = build_plan(name, 3)
    counted = count_work(query, rates, plan, batch_s=1, warm_up_s=10, seconds=100)
    predicted = predict_work(query, rates, plan, SCANS[name], ArrivalPattern(1.0))
    # the slow stream has few rows, so the work of its own loops is left to chance
    assert_within(1.2, predicted[:, :2].sum(axis=1), counted[:, :2].sum(axis=1))


@pytest.mark.parametrize("cleanup_rows", [20, 400, 1000])
@pytest.mark.parametrize("name", ["ripple-join", "xjoin"])
def test_frequent_clean_ups_leave_fewer_rows_to_compare(name: str, cleanup_rows: int) -> None:
    rates, plan = [50.0, 100.0, 20.0], build_plan(name, 3, cleanup_rows)
    counted = count_work(ONE_WINDOW, rates, plan, batch_s=10, warm_up_s=20, seconds=60)
    assert_within(1.2, predict_work(ONE_WINDOW, rates, plan, SCANS[name], ArrivalPattern(10.0)), counted)


@pytest.mark.parametrize("name", [name for name in SCANS if name not in HASHED])
def test_without_an_equality_every_row_in_the_window_matches(name: str) -> None:
    query = "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND], c [RANGE 1 SECOND]"
    rates, plan = [8.0, 15.0, 10.0], build_plan(name, 3)
    counted = count_work(query, rates, plan, batch_s=1, warm_up_s=10, seconds=110)
    assert_within(1.2, predict_work(query, rates, plan, SCANS[name], ArrivalPattern(1.0)), counted)


@pytest.mark.parametrize("name", SCANS)
def test_a_finite_input_in_one_batch_starts_with_empty_windows(name: str) -> None:
    rates, plan = [50.0, 100.0, 20.0], build_plan(name, 3)
    streams = {
        alias: wm.stream(poisson_table(rate, 20, seed), time="ts")
        for seed, (alias, rate) in enumerate(zip("abc", rates, strict=True))
    }
    run = wm.run(ONE_WINDOW, streams, plan=plan)
    run.collect()
    predicted = predict_work(ONE_WINDOW, rates, plan, SCANS[name], ArrivalPattern(20.0, 20.0))
    assert_within(1.2, predicted[0], run.tally.comparisons.sum(axis=1) / 20)

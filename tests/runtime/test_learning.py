"""Streaming queries on Spark record the time of their batches, and later forecasts are corrected by the record."""

from __future__ import annotations

from pathlib import Path

import pytest

import watersmeet as wm
from watersmeet.calibration.spark_runs import (
    MAX_RUNS,
    SparkRun,
    add_run,
    fit_correction,
    load_correction,
    load_runs,
    runs_path,
)
from watersmeet.metrics import BatchMetrics
from watersmeet.planner.explain import Explanation
from watersmeet.runtime.live import LiveWatch, forecast_run

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


@pytest.fixture
def learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn in a directory of the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("WATERSMEET_LEARNING", "on")


def _explain() -> Explanation:
    stats = {name: wm.stats(rate=50_000, distinct={"k": 500_000}, row_bytes=24) for name in "ab"}
    return wm.explain(QUERY, stats, engine="spark", trigger="10 seconds")


def _run_query(about: Explanation, batch_s: float) -> None:
    """Observe the batches of a query at the expected rates, and learn from them."""
    watch = LiveWatch(lambda: forecast_run(lambda: about), trigger_s=10.0)
    rows_out = int(about.chosen.cost.rows_out_per_s * 10)
    for number in range(6):
        watch.observe(BatchMetrics(number, 10.0 * number, batch_s, {"a": 500_000, "b": 500_000}, rows_out, 0, 0))
    watch.learn()


@pytest.mark.usefixtures("learning")
def test_a_query_whose_batches_take_twice_as_long_corrects_the_next_forecast() -> None:
    first = _explain()
    assert first.micro_batch_s is not None
    _run_query(first, 2 * first.micro_batch_s)
    second = _explain()
    assert second.micro_batch_s == pytest.approx(2 * first.micro_batch_s, rel=0.1)
    assert second.micro_batch is not None
    assert second.micro_batch.correction.runs == 1
    assert "corrected by 1 run on this machine" in str(second)
    # Learned factors are relative to the profile, so a second run does not correct twice.
    _run_query(second, 2 * first.micro_batch_s)
    assert _explain().micro_batch_s == pytest.approx(2 * first.micro_batch_s, rel=0.05)


@pytest.mark.usefixtures("learning")
def test_the_record_is_bounded_and_belongs_to_a_number_of_cores() -> None:
    for number in range(MAX_RUNS + 10):
        add_run(SparkRun(2, 0.5, 1.0, 1.5 + number))
    assert len(load_runs()) == MAX_RUNS
    assert load_runs()[-1].measured_s == 1.5 + MAX_RUNS + 9
    assert load_correction(2).runs == MAX_RUNS
    assert load_correction(4).runs == 0
    runs_path().write_text("damaged")
    assert load_runs() == ()


def test_one_slow_run_does_not_decide() -> None:
    usual = [SparkRun(2, 0.5, tasks_s, 0.6 + 1.2 * tasks_s) for tasks_s in (0.1, 1.0, 2.0, 0.2, 3.0, 0.5)]
    correction = fit_correction([*usual, SparkRun(2, 0.5, 1.0, 40.0)])
    assert correction.driver == pytest.approx(1.2, rel=0.1)
    assert correction.tasks == pytest.approx(1.2, rel=0.1)


def test_learning_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("WATERSMEET_LEARNING", "off")
    about = _explain()
    _run_query(about, 5.0)
    assert not runs_path().exists()
    assert _explain().micro_batch_s == about.micro_batch_s

"""Calibration of Spark's costs: loads differ in one thing at a time, and costs are measured on this machine."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from watersmeet.planner.models.profile import SparkCosts
from watersmeet.runtime.spark import calibration
from watersmeet.runtime.spark.calibration import RunCost, SparkLoad, calibrate_spark, fit_costs


def test_a_load_has_the_declared_matches_per_row() -> None:
    assert set(SparkLoad(1000, 0).table(0, 0)["k"].to_pylist()).isdisjoint(
        SparkLoad(1000, 0).table(1, 0)["k"].to_pylist()
    )
    keys = SparkLoad(1000, 4).table(0, 0)["k"].to_pylist()
    assert 300 < len(set(keys)) <= 500


def test_the_fit_separates_rows_out_from_batches() -> None:
    points = [
        RunCost(rows, out, 4, 3e-6 * rows + 2e-6 * out + 4 * 0.3, 1e-6 * rows, 1e-6 * rows, 0.0)
        for rows, out in ((10, 0), (1e6, 0), (1e6, 1e6))
    ]
    assert fit_costs(points) == SparkCosts(
        pack_s=1e-6, shuffle_s=1e-6, state_s=1e-6, out_s=2e-6, batch_s=0.3, assumed=False
    )


def test_costs_are_measured_on_a_real_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LONG_RUN_BATCHES", 2)  # enough to tell a batch from a start
    messages: list[str] = []
    costs = calibrate_spark(messages.append, quick=True, spark=spark)
    assert not costs.assumed
    # A fit on a busy machine may attribute the seconds of a micro-batch to its rows.
    assert costs.batch_s + costs.shuffle_s + costs.out_s > 0
    assert costs.pack_s > 0
    assert costs.state_s > 0
    assert len(messages) == 3

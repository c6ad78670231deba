"""The measurement of forecasts on Spark: its workloads, its sustained rate and its summary."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from watersmeet_lab.bench.spark.foresight import (
    WORKLOADS,
    SparkForecastResult,
    SparkWorkload,
    SteadyRun,
    error_factor,
    estimate_sustained_rate,
    summarize,
)

RESULT = SparkForecastResult("one", 1.0, 2.0, 300.0, 100.0, 1e8, 1.1e8, 1.05)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.name)
def test_a_file_holds_the_rows_of_one_trigger_interval(workload: SparkWorkload) -> None:
    for factor in (1.0, 3.0):
        table = workload.table(workload.streams[0], 2, factor)
        assert table.num_rows == int(workload.rows_per_s * factor * workload.trigger_s)
        seconds = pc.divide(table["ts"].cast(pa.int64()), 1_000_000)
        assert pc.min(seconds).as_py() >= 2 * int(workload.trigger_s)
        assert pc.max(seconds).as_py() < 3 * int(workload.trigger_s)


def test_the_sustained_rate_lies_on_the_line_through_both_runs() -> None:
    # One second per batch and one millisecond per row: 4,000 rows fit 5 seconds.
    small, large = SteadyRun((2.0, 2.0), 1_000, 0, 0), SteadyRun((4.0, 4.0), 3_000, 0, 0)
    assert estimate_sustained_rate(small, large, 5.0) == pytest.approx(4_000 / 5)


def test_a_summary_has_the_median_and_the_worst_factor_of_each_figure() -> None:
    worse = replace(RESULT, measured_batch_s=4.0)
    assert summarize([RESULT, RESULT, worse])["batch time"] == {"median": 2.0, "worst": 4.0}
    assert RESULT.errors["sustained rate"] == 3.0
    assert error_factor(0.0, 1.0) == float("inf")

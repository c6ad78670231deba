"""The benchmark of forecasts: what it generates, measures and summarizes."""

from __future__ import annotations

import math

import pytest

import watersmeet as wm
from watersmeet.runtime import planning
from watersmeet_lab.bench.foresight.generated import list_generated_cases
from watersmeet_lab.bench.foresight.measurement import ForecastError, measure_case
from watersmeet_lab.bench.foresight.real_data import describe_missing_data, list_real_cases
from watersmeet_lab.bench.foresight.report import format_summary, summarize_forecasts


def test_half_of_the_workloads_have_bursts_and_a_quarter_join_ranges() -> None:
    cases = list(list_generated_cases(1.0))
    assert len(cases) >= 30
    assert sum(each.is_bursty for each in cases) * 2 == len(cases)
    assert sum(each.joins_ranges for each in cases) * 4 >= len(cases) * 0.9
    assert len({each.name for each in cases}) == len(cases)


def test_every_query_over_generated_streams_is_valid() -> None:
    for case in list_generated_cases(0.002):
        assert wm.job(case.query, case.sources()).bound.sources


def test_there_are_ten_queries_over_real_data() -> None:
    cases = list(list_real_cases())
    if describe_missing_data() is not None:
        pytest.skip(str(describe_missing_data()))
    assert len(cases) >= 10


def test_a_forecast_is_compared_with_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "rehearses", True)
    case = next(iter(list_generated_cases(0.02)))
    found = measure_case(case, with_regret=False)
    rows_out = found.errors["rows_out_per_s"]
    assert rows_out.measured == wm.collect(case.query, case.sources()).num_rows
    assert rows_out.factor == pytest.approx(1.0)
    summary = summarize_forecasts([found])
    assert summary["rows_out_per_s"]["in_range"] == 1.0
    assert "1 cases" in format_summary("generated", summary)


def test_the_error_of_a_forecast_is_a_factor_in_both_directions() -> None:
    assert ForecastError(2.0, 4.0, 1.0, 5.0).factor == ForecastError(4.0, 2.0, 1.0, 5.0).factor == 2.0
    assert ForecastError(0.0, 4.0, 0.0, 5.0).factor == math.inf
    assert not ForecastError(2.0, 6.0, 1.0, 5.0).is_in_range

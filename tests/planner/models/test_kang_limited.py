"""Division of probes and memory: Figures 5, 6 and 7, and no division does better."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import PlanError
from watersmeet.planner.models.kang_limited import (
    LimitedJoin,
    Pair,
    allocate,
    best_allocation,
    best_kept_rows,
    best_served_rates,
    divide_total,
    kept_rows,
    output_rows_per_s,
    served_rates,
)
from watersmeet_lab.papers.kang.models import FIGURE_5, FIGURE_6, figure_5, figure_6, figure_7

rates = st.integers(1, 100)
joins = st.builds(LimitedJoin, st.builds(Pair, rates, rates), st.builds(Pair, rates, rates), st.just(0.01))


def test_figure_5_with_limited_cpu() -> None:
    assert {name: f"{rate:.1f}" for name, rate in figure_5().items()} == {
        "MaxA": "200.0",
        "by rate": "180.0",
        "equal": "150.0",
        "by window": "133.3",
        "MaxB": "100.0",
    }


def test_figure_6_with_limited_memory() -> None:
    assert {name: f"{rate:.1f}" for name, rate in figure_6().items()} == {
        "MaxA": "250.0",
        "inverse": "216.7",
        "equal": "150.0",
        "proportional": "83.3",
        "MaxB": "50.0",
    }


def test_figure_7_with_limited_cpu_and_memory() -> None:
    assert figure_7() == {"MaxA/MaxB": 10.0, "MaxB/MaxA": 10.0, "equal": 5.0, "MaxA/MaxA": 0.0, "MaxB/MaxB": 0.0}


def test_the_optimum_by_formula_is_the_winner_of_each_figure() -> None:
    served = best_served_rates(FIGURE_5, 100)
    assert output_rows_per_s(served, FIGURE_5.window_rows, FIGURE_5.selectivity) == max(figure_5().values())
    kept = best_kept_rows(FIGURE_6, 1000)
    assert output_rows_per_s(FIGURE_6.rows_per_s, kept, FIGURE_6.selectivity) == max(figure_6().values())
    assert best_allocation(LimitedJoin(Pair(50, 50), Pair(500, 500), 0.01), 10, 100).output_rows_per_s == 10, "σμM"


def test_ten_rows_of_each_stream_can_be_required() -> None:
    join = LimitedJoin(Pair(800, 200), Pair(500, 1000), 0.01)
    assert best_served_rates(join, 100) == (100, 0)
    assert best_served_rates(join, 100, at_least=Pair(10, 10)) == (90, 10)
    assert kept_rows(join, 100, "MaxB", at_least=Pair(30, 0)) == (30, 70)


def test_with_equal_windows_or_equal_rates_every_division_is_equally_good() -> None:
    join = LimitedJoin(Pair(100, 100), Pair(200, 200), 0.01)
    outputs = {
        round(output_rows_per_s(served_rates(join, 50, name), join.window_rows, 0.01), 9)
        for name in ("MaxA", "MaxB", "equal", "by rate")
    }
    assert outputs == {0.01 * 50 * 200}
    kept = {
        round(output_rows_per_s(join.rows_per_s, kept_rows(join, 90, name), 0.01), 9)
        for name in ("MaxA", "inverse", "equal")
    }
    assert kept == {0.01 * 100 * 90}


def test_the_excess_of_one_stream_goes_to_the_other() -> None:
    slow = LimitedJoin(Pair(30, 200), Pair(100, 500), 0.01)
    assert served_rates(slow, 100, "MaxA") == (30, 70)
    assert served_rates(slow, 1000, "equal") == (30, 200), "nothing is short"
    assert kept_rows(slow, 400, "MaxA") == (100, 300)


@given(joins, st.integers(0, 150), st.floats(0, 1), st.integers(0, 5), st.integers(0, 5))
def test_no_division_of_the_probes_beats_the_formula(
    join: LimitedJoin, service: int, share: float, a: int, b: int
) -> None:
    least = Pair(min(a, join.rows_per_s.a, service / 2), min(b, join.rows_per_s.b, service / 2))
    best = output_rows_per_s(best_served_rates(join, service, least), join.window_rows, 0.01)
    other = divide_total(service, Pair(share, 1 - share), least, join.rows_per_s)
    assert output_rows_per_s(other, join.window_rows, 0.01) <= best * (1 + 1e-9) + 1e-12


@given(joins, st.integers(0, 150), st.integers(0, 150), st.floats(0, 1), st.floats(0, 1))
def test_no_division_of_both_beats_the_best_extreme(
    join: LimitedJoin, service: int, memory: int, probes: float, windows: float
) -> None:
    best = best_allocation(join, service, memory)
    served = divide_total(service, Pair(probes, 1 - probes), Pair(0, 0), join.rows_per_s)
    kept = divide_total(memory, Pair(windows, 1 - windows), Pair(0, 0), join.window_rows)
    assert allocate(join, served, kept).output_rows_per_s <= best.output_rows_per_s * (1 + 1e-9) + 1e-12


@given(st.integers(0, 300), st.integers(0, 50), st.integers(0, 50), st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_division_uses_the_whole_total_within_the_bounds(
    total: int, a: int, b: int, to_a: float, to_b: float
) -> None:
    least, most = Pair(a, b), Pair(a + 60, b + 40)
    if total < a + b:
        with pytest.raises(PlanError, match="exceed the"):
            divide_total(total, Pair(to_a, to_b), least, most)
        return
    given = divide_total(total, Pair(to_a, to_b), least, most)
    assert sum(given) == pytest.approx(min(total, sum(most)))
    assert all(low - 1e-9 <= each <= high + 1e-9 for low, each, high in zip(least, given, most, strict=True))


def test_an_unknown_strategy_and_impossible_minimums_are_refused() -> None:
    with pytest.raises(PlanError, match='no strategy "MaxC"'):
        served_rates(FIGURE_5, 100, "MaxC")
    with pytest.raises(PlanError, match="a minimum of 900 exceeds the 800 available"):
        served_rates(FIGURE_5, 1000, "MaxA", at_least=Pair(900, 0))

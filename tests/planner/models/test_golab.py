"""Comparisons of multi-way joins: the cost model against the paper's figures, its formulas and loops that count."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.planner.models.golab import (
    CommonAttribute,
    Intervals,
    Order,
    WindowedStream,
    comparisons_per_origin,
    eager_nlj,
    general_lazy_nlj,
    intermediate_rows,
    lazy_nlj,
    naive_eager_nlj,
    naive_lazy_nlj,
    origin_comparisons,
    result_rows_per_s,
)
from watersmeet.planner.models.golab_orders import global_cost
from watersmeet_lab.papers.golab.models import TABLE_5, TABLE_6, TABLE_7


def order(digits: str) -> Order:
    """Parse an order as the paper writes it: streams numbered from one."""
    return tuple(int(digit) - 1 for digit in digits)


def costs_of_all_orders(join: CommonAttribute) -> list[float]:
    return sorted(global_cost(join, each) for each in permutations(range(len(join.streams))))


@pytest.mark.parametrize(
    ("members", "rows"),
    [("12", 200), ("13", 400), ("14", 600), ("23", 400), ("24", 600), ("34", 1500), ("123", 800), ("124", 1200)],
)
def test_intermediate_sizes_of_table_5(members: str, rows: float) -> None:
    assert intermediate_rows(TABLE_5, order(members)) == pytest.approx(rows, rel=1e-12)


def test_the_best_plan_of_table_5_by_origin() -> None:
    assert eager_nlj(TABLE_5, order("1234")) == pytest.approx((3800, 3800, 2400, 6000), rel=1e-12)


@pytest.mark.parametrize(
    ("join", "digits", "cost"),
    [
        (TABLE_5, "1234", 16000.0),
        (TABLE_5, "2134", 19600.0),
        (TABLE_6, "2134", 80400.0),
        (TABLE_6, "2314", 123150.0),
        (TABLE_6, "2341", 248450.0),
        (TABLE_6, "1234", 120000.0),
        (TABLE_7, "3142", 47976.9),
        (TABLE_7, "3412", 49542.3),
        (TABLE_7, "3124", 51953.8),
        (TABLE_7, "1234", 68200.0),
        (TABLE_7, "2134", 79000.0),
    ],
)
def test_every_cost_the_paper_gives_for_an_order(join: CommonAttribute, digits: str, cost: float) -> None:
    assert round(global_cost(join, order(digits)), 1) == cost


def test_best_and_worst_orders_and_ranks_of_the_three_tables() -> None:
    fives, sixes, sevens = (costs_of_all_orders(table) for table in (TABLE_5, TABLE_6, TABLE_7))
    assert len(fives) == 24
    assert [round(fives[0]), round(fives[-1])] == [16000, 86850]
    assert [round(cost) for cost in fives].index(19600) == 4, "2134 is fifth best"
    assert [round(sixes[0]), round(sixes[-1])] == [80400, 646050]
    assert round(sevens[0], 1) == 47976.9
    assert round(sum(sevens) / 24, 1) == 63361.5


def test_in_table_5_the_cheapest_plans_have_the_fast_stream_first() -> None:
    ranked = sorted(permutations(range(4)), key=lambda each: global_cost(TABLE_5, each))
    assert [each[0] for each in ranked[:4]] == [0, 0, 0, 0]


def test_every_order_the_heuristic_tries_in_table_7_costs_less_than_the_average() -> None:
    assert all(global_cost(TABLE_7, order(digits)) < 63361 for digits in ("3412", "3142", "3124"))


streams = st.builds(
    WindowedStream,
    rows_per_s=st.integers(1, 50),
    window_s=st.integers(1, 100),
    distinct=st.integers(1, 200),
)
four_streams = st.tuples(streams, streams, streams, streams).map(CommonAttribute)


@given(four_streams, st.sampled_from([0, 1, 7]))
def test_the_formulas_of_appendix_a_written_out(join: CommonAttribute, tau: int) -> None:
    """Check the cost with the new rows in the first loop, and with the fixed order of loops S1, S2, S3, S4.

    The paper calls the first C (eager) and L (lazy), the second G (eager) and H (lazy).
    """
    written_first, written_fixed = appendix_a(join, tau)
    intervals = Intervals(tau)
    first = lazy_nlj(join, (0, 1, 2, 3), intervals) if tau else eager_nlj(join, (0, 1, 2, 3))
    fixed = naive_lazy_nlj(join, (0, 1, 2, 3), intervals) if tau else naive_eager_nlj(join, (0, 1, 2, 3))
    assert first == pytest.approx(written_first, rel=1e-9)
    assert fixed == pytest.approx(written_fixed, rel=1e-9)


def appendix_a(join: CommonAttribute, tau: float) -> tuple[list[float], list[float]]:
    lam = [stream.rows_per_s for stream in join.streams]
    w = [stream.rows_per_s * ((stream.window_s or 0) + tau) for stream in join.streams]
    v = [stream.distinct for stream in join.streams]
    phi12, phi13, phi14 = (w[0] * w[j] / max(v[0], v[j]) for j in (1, 2, 3))
    phi123 = phi12 * w[2] / max(min(v[0], v[1]), v[2])
    phi124 = phi12 * w[3] / max(min(v[0], v[1]), v[3])
    c1 = lam[0] * w[1] + lam[0] / w[0] * (phi12 * w[2] + phi123 * w[3])
    c2 = lam[1] * w[0] + lam[1] / w[1] * (phi12 * w[2] + phi123 * w[3])
    c3 = lam[2] * w[0] + lam[2] / w[2] * (phi13 * w[1] + phi123 * w[3])
    c4 = lam[3] * w[0] + lam[3] / w[3] * (phi14 * w[1] + phi124 * w[2])
    per_s3, per_s4 = (1 / tau, 1 / tau) if tau else (lam[2], lam[3])
    to_one = max(min(v[0], v[1]), v[2])
    h3 = per_s3 * w[0] * w[1] + phi12 * lam[2] + phi12 * lam[2] * w[3] / to_one
    h4 = per_s4 * (w[0] * w[1] + phi12 * w[2]) + phi123 * lam[3]
    return [c1, c2, c3, c4], [c1, c2, h3, h4]


@settings(max_examples=40)
@given(four_streams)
def test_intermediate_sizes_do_not_depend_on_the_order_of_joining(join: CommonAttribute) -> None:
    sizes = [stepwise_size(join, each) for each in permutations(range(4))]
    assert sizes == pytest.approx([intermediate_rows(join, (0, 1, 2, 3))] * 24, rel=1e-9)


def stepwise_size(join: CommonAttribute, members: Order) -> float:
    """Compute φ as the paper defines it: window by window."""
    first, *rest = (join.streams[member] for member in members)
    rows, distinct = first.rows(), first.distinct
    for stream in rest:
        rows, distinct = rows * stream.rows() / max(distinct, stream.distinct), min(distinct, stream.distinct)
    return rows


@settings(max_examples=30)
@given(four_streams, st.sampled_from([1, 5]))
def test_the_general_algorithm_never_costs_more_than_the_lazy_or_the_naive_one(join: CommonAttribute, tau: int) -> None:
    intervals = Intervals(tau)
    every = list(permutations(range(4)))
    # a lambda's default has no type
    best = [min(every, key=lambda each, i=i: origin_comparisons(join, i, each, intervals)) for i in range(4)]  # type: ignore[misc]
    general = sum(general_lazy_nlj(join, best, intervals))
    assert general <= min(sum(lazy_nlj(join, each, intervals)) for each in every) * (1 + 1e-9)
    assert general <= min(sum(naive_lazy_nlj(join, each, intervals)) for each in every) * (1 + 1e-9)


@given(four_streams)
def test_eager_joins_never_cost_more_than_the_naive_order(join: CommonAttribute) -> None:
    assert sum(eager_nlj(join, (0, 1, 2, 3))) <= sum(naive_eager_nlj(join, (0, 1, 2, 3))) * (1 + 1e-9)


def test_equal_bucket_counts_divide_the_cost_and_keep_the_ranking() -> None:
    hashed = CommonAttribute(tuple(replace(stream, buckets=5) for stream in TABLE_5.streams))
    plain, bucketed = costs_of_all_orders(TABLE_5), costs_of_all_orders(hashed)
    assert bucketed == pytest.approx([cost / 5 for cost in plain], rel=1e-12)


def test_one_bucket_equals_nested_loops_and_more_buckets_than_values_save_nothing() -> None:
    def cost(buckets: int) -> float:
        return sum(eager_nlj(CommonAttribute((WindowedStream(1, 100, 50, buckets=buckets),) * 3), (0, 1, 2)))

    assert cost(1) == 900
    assert cost(10) == pytest.approx(90)
    assert cost(50) == cost(5000) == pytest.approx(18)


def test_a_hybrid_scans_windows_without_an_index_and_one_bucket_of_the_others() -> None:
    mixed = CommonAttribute(
        (WindowedStream(1, 100, 50), WindowedStream(1, 100, 50, buckets=10), WindowedStream(1, 100, 50))
    )
    assert origin_comparisons(mixed, 0, (0, 1, 2)) == pytest.approx(10 + 2 * 100)
    assert origin_comparisons(mixed, 0, (0, 2, 1)) == pytest.approx(100 + 2 * 10)


def test_a_theta_predicate_keeps_its_selectivity_and_cannot_use_a_hash_index() -> None:
    theta = WindowedStream(1, 100, 50, theta=0.25)
    mixed = CommonAttribute((WindowedStream(1, 100, 50), theta, WindowedStream(1, 100, 50, buckets=10)))
    assert intermediate_rows(mixed, (0, 1)) == 100 * 100 * 0.25
    assert intermediate_rows(mixed, (0, 1, 2)) == 100 * 100 * 100 * 0.25 / 50
    assert origin_comparisons(mixed, 0, (0, 1, 2)) == pytest.approx(100 + 25 * 10)
    assert origin_comparisons(mixed, 1, (1, 2, 0)) == pytest.approx(100 + 25 * 100), (
        "a row joined only by a theta predicate gives no key to look up"
    )


def test_a_count_window_costs_what_a_time_window_of_as_many_rows_costs() -> None:
    counted = CommonAttribute(
        tuple(replace(stream, window_s=None, window_rows=stream.rows()) for stream in TABLE_5.streams)
    )
    assert eager_nlj(counted, (0, 1, 2, 3)) == eager_nlj(TABLE_5, (0, 1, 2, 3))
    lazily = Intervals(5)
    assert lazy_nlj(counted, (0, 1, 2, 3), lazily) == pytest.approx(lazy_nlj(TABLE_5, (0, 1, 2, 3), lazily), rel=1e-12)


def test_each_origin_may_have_an_order_of_its_own() -> None:
    best = comparisons_per_origin(TABLE_5, [order(digits) for digits in ("1234", "2134", "3124", "4123")])
    assert best == pytest.approx((3800, 3800, 2400, 6000), rel=1e-12)


def test_rarer_expiration_lengthens_windows() -> None:
    often, seldom = Intervals(5), Intervals(5, 15)
    assert sum(lazy_nlj(TABLE_5, (0, 1, 2, 3), often)) < sum(lazy_nlj(TABLE_5, (0, 1, 2, 3), seldom))


def test_both_ways_of_counting_results_agree() -> None:
    whole = intermediate_rows(TABLE_5, (0, 1, 2, 3))
    assert whole == pytest.approx(800 * 300 / 40)
    assert result_rows_per_s(TABLE_5) == pytest.approx(
        sum(stream.rows_per_s * whole / stream.rows() for stream in TABLE_5.streams)
    )


@pytest.mark.parametrize("digits", ["123", "321", "213"])
@pytest.mark.parametrize("tau", [0, 4])
def test_loops_that_count_their_comparisons_agree_with_the_model(digits: str, tau: int) -> None:
    join = CommonAttribute((WindowedStream(2, 20, 5), WindowedStream(1, 30, 4), WindowedStream(1, 20, 8)))
    expected = sum(comparisons_per_origin(join, [order(digits)] * 3, Intervals(tau)))
    assert counted_comparisons(join, order(digits), tau) == pytest.approx(expected, rel=0.1)


def counted_comparisons(join: CommonAttribute, loops: Order, tau: int, units: int = 400) -> float:
    """Run the naive loops over random rows and count comparisons per unit of time once the windows are full."""
    rng = random.Random(7)
    longest = max(int(stream.window_s or 0) for stream in join.streams) + tau
    rows: list[list[tuple[int, int]]] = [[] for _ in join.streams]  # (time, value)
    counted = 0
    for now in range(longest + units):
        fresh = [[(now, rng.randrange(int(s.distinct))) for _ in range(int(s.rows_per_s))] for s in join.streams]
        for window, stream in zip(rows, join.streams, strict=True):
            window[:] = [row for row in window if row[0] >= now - int(stream.window_s or 0) - tau]
        for origin, new in enumerate(fresh):
            rows[origin] += new
            if tau and (now + 1) % tau:
                continue
            batches = [[row] for row in new] if not tau else [[row for row in rows[origin] if row[0] > now - tau]]
            for batch in batches:
                sides = [batch if each == origin else rows[each] for each in range(len(rows))]
                counted += (
                    _comparisons([[value for _, value in sides[each]] for each in loops]) if now >= longest else 0
                )
    return counted / units


def _comparisons(loops: list[list[int]]) -> int:
    first, *rest = loops
    reaching, counted = first, 0
    for loop in rest:
        counted += len(reaching) * len(loop)
        reaching = [value for value in reaching for other in loop if other == value]
    return counted


def test_the_sum_over_origins_of_equal_streams_is_that_of_figure_2() -> None:
    equal = CommonAttribute((WindowedStream(1, 100, 50),) * 4)
    assert math.isclose(sum(eager_nlj(equal, (0, 1, 2, 3))), 2800)
    assert math.isclose(sum(naive_eager_nlj(equal, (0, 1, 2, 3))), 42400)

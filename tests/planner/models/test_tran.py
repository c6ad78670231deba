"""Aggregation joins: m inputs reduce to the paper's formulas for two, and rank plans as its figures do."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import InputError, PlanError
from watersmeet.planner.models.tran import (
    AggregationJoin,
    AggregationWeights,
    Input,
    Method,
    all_plans,
    best_plan,
    early_groups,
    plan_cost,
    plan_costs,
    plan_name,
)
from watersmeet_lab.papers.tran.models import (
    SHOWCASES,
    THREE_WAY,
    TWO_WAY,
    figure_6,
    figure_7,
    figure_8,
    figure_9,
    figure_10,
)

inputs = st.builds(
    Input,
    rows_per_s=st.integers(1, 500),
    window_rows=st.integers(1, 5000),
    groups=st.integers(1, 3000),
    selectivity=st.sampled_from([0.0005, 0.01, 0.1, 0.5, 1]),
)
weights = st.builds(AggregationWeights, *[st.floats(0.1, 10)] * 5)


@given(inputs, inputs, weights, st.sampled_from([1, 100, 1021]))
def test_two_inputs_give_equations_5_to_12(
    first: Input, second: Input, weighed: AggregationWeights, buckets: int
) -> None:
    methods: tuple[Method, ...] = ("nested loops", "hash")
    for method in methods:
        join = AggregationJoin((first, second), method, buckets)
        written = equations(first, second, weighed, buckets, method)
        assert plan_costs(join, weighed) == pytest.approx(written, rel=1e-9)


def equations(one: Input, two: Input, weighed: AggregationWeights, most: int, method: Method) -> dict[str, float]:
    """Return the costs by the equations of the paper.

    Equations 5 to 8 (nested loops) and 9 to 12 (hash) with 13 to 22, as printed but for eq. 6, which is written as
    eq. 10 is.
    """
    l1, l2 = one.rows_per_s, two.rows_per_s
    w1, w2, g1, g2, s1, s2 = one.window_rows, two.window_rows, one.groups, two.groups, one.selectivity, two.selectivity
    a = min(w1, g1) * min(w2, g2)
    a1, a2 = min(w1, g1 / s1), min(w2, g2 / s2)
    m1, m2 = s1 * w1, s2 * w2
    n1, n2 = min(w1 * s1, g1), min(w2 * s2, g2)
    b1, b2, bg = min(1 / s1, most), min(1 / s2, most), min(g1, most)
    ug = weighed.group_s
    if method == "hash":
        p, u, h1, h2 = weighed.hash_probe_s, weighed.hash_update_s, b1, b2
    else:
        p, u, h1, h2 = weighed.nested_probe_s, weighed.nested_update_s, 1, 1
    return {
        "LAP": l1 * (2 * w2 / h2 * p + 2 * u + 2 * m2 * a / bg * ug)
        + l2 * (2 * w1 / h1 * p + 2 * u + 2 * m1 * a / bg * ug),
        "EAP10": l1 * (2 * w2 / h2 * p + 2 * u + 2 * a1 / b1 * ug + 2 * m2 * a / bg * ug)
        + l2 * (2 * a1 / h1 * p + 2 * u + 2 * n1 * a / bg * ug),
        "EAP01": l1 * (2 * a2 / h2 * p + 2 * u + 2 * n2 * a / bg * ug)
        + l2 * (2 * w1 / h1 * p + 2 * u + 2 * a2 / b2 * ug + 2 * m1 * a / bg * ug),
        "EAP11": l1 * (2 * a2 / h2 * p + 2 * u + 2 * a1 / b1 * ug + 2 * n2 * a / bg * ug)
        + l2 * (2 * a1 / h1 * p + 2 * u + 2 * a2 / b2 * ug + 2 * n1 * a / bg * ug),
    }


def test_one_plan_of_three_inputs_matches_the_formula_written_out() -> None:
    """EAP010 of three streams: each row probes the two others once, and what it finds multiplies."""
    one, two, three = Input(10, 100, 4, 0.1), Input(20, 200, 3, 0.1), Input(30, 300, 1, 0.1)
    cost = plan_cost(AggregationJoin((one, two, three)), early={1})
    alpha_over_bg = 4 * 3 * 1 / 4
    from_one = 10 * 2 * (1 + (30 / 10 + 300 / 10) + (3 * 30) * alpha_over_bg)
    from_two = 20 * 2 * (1 + 30 / 10 + (100 / 10 + 300 / 10) + (10 * 30) * alpha_over_bg)
    from_three = 30 * 2 * (1 + (100 / 10 + 30 / 10) + (10 * 3) * alpha_over_bg)
    assert cost == pytest.approx(from_one + from_two + from_three, rel=1e-12)


def test_m_inputs_have_two_to_the_m_plans() -> None:
    assert [len(set(all_plans(count))) for count in (2, 3, 4)] == [4, 8, 16]
    assert plan_name(frozenset({0, 2}), inputs=3) == "EAP101"
    with pytest.raises(PlanError, match="too many plans"):
        all_plans(40)


@pytest.mark.parametrize("best", list(SHOWCASES))
def test_figure_10_each_plan_is_best_somewhere(best: str) -> None:
    figure = figure_10(best)
    assert [figure.lowest_line(place) for place in range(len(figure.x))] == [best] * len(figure.x)


def test_the_showcases_of_figure_10_that_the_paper_gives_in_numbers() -> None:
    one, two = SHOWCASES["EAP01"]
    assert (one.groups, two.groups, one.selectivity, one.window_rows) == (1500, 1, 0.01, 500)
    one, two = SHOWCASES["EAP11"]
    assert (one.groups, two.groups, one.selectivity, one.window_rows) == (150, 150, 0.1, 2000)


@pytest.mark.parametrize("best", list(SHOWCASES))
def test_the_showcases_do_not_depend_on_the_weights(best: str) -> None:
    """The paper prints no weights; within a factor of three of each other they all give the same winner."""
    rng = random.Random(6)
    for _ in range(100):
        weighed = AggregationWeights(*(3 ** rng.uniform(-0.5, 0.5) for _ in range(5)))
        join = AggregationJoin(SHOWCASES[best], "nested loops")
        assert plan_name(best_plan(join, weighed), 2) == best


def test_hashing_on_all_grouping_attributes_shortens_chains_and_keeps_the_winners() -> None:
    for best, both in SHOWCASES.items():
        on_first, on_all = AggregationJoin(both, "nested loops"), AggregationJoin(both, "nested loops", hashed_on="all")
        assert plan_cost(on_all) <= plan_cost(on_first)
        assert plan_name(best_plan(on_all), 2) == best


def test_low_groups_on_a_side_call_for_early_aggregation_on_that_side() -> None:
    low, high = Input(300, 500, 1, 0.01), Input(300, 500, 1500, 0.01)
    chosen = {
        (a is low, b is low): best_plan(AggregationJoin((a, b), "nested loops"))
        for a in (low, high)
        for b in (low, high)
    }
    assert chosen == {(True, True): {0, 1}, (True, False): {0}, (False, True): {1}, (False, False): set()}


def test_figures_6a_and_7a_early_aggregation_of_s1_stops_depending_on_its_window() -> None:
    assert early_groups(TWO_WAY[0]) == 1500
    for figure in (figure_6("a"), figure_7("a")):
        for name in ("EAP10", "EAP11"):
            line = figure.line(name)
            assert line[0] < line[1]
            assert line[1] == line[2] == line[3] == line[4], f"{name} is flat from 2000 rows on"
        for name in ("LAP", "EAP01"):
            steps = [later - sooner for sooner, later in pairwise(figure.line(name))]
            assert steps == pytest.approx([steps[0]] * 4), f"{name} is linear"
        for name in ("EAP01", "EAP10", "EAP11"):
            assert all(early < late for early, late in zip(figure.line(name)[2:], figure.line("LAP")[2:], strict=True))


def test_figures_6b_and_7b_many_groups_remove_the_advantage() -> None:
    for figure in (figure_6("b"), figure_7("b")):
        few, many = 0, len(figure.x) - 1
        for early, late in (("EAP10", "LAP"), ("EAP11", "EAP01")):
            assert figure.line(early)[few] < 0.6 * figure.line(late)[few]
            assert figure.line(early)[many] == pytest.approx(figure.line(late)[many], rel=0.2)
            assert figure.line(early)[many] > figure.line(late)[many], "the aggregation set has to be kept for nothing"


def test_figures_6c_and_7c_lap_and_eap10_rise_faster_with_the_rate_of_s1() -> None:
    for figure in (figure_6("c"), figure_7("c")):
        rise = {name: line[-1] - line[0] for name, line in figure.lines}
        assert min(rise["LAP"], rise["EAP10"]) > 5 * max(rise["EAP01"], rise["EAP11"])


def test_figures_6d_and_7d_more_selective_joins() -> None:
    hashed, nested = figure_6("d"), figure_7("d")
    assert all(list(line) == sorted(line) for _, line in hashed.lines), "by hash all costs rise"
    eleven = nested.line("EAP11")
    assert list(eleven) == sorted(eleven, reverse=True), "by nested loops EAP11 falls"


def test_nested_loops_cost_more_than_hashing() -> None:
    for hashed, nested in ((figure_6("a"), figure_7("a")), (figure_8("a"), figure_9("a"))):
        for (_, cheap), (_, dear) in zip(hashed.lines, nested.lines, strict=True):
            assert all(less < more for less, more in zip(cheap, dear, strict=True))


@pytest.mark.parametrize("method", ["hash", "nested loops"])
def test_the_gain_grows_with_the_number_of_inputs(method: Method) -> None:
    first, other = THREE_WAY[0], THREE_WAY[1]
    gains = []
    for count in (2, 3, 4, 5):
        join = AggregationJoin((first, *(other,) * (count - 1)), method)
        gains.append(plan_cost(join) / plan_cost(join, best_plan(join)))
    assert gains == sorted(gains)
    assert gains[1] > 2 * gains[0]


def test_three_way_figures_have_eight_plans_and_the_best_aggregates_early_everywhere_by_default() -> None:
    assert len(figure_8("a").lines) == len(figure_9("a").lines) == 8
    assert (
        best_plan(AggregationJoin(THREE_WAY, "hash"))
        == best_plan(AggregationJoin(THREE_WAY, "nested loops"))
        == {0, 1, 2}
    )


def test_a_relation_has_no_arrivals_and_a_landmark_window_no_expirations() -> None:
    stream, relation = Input(100, 500, 10, 0.1), Input(0, 500, 1, 0.1)
    both = AggregationJoin((stream, relation))
    assert plan_cost(both) == pytest.approx(100 * 2 * (1 + 50 + 50))
    landmark = AggregationJoin((Input(100, 500, 10, 0.1, passes=1), relation))
    assert plan_cost(landmark) == plan_cost(both) / 2


def test_parts_and_plans_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match='no part "e"'):
        figure_6("e")
    with pytest.raises(InputError, match='no part for "EAP12"'):
        figure_10("EAP12")
    with pytest.raises(PlanError, match="early aggregation on input 2, but there are 2"):
        plan_cost(AggregationJoin(TWO_WAY), early={0, 2})

"""Window joins of two streams: Table 3 to the digit, exact crossings, and the winners of Figure 2."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.algebra.plan import Index
from watersmeet.errors import PlanError
from watersmeet.planner.models.kang import (
    PAPER_WEIGHTS,
    StructureWeights,
    TwoStreams,
    Weights,
    WindowLoad,
    best_pair,
    best_pairs_by_ratio,
    btree_path_rows,
    crossing_ratio,
    fit_weight,
    hash_cost,
    index_cost,
    pair_cost,
    structure_cost,
    ttree_path_rows,
)
from watersmeet_lab.papers.kang.models import PAIRS, TABLE_3, figure_2

#         HH     TT     HT     TH    HN      NH       TN      NT
TABLE_3_COSTS = (
    (7.06, 9.56, 10.89, 5.74, 5.99, 2845.87, 4.67, 2849.69),
    (7.06, 11.85, 6.46, 12.46, 722.39, 424.87, 727.78, 424.27),
    (7.06, 11.60, 8.93, 9.73, 993.42, 543.84, 996.09, 545.71),
)


@pytest.mark.parametrize(("streams", "costs"), list(zip(TABLE_3, TABLE_3_COSTS, strict=True)))
def test_table_3_is_reproduced_to_the_digit(streams: TwoStreams, costs: tuple[float, ...]) -> None:
    assert tuple(f"{pair_cost(pair, streams):.2f}" for pair in PAIRS) == tuple(f"{cost:.2f}" for cost in costs)


@pytest.mark.parametrize(("streams", "winner"), list(zip(TABLE_3, ("TN", "HT", "HH"), strict=True)))
def test_the_winner_of_each_workload_of_table_3(streams: TwoStreams, winner: str) -> None:
    assert min(PAIRS, key=lambda pair: pair_cost(pair, streams)) == winner
    assert best_pair(streams, letters="NHT") == winner


def test_table_3_needs_the_whole_bracket_of_the_t_tree_update_doubled() -> None:
    """Eq. 6 as printed gives other figures for every pair with a T-tree, and contradicts the text's 20 % / 80 %."""

    def as_printed(load: WindowLoad) -> float:
        descent = 1.5 * (math.ceil(math.log2(math.ceil(load.rows / 100))) - 1)
        return load.probes_per_s * (descent + 7) * 2.6e-4 + load.arrivals_per_s * (2 * descent + 7) * 2.7e-4

    assert [f"{sum(as_printed(load) for load in streams.loads):.2f}" for streams in TABLE_3] == ["7.67", "9.96", "9.71"]
    assert [f"{pair_cost('TT', streams):.2f}" for streams in TABLE_3] == ["9.56", "11.85", "11.60"]


@pytest.mark.parametrize("rows", [100, 500, 5000, 9500])
def test_list_and_hash_cross_at_the_ratio_of_equation_8(rows: int) -> None:
    assert crossing_ratio("N", "H", rows) == pytest.approx(13.6 / (3 * rows - 55), rel=1e-12)


def test_tn_and_th_cross_at_0_0094_for_a_window_of_500_rows() -> None:
    ratio = crossing_ratio("N", "H", 500)
    assert f"{ratio:.4f}" == "0.0094"
    assert int(1 / ratio) == 106, "B has to be more than 106 times as fast"
    below, above = (TwoStreams(9500, 500, share * ratio, 1) for share in (0.99, 1.01))
    assert pair_cost("TN", below) < pair_cost("TH", below)
    assert pair_cost("TN", above) > pair_cost("TH", above)


def test_the_five_winners_of_figure_2_and_where_they_change() -> None:
    found = best_pairs_by_ratio(5000, 5000)
    assert [pair for pair, _ in found] == ["TN", "TH", "HH", "HT", "NT"]
    ratios = [ratio for _, ratio in found]
    assert ratios[0] == pytest.approx(13.6 / (3 * 5000 - 55), rel=1e-12)
    assert ratios[1] == pytest.approx(17.3 / 62.7, rel=1e-12)
    assert ratios[2] == pytest.approx(62.7 / 17.3, rel=1e-12)
    assert ratios[3] == pytest.approx((3 * 5000 - 55) / 13.6, rel=1e-12)
    assert ratios[4] == math.inf
    assert 0.2 < ratios[1] / (1 + ratios[1]) < 0.22, "TH gives way to HH near 20 % of A to 80 % of B"


def test_a_larger_window_a_and_a_smaller_window_b_move_the_outer_crossings_right_and_the_inner_ones_left() -> None:
    """Check all four crossings.

    Section 5.1 says that all four move to the right. Eqs. 8 and 11 do; by eqs. 9 and 10 the inner two move to the
    left, because a larger window makes its tree slower and leaves its hash table as it is.
    """
    equal, skewed = best_pairs_by_ratio(5000, 5000), best_pairs_by_ratio(8000, 2000)
    assert [pair for pair, _ in skewed] == [pair for pair, _ in equal]
    moves = [later - sooner for (_, later), (_, sooner) in zip(skewed[:-1], equal[:-1], strict=True)]
    assert [move > 0 for move in moves] == [True, False, False, True]


def test_buckets_of_two_rows_leave_only_two_crossings() -> None:
    """Section 5.1: HH then beats HT and TH everywhere."""
    small = Weights(PAPER_WEIGHTS.list, PAPER_WEIGHTS.hash, PAPER_WEIGHTS.btree, PAPER_WEIGHTS.ttree, bucket_rows=2)
    found = [pair for pair, _ in best_pairs_by_ratio(5000, 5000, small)]
    assert found == ["HN", "HH", "NH"]


@given(st.floats(0.00001, 100000), st.integers(100, 20000), st.integers(100, 20000))
def test_the_winner_over_a_range_is_the_winner_at_each_of_its_ratios(ratio: float, rows_a: int, rows_b: int) -> None:
    found = next(pair for pair, up_to in best_pairs_by_ratio(rows_a, rows_b) if ratio <= up_to)
    streams = TwoStreams(rows_a, rows_b, ratio, 1)
    assert pair_cost(found, streams) == pytest.approx(pair_cost(best_pair(streams, letters="NHT"), streams), rel=1e-9)


def test_figure_2_has_the_same_winners_along_its_axis() -> None:
    figure = figure_2()
    lowest = list(dict.fromkeys(figure.lowest_line(place) for place in range(len(figure.x))))
    assert lowest == ["TN", "TH", "HH", "HT", "NT"]


def test_an_asymmetric_pair_beats_every_symmetric_one_where_rates_differ() -> None:
    for streams in TABLE_3[:2]:
        assert pair_cost(best_pair(streams), streams) < min(
            pair_cost(pair, streams) for pair in ("NN", "HH", "TT", "BB")
        )


def test_b_plus_tree_and_t_tree_are_close() -> None:
    load = WindowLoad(5000, 500, 500)
    assert structure_cost("btree", load) == pytest.approx(structure_cost("ttree", load), rel=0.1)


def test_tree_paths_count_nodes_exactly_at_powers() -> None:
    assert [btree_path_rows(rows, 100) for rows in (1, 100, 101, 10_100, 10_101)] == [7, 7, 14, 14, 21]
    assert [ttree_path_rows(rows, 100) for rows in (100, 200, 400, 401)] == [7, 7, 8.5, 10]
    assert btree_path_rows(2 * 3**5, 2) == 6, "243 leaves of a tree of order three: five levels above them"


def test_an_index_of_a_plan_has_its_own_buckets_and_nodes() -> None:
    load = WindowLoad(1000, 10, 10)
    assert index_cost(Index("hash", 100), load, PAPER_WEIGHTS) == hash_cost(load, PAPER_WEIGHTS)
    assert index_cost(Index("hash", 10), load, PAPER_WEIGHTS) > hash_cost(load, PAPER_WEIGHTS)
    assert index_cost(Index("btree", 100), load, PAPER_WEIGHTS) == structure_cost("btree", load)
    assert index_cost(Index("btree", 10), load, PAPER_WEIGHTS) != structure_cost("btree", load)
    assert index_cost(Index("hash", 1), load, PAPER_WEIGHTS) > index_cost(Index(), load, PAPER_WEIGHTS), (
        "one bucket is a dear list"
    )


def test_structures_that_never_cost_the_same_have_no_crossing() -> None:
    dear = Weights(
        StructureWeights(1, 1), StructureWeights(1, 2), PAPER_WEIGHTS.btree, PAPER_WEIGHTS.ttree, bucket_rows=50
    )
    with pytest.raises(PlanError, match="list and hash never cost the same on a window of 50 rows"):
        crossing_ratio("N", "H", 50, dear)


def test_a_weight_is_recovered_from_measured_points() -> None:
    touched = [100.0 * step for step in range(1, 21)]
    noisy = [3e-4 * rows * (1.01 if step % 2 else 0.99) for step, rows in enumerate(touched)]
    assert fit_weight(touched, noisy) == pytest.approx(3e-4, rel=0.005)

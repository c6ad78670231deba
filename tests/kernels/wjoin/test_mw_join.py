"""MW-join in cases where the paper's text loses or repeats results, blocks, or specifies nothing."""

from __future__ import annotations

import numpy as np

from tests.kernels.wjoin.cases import (
    ALGORITHMS,
    WindowJoinCase,
    expected_matches,
    random_case,
    single_window_case,
    sorted_matches,
)

mw_join = ALGORITHMS["mw_join"]


def test_a_row_that_starts_a_period_joins_whole_buffers_not_only_their_heads() -> None:
    #  µs      0 1  3     6          12
    #  a            a1    a2
    #  b         b1                  b2
    #  period 1  [--------- 10 ---]         starts with (a1, b1), ends before b2
    #  period 2     [---------- 10 ---]     starts with (a1, b2); a2 is behind the head of its buffer
    case = single_window_case([[(3, 1), (6, 1)], [(1, 1), (12, 1)]], window_us=10)
    assert sorted_matches(mw_join(case)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_starting_rows_are_found_once_though_all_of_them_are_new() -> None:
    case = single_window_case([[(1, 1)], [(2, 1)], [(3, 1)], [(4, 1)], [(5, 1)]], window_us=10)
    assert sorted_matches(mw_join(case)) == [(0, 0, 0, 0, 0)]


def test_a_silent_stream_does_not_hold_up_the_others() -> None:
    #  µs      0     6          12   14
    #  a       a1               a2
    #  b       b1    b2
    #  c             c1              (nothing more)
    #  period  [------- 10 ---]      a2 is behind it, and joins b2 and c1 all the same
    case = single_window_case([[(0, 1), (12, 1)], [(0, 1), (6, 1)], [(6, 1)]], window_us=10)
    assert sorted_matches(mw_join(case)) == [(0, 0, 0), (0, 1, 0), (1, 1, 0)]


def test_an_old_row_can_complete_a_combination_that_holds_a_new_one() -> None:
    #  µs      0         10        20
    #  a       new
    #  b                 old
    #  c                 old       old
    case = single_window_case(old=[[], [(10, 1)], [(10, 1), (20, 1)]], new=[[(0, 1)], [], []], window_us=10)
    assert sorted_matches(mw_join(case)) == [(0, 0, 0)]


def test_a_stream_without_rows_costs_the_others_nothing() -> None:
    busy = [(time, 0) for time in range(100)]
    counters = mw_join(single_window_case([busy, busy, []], window_us=50)).counters
    assert counters.comparisons.sum() == 0
    assert counters.inserts.sum() == 0


def test_rows_far_from_every_row_of_a_slow_stream_never_enter_a_buffer() -> None:
    busy = [(time, 0) for time in range(1_000)]
    result = mw_join(single_window_case([busy, busy, [(500, 0)]], window_us=5))
    near = expected_matches(single_window_case([busy[495:506], busy[495:506], [(500, 0)]], window_us=5))
    assert sorted_matches(result) == [(495 + a, 495 + b, c) for a, b, c in near]
    assert result.counters.inserts.tolist() == [11, 11, 1]


def test_a_pair_may_be_as_far_apart_as_the_shorter_of_its_streams_reaches() -> None:
    #  µs      0         10        20
    #  a       a1                            reach 20
    #  b                 b1                  reach 10
    #  c                           c1        reach 20: meets a1 and b1, and a1 meets b1
    rows = [[(0, 1)], [(10, 1)], [(20, 1)]]
    silent: list[list[tuple[int, int]]] = [[], [], []]
    assert sorted_matches(mw_join(WindowJoinCase(silent, rows, 20, (20, 10, 20)))) == [(0, 0, 0)]
    assert sorted_matches(mw_join(WindowJoinCase(silent, rows, 20, (20, 9, 20)))) == []
    assert sorted_matches(mw_join(WindowJoinCase(silent, rows, 20, (19, 10, 20)))) == []


def test_the_shorter_reach_of_a_pair_decides_what_enters_a_buffer() -> None:
    busy = [(time, 0) for time in range(1_000)]
    counters = mw_join(WindowJoinCase([[], []], [busy, [(500, 0)]], 100, (100, 5))).counters
    assert counters.inserts.tolist() == [11, 1]


def test_lca_keeps_every_result_of_the_pairs_windows_and_no_more_than_gca() -> None:
    for seed in range(300):
        case = random_case(seed)
        draw = np.random.default_rng(seed)
        n = len(case.new)
        pair_us = np.triu(draw.integers(0, 12, (n, n)), 1)
        pair_us += pair_us.T
        widest = int(pair_us.max())
        lca = set(
            sorted_matches(mw_join(WindowJoinCase(case.old, case.new, widest, tuple(pair_us.max(axis=1).tolist()))))
        )
        gca = set(sorted_matches(mw_join(WindowJoinCase(case.old, case.new, widest, (widest,) * n))))
        times, _, offsets, *_ = case.arguments
        exact = {
            rows
            for rows in gca
            if _within([int(times[offsets[s] + row]) for s, row in enumerate(rows)], pair_us.tolist())
        }
        assert exact <= lca <= gca


def _within(times: list[int], pair_us: list[list[int]]) -> bool:
    return all(abs(times[s] - times[r]) <= pair_us[s][r] for s in range(len(times)) for r in range(s))

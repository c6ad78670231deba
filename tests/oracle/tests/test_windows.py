"""Each window kind at its edges: exactly at the edge, and one microsecond beyond."""

from __future__ import annotations

import math

import pyarrow as pa

from tests.oracle.tests.timelines import join_timelines, joined_times


def test_the_first_papers_table_3_rechecks_expiry_against_the_new_tuple() -> None:
    #  s    90  100        150   180   195  205   210
    #  s1   x    x                                now
    #  s2                   x     x
    #  s3                               x    x
    #  windows of 100 s: at 195 the window of s1 begins at 95, at 205 it begins at 105
    def times(*seconds: int) -> dict[str, list[int]]:
        return {"ts": [second * 1_000_000 for second in seconds], "attr": [1] * len(seconds)}

    rows = join_timelines(
        """SELECT s1.ts, s2.ts, s3.ts FROM s1 [RANGE 100 SECONDS], s2 [RANGE 100 SECONDS], s3 [RANGE 100 SECONDS]
        WHERE s1.attr = s2.attr AND s2.attr = s3.attr""",
        s1=times(90, 100),
        s2=times(150, 180),
        s3=times(195, 205),
    )
    assert [tuple(time // 1_000_000 for time in row) for row in rows] == [(100, 150, 195), (100, 180, 195)]


def test_a_range_window_is_closed_at_its_far_end_and_ends_one_microsecond_beyond() -> None:
    #  µs       0         10   11
    #  a        x
    #  b                  x    x
    #  window   [--- 10 ---]
    assert joined_times("[RANGE 10 MICROSECONDS]", "[RANGE 1 MICROSECOND]", a=[0], b=[10, 11]) == [(0, 10)]


def test_the_window_of_the_later_row_does_not_matter() -> None:
    #  b's own window holds the b row at its own time, however short it is
    assert joined_times("[RANGE 10 MICROSECONDS]", "[RANGE 1 MICROSECOND]", a=[0], b=[5]) == [(0, 5)]
    assert joined_times("[RANGE 10 MICROSECONDS]", "[RANGE 1 MICROSECOND]", a=[5], b=[3]) == []


def test_rows_of_the_same_instant_meet() -> None:
    assert joined_times("[RANGE 1 MICROSECOND]", "[RANGE 1 MICROSECOND]", a=[7], b=[7]) == [(7, 7)]


def test_a_tumbling_window_begins_at_multiples_of_its_length_also_before_the_epoch() -> None:
    #  µs      -10  -1  0    9  10
    #  a        x    x  x    x
    #  b             x       x   x
    #  cells   [------)[------)[---
    tumble = "[TUMBLE 10 MICROSECONDS]"
    assert joined_times(tumble, tumble, a=[-10, -1, 0, 9], b=[-1, 9, 10]) == [(-10, -1), (-1, -1), (0, 9), (9, 9)]


def test_a_landmark_window_forgets_nothing() -> None:
    assert joined_times("[LANDMARK]", "[LANDMARK]", a=[-(2**50)], b=[2**50]) == [(-(2**50), 2**50)]
    assert joined_times("[WINDOW UNTIL NOW]", "[RANGE 1 MICROSECOND]", a=[0], b=[1_000]) == [(0, 1_000)]


def test_a_row_count_window_holds_the_last_rows_at_the_time_of_the_result() -> None:
    #  µs   10  20  30  40  50
    #  a    x   x       x
    #  b            x       x
    #  at 30 the last two rows of a are 10 and 20, at 50 they are 20 and 40
    assert joined_times("[ROWS 2]", "[RANGE 1 MICROSECOND]", a=[10, 20, 40], b=[30, 50]) == [
        (10, 30),
        (20, 30),
        (20, 50),
        (40, 50),
    ]


def test_a_row_that_fails_the_where_clause_still_counts_as_one_of_the_last() -> None:
    #  a    1 good   2 bad
    #  b                      3
    rows = join_timelines(
        "SELECT a.ts, b.ts FROM a [ROWS 1], b [RANGE 9 MICROSECONDS] WHERE a.good",
        a={"ts": [1, 2], "good": [True, False]},
        b=[3],
    )
    assert rows == []


def test_rows_of_one_instant_are_counted_by_their_other_columns_and_nulls_come_first() -> None:
    #  three rows of a at instant 1, in ≺ order: null, 'x', 'y'; the last two are 'x' and 'y'
    rows = join_timelines("SELECT a.k FROM a [ROWS 2], b [ROWS 1]", a={"ts": [1, 1, 1], "k": ["y", None, "x"]}, b=[1])
    assert rows == [("x",), ("y",)]


def test_nan_is_the_last_of_the_numbers_and_both_zeros_tie() -> None:
    last = "SELECT a.x, a.n FROM a [ROWS 1]"
    assert (
        str(join_timelines(last, a={"ts": [1, 1, 1], "x": [math.inf, math.nan, None], "n": [1, 2, 3]})) == "[(nan, 2)]"
    )
    assert join_timelines(last, a={"ts": [1, 1], "x": [0.0, -0.0], "n": [1, 2]}) == [(-0.0, 2)]


def test_the_remaining_columns_decide_from_left_to_right_wherever_the_time_stands() -> None:
    a = {"p": [2, 1], "ts": [1, 1], "q": [1, 2]}
    assert join_timelines("SELECT a.p, a.q FROM a [ROWS 1]", a=a) == [(2, 1)]


def test_copies_of_a_row_are_rows_of_their_own() -> None:
    assert join_timelines("SELECT a.k FROM a [ROWS 2]", a={"ts": [1, 1, 1], "k": [5, 5, 5]}) == [(5,), (5,)]
    assert joined_times("[LANDMARK]", "[LANDMARK]", a=[1, 1], b=[1]) == [(1, 1), (1, 1)]


def test_a_row_pushed_out_at_its_own_instant_is_never_seen() -> None:
    #  a at instant 1: two rows, the window holds one, so the smaller one is in no window at any time
    assert join_timelines("SELECT a.k FROM a [ROWS 1]", a={"ts": [1, 1], "k": [1, 2]}) == [(2,)]


def test_partitions_count_for_themselves_and_null_is_a_partition() -> None:
    #  µs   1    2    3     4     5
    #  p    a    b    null  null  a        last one of each: b@2, null@4, a@5
    rows = join_timelines(
        "SELECT a.ts FROM a [PARTITION BY p ROWS 1], b [RANGE 1 MICROSECOND]",
        a={"ts": [1, 2, 3, 4, 5], "p": ["a", "b", None, None, "a"]},
        b=[6],
    )
    assert rows == [(2,), (4,), (5,)]


def test_nan_is_one_partition_and_so_are_the_two_zeros() -> None:
    rows = join_timelines(
        "SELECT a.ts FROM a [PARTITION BY p ROWS 1], b [RANGE 1 MICROSECOND]",
        a={"ts": [1, 2, 3, 4], "p": [math.nan, 0.0, -0.0, math.nan]},
        b=[6],
    )
    assert rows == [(3,), (4,)]


def test_a_pair_window_reaches_both_ways_and_is_closed() -> None:
    #  µs   0    5    10   11
    #  a         x
    #  b    x         x    x
    found = joined_times("", "", a=[5], b=[0, 10, 11], rest="WINDOW (a, b) = 5 MICROSECONDS")
    assert found == [(5, 0), (5, 10)]


def test_a_directed_window_wants_the_first_first_and_lets_them_be_equal() -> None:
    found = joined_times("", "", a=[5], b=[4, 5, 10, 11], rest="DWINDOW (a, b) = 5 MICROSECONDS")
    assert found == [(5, 5), (5, 10)]


def test_form_one_bounds_every_pair() -> None:
    #  a 0, b 3, c 6: neighbours are 3 apart, the ends 6
    text = "SELECT a.ts, b.ts, c.ts FROM a, b, c WINDOW = {} MICROSECONDS"
    assert join_timelines(text.format(5), a=[0], b=[3], c=[6]) == []
    assert join_timelines(text.format(6), a=[0], b=[3], c=[6]) == [(0, 3, 6)]


def test_a_pair_without_a_constraint_is_bounded_only_by_its_neighbours() -> None:
    text = "SELECT a.ts, b.ts, c.ts FROM a, b, c WINDOW (a, b) = 3 MICROSECONDS AND WINDOW (b, c) = 3 MICROSECONDS"
    assert join_timelines(text, a=[0], b=[3], c=[6, 7]) == [(0, 3, 6)]


def test_own_windows_and_pair_constraints_both_have_to_hold() -> None:
    rest = "WINDOW (a, b) = 5 MICROSECONDS"
    assert joined_times("[RANGE 3 MICROSECONDS]", "[LANDMARK]", a=[0], b=[3, 4], rest=rest) == [(0, 3)]
    assert joined_times("[LANDMARK]", "[LANDMARK]", a=[0], b=[5, 6], rest=rest) == [(0, 5)]


def test_a_relation_is_always_valid_and_does_not_move_the_instant() -> None:
    rows = join_timelines(
        "SELECT a.ts, r.k FROM a [RANGE 1 MICROSECOND], r WHERE a.k = r.k",
        relations=["r"],
        a={"ts": [0, 100], "k": [1, 2]},
        r={"k": [2, 2, 1], "ts": [10**9, 0, 0]},
    )
    assert rows == [(0, 1), (100, 2), (100, 2)]


def test_a_self_join_pairs_a_row_with_itself_too() -> None:
    rows = join_timelines(
        "SELECT p.ts, q.ts FROM a [RANGE 1 MICROSECOND] AS p, a [RANGE 1 MICROSECOND] AS q", a=[0, 1, 3]
    )
    assert rows == [(0, 0), (0, 1), (1, 0), (1, 1), (3, 3)]


def test_times_of_any_unit_and_zone_are_microseconds_rounded_down() -> None:
    #  ns  999 is microsecond 0, −1 is microsecond −1
    a = pa.table({"ts": pa.array([999, -1], pa.timestamp("ns", "Europe/Berlin")), "n": [1, 2]})
    rows = join_timelines(
        "SELECT a.n FROM a [TUMBLE 1 MICROSECOND], b [TUMBLE 1 MICROSECOND]",
        a=a,
        b=pa.table({"ts": pa.array([0], pa.timestamp("ms"))}),
    )
    assert rows == [(1,)]


def test_a_date_is_its_midnight() -> None:
    day_us = 86_400_000_000
    a = pa.table({"ts": pa.array([1], pa.date32()), "n": [1]})
    assert join_timelines(
        "SELECT a.n, b.ts FROM a [RANGE 1 MICROSECOND], b [LANDMARK]", a=a, b=[day_us, day_us + 1, day_us + 2]
    ) == [
        (1, day_us),
        (1, day_us + 1),
    ]

"""Every algorithm finds exactly the combinations of the definition: none lost, none twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.wjoin.cases import (
    ALGORITHMS,
    Algorithm,
    WindowJoinCase,
    expected_matches,
    random_case,
    single_window_case,
    sorted_matches,
)

CASES = {"mw_join": 5_000, "nlw_join": 1_500, "hw_join": 1_500, "ripple_join": 1_000, "xjoin": 1_000}

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


@pytest.mark.parametrize("name", CASES)
def test_random_streams_join_as_defined(name: str) -> None:
    results = 0
    for seed in range(CASES[name]):
        case = random_case(seed)
        law = expected_matches(case)
        assert sorted_matches(ALGORITHMS[name](case)) == law, f"seed {seed}: {case}"
        results += len(law)
    assert results > 2 * CASES[name], "cases without results would test little"


@st.composite
def cases(draw: st.DrawFn) -> WindowJoinCase:
    n = draw(st.integers(2, 5))
    rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=3)
    streams = st.lists(rows, min_size=n, max_size=n)
    reach = st.tuples(*[st.integers(0, 10)] * n)
    window_us = draw(st.integers(0, 10))
    reach_us = draw(st.just((window_us,) * n) | reach)
    return WindowJoinCase(
        draw(streams), draw(streams), window_us, reach_us, draw(st.integers(1, 3)), draw(st.integers(1, 5))
    )


@every_algorithm
@given(case=cases())
@settings(max_examples=120)
def test_shrinkable_streams_join_as_defined(algorithm: Algorithm, case: WindowJoinCase) -> None:
    assert sorted_matches(algorithm(case)) == expected_matches(case)


def test_the_random_streams_reach_the_edges() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(1_000):
        case = random_case(seed)
        times = [{time for time, _ in [*old, *new]} for old, new in zip(case.old, case.new, strict=True)]
        kinds["silent"] += any(not rows for rows in times)
        kinds["no new rows on a stream"] += any(old and not new for old, new in zip(case.old, case.new, strict=True))
        kinds["equal times"] += bool(times[0] & times[1])
        kinds["old after new"] += any(
            old and new and max(old) > min(new) for old, new in zip(case.old, case.new, strict=True)
        )
        kinds["window 0"] += case.window_us == 0
        kinds["reaches differ"] += len(set(case.reach_us)) > 1
        kinds["no key"] += {code for rows in [*case.old, *case.new] for _, code in rows} == {0}
    assert len(kinds) == 7
    assert min(kinds.values()) > 50, kinds


@every_algorithm
def test_a_window_is_closed_at_both_ends(algorithm: Algorithm) -> None:
    #  µs      0         10   11   20
    #  left    a               b
    #  right             c          d
    #  window  [--- 10 ---]
    case = single_window_case([[(0, 1), (11, 1)], [(10, 1), (20, 1)]], window_us=10)
    assert sorted_matches(algorithm(case)) == [(0, 0), (1, 0), (1, 1)]


@every_algorithm
def test_the_window_holds_for_every_two_rows_not_only_for_neighbours(algorithm: Algorithm) -> None:
    #  µs      0         10        20
    #  a       a
    #  b                 b
    #  c                           c
    case = single_window_case([[(0, 1)], [(10, 1)], [(20, 1)]], window_us=10)
    assert sorted_matches(algorithm(case)) == []
    assert sorted_matches(algorithm(single_window_case(case.new, window_us=20))) == [(0, 0, 0)]


@every_algorithm
def test_rows_of_one_instant_join_once_whatever_their_streams(algorithm: Algorithm) -> None:
    case = single_window_case([[(5, 1), (5, 1)], [(5, 1)], [(5, 1), (5, 1)]], window_us=0)
    assert sorted_matches(algorithm(case)) == [(a, 0, c) for a in (0, 1) for c in (0, 1)]


@every_algorithm
def test_rows_that_matched_in_an_earlier_call_do_not_match_again(algorithm: Algorithm) -> None:
    case = single_window_case(old=[[(1, 1)], [(2, 1)]], new=[[(3, 1)], []], window_us=10)
    assert sorted_matches(algorithm(case)) == [(1, 0)]


@every_algorithm
def test_a_new_row_matches_old_rows_on_both_sides_of_it(algorithm: Algorithm) -> None:
    #  µs      0         10        20
    #  left    old                 old
    #  right             new
    case = single_window_case(old=[[(0, 1), (20, 1)], []], new=[[], [(10, 1)]], window_us=10)
    assert sorted_matches(algorithm(case)) == [(0, 0), (1, 0)]


@every_algorithm
def test_a_longer_window_finds_a_superset(algorithm: Algorithm) -> None:
    for seed in range(100):
        case = random_case(seed)
        longer = WindowJoinCase(case.old, case.new, case.window_us, case.reach_us, case.buckets, case.clean_up_every)
        shorter = WindowJoinCase(
            case.old, case.new, case.window_us // 2, case.reach_us, case.buckets, case.clean_up_every
        )
        assert set(sorted_matches(algorithm(shorter))) <= set(sorted_matches(algorithm(longer)))


@every_algorithm
def test_results_outgrow_the_first_output_array(algorithm: Algorithm) -> None:
    rows = [(time, 0) for time in range(25)]
    result = algorithm(single_window_case([rows, rows, rows], window_us=100))
    assert result.rows.shape == (3, 25**3)
    assert len(set(sorted_matches(result))) == 25**3
    assert all(column.flags.c_contiguous for column in result.rows)
    assert result.rows.dtype == np.int32


@every_algorithm
def test_no_new_rows_give_no_results(algorithm: Algorithm) -> None:
    assert sorted_matches(algorithm(single_window_case([[], [], []], window_us=10))) == []
    assert sorted_matches(algorithm(single_window_case(old=[[(1, 1)], [(1, 1)]], new=[[], []], window_us=10))) == []


@every_algorithm
@pytest.mark.parametrize(
    "wrong", [{"window_us": -1}, {"reach_us": (5,)}, {"old": [[]], "new": [[(1, 1)]], "reach_us": (5,)}]
)
def test_invalid_arguments_are_refused(algorithm: Algorithm, wrong: dict[str, Any]) -> None:
    given_fields = {"old": [[], []], "new": [[(1, 1)], [(2, 1)]], "window_us": 5, "reach_us": (5, 5), **wrong}
    with pytest.raises(ValueError, match="window"):
        algorithm(WindowJoinCase(**given_fields))

"""When a predicate is true: three-valued logic, NaN, zeros."""

from __future__ import annotations

import math

from tests.oracle.tests.timelines import Timeline, join_timelines

LANDMARKS = "SELECT a.n, b.n FROM a [LANDMARK], b [LANDMARK] WHERE "


def key_timeline(values: list[object]) -> Timeline:
    return {"ts": [0] * len(values), "k": values, "n": list(range(len(values)))}


def test_null_keys_meet_nothing_not_even_each_other() -> None:
    assert join_timelines(LANDMARKS + "a.k = b.k", a=key_timeline([None, 1]), b=key_timeline([None, 1])) == [(1, 1)]


def test_nan_meets_nan_and_the_zeros_meet() -> None:
    rows = join_timelines(
        LANDMARKS + "a.k = b.k", a=key_timeline([math.nan, 0.0]), b=key_timeline([math.nan, -0.0, 1.0])
    )
    assert rows == [(0, 0), (1, 1)]


def test_nan_is_above_infinity() -> None:
    assert join_timelines(
        LANDMARKS + "a.k > b.k", a=key_timeline([math.nan, 1.0]), b=key_timeline([math.inf, math.nan])
    ) == [(0, 0)]


def test_a_negated_null_comparison_is_not_true() -> None:
    assert join_timelines(LANDMARKS + "NOT (a.k = b.k)", a=key_timeline([None, 1]), b=key_timeline([2])) == [(1, 0)]


def test_or_needs_only_one_true_side() -> None:
    assert join_timelines(LANDMARKS + "a.k = b.k OR a.n = 0", a=key_timeline([None, 3]), b=key_timeline([2])) == [
        (0, 0)
    ]

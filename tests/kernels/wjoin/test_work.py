"""Work of the algorithms, by their counters: the rankings in the paper's figures, never its times."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.wjoin.cases import (
    ALGORITHMS,
    Algorithm,
    WindowJoinCase,
    random_case,
    single_window_case,
    sorted_matches,
)
from watersmeet.kernels.wjoin.outputs import WindowJoinCounters

SECOND_US = 1_000_000

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


def poisson(rates_per_s: list[float], seconds: float, values: int, window_us: int, buckets: int = 16) -> WindowJoinCase:
    """Return the paper's synthetic streams: exponential gaps, small integers as values."""
    draw = np.random.default_rng(7)
    streams = []
    for rate in rates_per_s:
        times = np.cumsum(draw.exponential(SECOND_US / rate, int(2 * rate * seconds) + 10)).astype(np.int64)
        times = times[times < seconds * SECOND_US]
        streams.append(list(zip(times.tolist(), draw.integers(0, values, times.size).tolist(), strict=True)))
    return WindowJoinCase(
        [[] for _ in streams], streams, window_us, (window_us,) * len(streams), buckets, clean_up_every=10_000
    )


def comparisons(name: str, case: WindowJoinCase) -> int:
    return int(ALGORITHMS[name](case).counters.comparisons.sum())


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_hw_compares_fewer_than_nlw_and_nlw_fewer_than_ripple(streams: int) -> None:
    case = poisson([100.0] * streams, seconds=5, values=50, window_us=SECOND_US // 2)
    hw, nlw, ripple, xjoin = (comparisons(name, case) for name in ("hw_join", "nlw_join", "ripple_join", "xjoin"))
    assert hw < nlw / 4
    assert nlw < ripple
    assert hw < xjoin < ripple


@pytest.mark.parametrize(
    "rates_per_s", [[1000.0, 550.0, 100.0], [100.0, 400.0, 700.0, 1000.0], [1000.0, 700.0, 400.0, 100.0]]
)
def test_mw_compares_fewer_than_nlw_when_rates_differ(rates_per_s: list[float]) -> None:
    # by nesting the shortest buffer outermost; in NLW-join's circular order it would compare as many
    case = poisson(rates_per_s, seconds=1, values=100, window_us=SECOND_US // 4)
    assert comparisons("mw_join", case) < 0.9 * comparisons("nlw_join", case)


def test_mw_touches_a_hundredth_of_nlw_when_one_stream_is_far_slower() -> None:
    # this is the sweep's own doing: rows far from every row of the slow stream are never looked at
    case = poisson([500.0, 500.0, 2.0], seconds=10, values=20, window_us=SECOND_US // 100)
    mw, nlw = (ALGORITHMS[name](case).counters.touched.sum() for name in ("mw_join", "nlw_join"))
    assert 100 * mw < nlw


def test_mw_and_nlw_converge_when_rates_are_equal() -> None:
    case = poisson([300.0] * 4, seconds=1.5, values=100, window_us=SECOND_US // 2)
    assert 0.9 < comparisons("mw_join", case) / comparisons("nlw_join", case) <= 1


@pytest.mark.parametrize("others_us", [800_000, 100_000])
def test_lca_compares_fewer_than_gca(others_us: int) -> None:
    gca = poisson([200.0] * 4, seconds=3, values=200, window_us=SECOND_US)
    lca = WindowJoinCase(gca.old, gca.new, SECOND_US, (SECOND_US, SECOND_US, others_us, others_us))
    assert comparisons("mw_join", lca) < comparisons("mw_join", gca)


def test_more_buckets_mean_fewer_comparisons() -> None:
    compared = [
        comparisons("hw_join", poisson([200.0] * 3, 2, 50, SECOND_US // 2, buckets)) for buckets in (1, 4, 16, 64)
    ]
    assert compared == sorted(compared, reverse=True)
    assert compared[0] == comparisons("nlw_join", poisson([200.0] * 3, 2, 50, SECOND_US // 2)), (
        "one bucket is the nested loop"
    )


def test_buckets_that_are_never_probed_are_cleaned_too() -> None:
    # the left stream's keys change after half a second, so nothing probes the right stream's early buckets again
    left = [(time, 0 if time < 500 else 1_000) for time in range(2_000)]
    right = [(time, time % 64 if time < 500 else 1_000) for time in range(2_000)]
    result = ALGORITHMS["hw_join"](single_window_case([left, right], window_us=10))
    assert result.counters.expirations[1] > 2_000 - 10 - 64 // 2


@every_algorithm
def test_counters_agree_with_each_other(algorithm: Algorithm) -> None:
    for seed in range(200):
        case = random_case(seed)
        result = algorithm(case)
        counters: WindowJoinCounters = result.counters
        held = np.array([len(rows) for rows in case.old]) + counters.inserts
        assert (counters.comparisons <= counters.touched).all()
        assert (counters.expirations <= held).all()
        assert (np.diag(counters.probes) == 0).all()
        assert ((counters.touched == 0) | (counters.probes > 0)).all()
        assert counters.comparisons.sum() >= len(sorted_matches(result))


@pytest.mark.parametrize("name", ["nlw_join", "hw_join", "ripple_join", "xjoin"])
def test_every_new_row_is_inserted(name: str) -> None:
    case = random_case(3)
    assert ALGORITHMS[name](case).counters.inserts.tolist() == [len(rows) for rows in case.new]


@pytest.mark.parametrize("name", ["nlw_join", "hw_join"])
def test_a_stream_without_new_rows_holds_nothing_back(name: str) -> None:
    busy = [(time, 0) for time in range(1_000)]
    counters = ALGORITHMS[name](single_window_case(old=[[], [], [(0, 0)]], new=[busy, busy, []], window_us=5)).counters
    assert counters.expirations.min() >= 1
    assert counters.touched[0, 1] <= 7 * 1_000


def test_ripple_keeps_expired_rows_until_the_next_clean_up() -> None:
    rows = [(10 * time, time) for time in range(100)]
    often, seldom = (
        WindowJoinCase([[], []], [rows, rows], 10, (10, 10), clean_up_every=every) for every in (10, 1_000)
    )
    assert ALGORITHMS["ripple_join"](seldom).counters.expirations.sum() == 0
    assert ALGORITHMS["ripple_join"](often).counters.expirations.sum() > 150
    assert comparisons("ripple_join", often) < comparisons("ripple_join", seldom) / 4

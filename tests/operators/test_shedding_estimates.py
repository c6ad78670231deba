"""Estimates from kept rows: unbiased, with standard errors that are neither too small nor too large."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from watersmeet.operators.shed.estimates import SampledInput, SampledJoin

Floats = NDArray[np.float64]


def every_sample(rows: int) -> list[NDArray[np.bool_]]:
    return [np.array(kept, np.bool_) for kept in itertools.product((False, True), repeat=rows)]


def chance(kept: NDArray[np.bool_], keep: float) -> float:
    return float(np.prod(np.where(kept, keep, 1 - keep)))


def sample_join(
    combos: NDArray[np.int64], kept: list[NDArray[np.bool_]], keeps: list[float], names: str
) -> tuple[SampledJoin, NDArray[np.bool_]]:
    is_kept = np.all([kept[i][combos[:, i]] for i in range(combos.shape[1])], axis=0)
    inputs = tuple(SampledInput(names[i], keeps[i], combos[is_kept, i]) for i in range(combos.shape[1]))
    return SampledJoin(np.zeros(int(is_kept.sum()), np.int64), 1, inputs), is_kept


def test_over_all_samples_sum_and_variance_are_exactly_unbiased() -> None:
    """Three inputs of three rows each: all 512 samples, weighted by probability, give the true sum and variance."""
    rng = np.random.default_rng(3)
    combos = np.array([c for c in itertools.product(range(3), repeat=3) if rng.random() < 0.6])
    values = rng.normal(size=len(combos))
    keeps = [0.3, 0.6, 0.8]
    mean = second = variance = 0.0
    for kept in itertools.product(every_sample(3), repeat=3):
        probability = float(np.prod([chance(each, keep) for each, keep in zip(kept, keeps, strict=True)]))
        join, is_kept = sample_join(combos, list(kept), keeps, "abc")
        total = join.estimate_sum(values[is_kept])
        mean += probability * total.values[0]
        second += probability * total.values[0] ** 2
        join_variance = sum(
            float(
                (
                    each.factor
                    * np.bincount(each.choice, (values[is_kept] * join.weights)[each.combination], each.owner.size) ** 2
                ).sum()
            )
            for each in join._list_shared_terms()
        )  # the estimate before negative values are clipped to 0, which would bias the mean
        variance += probability * join_variance
    assert mean == pytest.approx(values.sum())
    assert variance == pytest.approx(second - mean**2)


def test_a_stream_read_twice_is_estimated_without_bias_and_with_a_wider_interval() -> None:
    rng = np.random.default_rng(4)
    combos = np.array([c for c in itertools.product(range(5), repeat=2) if rng.random() < 0.7])
    values = rng.random(len(combos))
    mean = second = variance = 0.0
    for kept in every_sample(5):
        join, is_kept = sample_join(combos, [kept, kept], [0.5, 0.5], "ss")
        total = join.estimate_sum(values[is_kept])
        mean += chance(kept, 0.5) * total.values[0]
        second += chance(kept, 0.5) * total.values[0] ** 2
        variance += chance(kept, 0.5) * total.stderrs[0] ** 2
    assert mean == pytest.approx(values.sum())
    assert variance >= second - mean**2


def join_of(rows: int, keys: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Two streams joined on a key: pairs of row numbers, a value per pair and its group."""
    left, right = rng.integers(0, keys, rows), rng.integers(0, keys, rows)
    pairs = np.array([(a, b) for a in range(rows) for b in np.flatnonzero(right == left[a])], np.int64)
    price = rng.gamma(3.0, 10.0, rows)
    return pairs, price[pairs[:, 0]], left[pairs[:, 0]] % 3


@pytest.mark.parametrize("keeps", [(0.5, 0.3), (1.0, 0.2)])
def test_95_percent_intervals_cover_the_truth_in_93_to_97_percent_of_a_thousand_seeds(
    keeps: tuple[float, float],
) -> None:
    pairs, values, group = join_of(800, 60, np.random.default_rng(5))
    weights = np.ones(values.size)
    truth = {
        "count": np.bincount(group, weights, 3),
        "sum": np.bincount(group, values, 3),
        "avg": np.bincount(group, values, 3) / np.bincount(group, weights, 3),
    }
    covered, means = dict.fromkeys(truth, 0), {name: np.zeros(3) for name in truth}
    seeds = 1000
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        kept = [rng.random(800) < keep for keep in keeps]
        is_kept = kept[0][pairs[:, 0]] & kept[1][pairs[:, 1]]
        inputs = tuple(SampledInput("ab"[i], keeps[i], pairs[is_kept, i]) for i in range(2))
        join = SampledJoin(group[is_kept], 3, inputs)
        for name, found in (
            ("count", join.estimate_count()),
            ("sum", join.estimate_sum(values[is_kept])),
            ("avg", join.estimate_mean(values[is_kept])),
        ):
            covered[name] += int(np.sum(np.abs(found.values - truth[name]) <= 1.96 * found.stderrs))
            means[name] += found.values / seeds
    for name, hits in covered.items():
        assert 0.93 <= hits / (3 * seeds) <= 0.97, name
        assert means[name] == pytest.approx(truth[name], rel=0.02)


def test_streams_without_shedding_have_no_error() -> None:
    join = SampledJoin(
        np.array([0, 0, 1]), 2, (SampledInput("a", 1.0, np.arange(3)), SampledInput("b", 1.0, np.arange(3)))
    )
    count = join.estimate_count()
    assert count.values.tolist() == [2, 1]
    assert count.stderrs.tolist() == [0, 0]


def test_missing_values_do_not_count() -> None:
    join = SampledJoin(np.zeros(3, np.int64), 1, (SampledInput("a", 0.5, np.arange(3)),))
    values, present = np.array([1.0, 7.0, 3.0]), np.array([True, False, True])
    assert join.estimate_sum(values, present).values.tolist() == [8.0]
    assert join.estimate_mean(values, present).values.tolist() == [2.0]
    assert np.isnan(join.estimate_sum(np.array([1.0, np.nan, 3.0])).values[0]), "NaN is a value, not NULL"


def test_an_empty_sample_estimates_a_count_of_0_and_a_mean_of_nan() -> None:
    join = SampledJoin(np.zeros(0, np.int64), 1, (SampledInput("a", 0.5, np.zeros(0, np.int64)),))
    assert join.estimate_count().values.tolist() == [0.0]
    assert np.isnan(join.estimate_mean(np.zeros(0)).values[0])

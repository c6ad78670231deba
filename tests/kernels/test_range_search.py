"""Sorted blocks find exactly the rows that the plain definition finds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from watersmeet.kernels.range_search import (
    SCANNED_PLACES,
    build_extremes,
    build_zones,
    fill_range_matches,
    find_in_ranges_definition,
    sort_blocks,
    sort_blocks_definition,
    zone_starts,
)

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def _random_values(rng: Random, size: int) -> NDArray[np.int64]:
    choices: Sequence[int] = rng.choice(
        [range(-5, 6), range(-(10**6), 10**6), [_LOWEST, _LOWEST + 1, -1, 0, 1, _HIGHEST - 1, _HIGHEST], [7]]
    )
    return np.array(rng.choices(choices, k=size), np.int64)


def _sort(values: NDArray[np.int64], block_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    ordered, places = np.empty(values.size, np.int64), np.empty(values.size, np.int32)
    sort_blocks(values, block_rows, 0, -(-values.size // block_rows), ordered, places)
    return ordered, places


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_sorted_by_value_and_keep_the_order_of_equal_values(seed: int) -> None:
    rng = Random(seed)
    values, block_rows = _random_values(rng, rng.randrange(0, 400)), rng.choice([1, 16, 64, 1024])
    ordered, places = _sort(values, block_rows)
    assert places.tolist() == sort_blocks_definition(values, block_rows).tolist()
    assert ordered.tolist() == values[places].tolist()


def _random_bounds(rng: Random, values: NDArray[np.int64], probes: int) -> list[tuple[int, int]]:
    edges = [*values.tolist()[:20], _LOWEST, _HIGHEST, 0]
    bounds = []
    for _ in range(probes):
        low, high = rng.choice(edges), rng.choice(edges)
        bounds.append((low, high) if rng.random() < 0.1 else (min(low, high), max(low, high)))
    return bounds


@pytest.mark.parametrize("seed", range(60))
def test_probes_find_the_rows_of_the_definition(seed: int) -> None:
    rng = Random(seed)
    size, probes = rng.randrange(1, 900), rng.randrange(1, 30)
    columns = [_random_values(rng, size) for _ in range(rng.choice([1, 1, 2, 3]))]
    block_rows = rng.choice([16, 64, 256, 4096])
    spans = [sorted(rng.choices(range(size + 1), k=2)) for _ in range(probes)]
    bounds = [_random_bounds(rng, column, probes) for column in columns]
    capacity = rng.choice([size, 2 * size, size * probes])
    found = _fill(columns, block_rows, spans, bounds, capacity)
    law = find_in_ranges_definition(
        [column.tolist() for column in columns], [(start, stop - start) for start, stop in spans], bounds
    )
    assert sorted(found) == law


def _fill(
    columns: list[NDArray[np.int64]],
    block_rows: int,
    spans: list[list[int]],
    bounds: list[list[tuple[int, int]]],
    capacity: int,
) -> list[tuple[int, int]]:
    size = columns[0].size
    ordered, places = _sort(columns[0], block_rows)
    zones = [build_zones(each, places) for each in columns[1:]]
    width = int(zone_starts(size)[-1]) if zones else 0
    extremes = [build_extremes(each, places, block_rows) for each in columns[1:]]
    others = np.array(columns[1:], np.int64).reshape(len(zones), size if zones else 0)
    zone_lows = np.array([low for low, _ in zones], np.int64).reshape(len(zones), width)
    zone_highs = np.array([high for _, high in zones], np.int64).reshape(len(zones), width)
    largest = np.array([found for found, _ in extremes], np.int64).reshape(others.shape)
    smallest = np.array([found for _, found in extremes], np.int64).reshape(others.shape)
    first = np.array([start for start, _ in spans], np.int64)
    count = np.array([stop - start for start, stop in spans], np.int32)
    lows = np.array([[low for low, _ in each] for each in bounds], np.int64)
    highs = np.array([[high for _, high in each] for each in bounds], np.int64)
    near = np.zeros(4 * (-(-size // block_rows)), np.int64)
    found: list[tuple[int, int]] = []
    probe = 0
    while probe < len(spans):
        parents, matches = np.empty(capacity, np.int32), np.empty(capacity, np.int32)
        progress = np.zeros(2, np.int64)
        probe = fill_range_matches(
            columns[0], ordered, places, block_rows, others, zone_lows, zone_highs, zone_starts(size),
            largest, smallest, np.arange(size, dtype=np.int32), first, count, lows, highs, 0, probe, near, parents,
            matches, progress,
        )  # fmt: skip
        filled = int(progress[0])
        found += zip(parents[:filled].tolist(), matches[:filled].tolist(), strict=True)
    return found


def test_a_probe_of_many_places_tests_few_entries() -> None:
    size = 1 << 16
    values = np.arange(size, dtype=np.int64)
    ordered, places = _sort(values, 1 << 12)
    nothing = np.empty((0, 0), np.int64)
    parents, matches, progress = np.empty(64, np.int32), np.empty(64, np.int32), np.zeros(2, np.int64)
    assert size > SCANNED_PLACES
    fill_range_matches(
        values, ordered, places, 1 << 12, nothing, nothing, nothing, zone_starts(size), nothing, nothing,
        np.arange(size, dtype=np.int32), np.zeros(1, np.int64), np.array([size], np.int32),
        np.array([[1000]]), np.array([[1010]]), 0, 0, np.zeros(64, np.int64), parents, matches, progress,
    )  # fmt: skip
    assert progress.tolist() == [11, 11]


def test_zones_skip_rows_that_fail_a_second_inequality() -> None:
    size = 1 << 16
    values = np.arange(size, dtype=np.int64)
    ordered, places = _sort(values, size)
    low, high = build_zones(values, places)
    largest, smallest = build_extremes(values, places, size)
    parents, matches, progress = np.empty(64, np.int32), np.empty(64, np.int32), np.zeros(2, np.int64)
    fill_range_matches(
        values, ordered, places, size, values[None], low[None], high[None], zone_starts(size),
        largest[None], smallest[None], np.arange(size, dtype=np.int32), np.zeros(1, np.int64),
        np.array([size], np.int32), np.array([[0], [39_990]]), np.array([[40_000], [size]]), 0, 0,
        np.zeros(4, np.int64), parents, matches, progress,
    )  # fmt: skip
    assert progress[0] == 11
    assert progress[1] < 64

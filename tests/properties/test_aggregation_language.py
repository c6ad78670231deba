"""Ways to write an aggregation: FILTER, aliases and positions, streams that only pair constraints bound."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.oracle import admit
from tests.properties.generators.aggregation_cases import (
    AggregationCase,
    choose_piece,
    collect_groups,
    collect_groups_arriving,
    early_plans,
    expected_groups,
    expected_groups_by_batch,
    generate_aggregation,
)
from tests.properties.generators.arrival_orders import arrive_in_any_batches, arrive_within_lateness
from tests.properties.generators.cases import QueryPiece
from tests.volume import scale_volume

from .test_against_the_oracle import FIRST_SEED
from .test_aggregation import assert_same

SEEDS = scale_volume(30)

#: Aggregates with a FILTER, next to the same aggregates written with CASE.
FILTERED = (
    ("COUNT(*) FILTER (WHERE {a}.v > 0)", "SUM(CASE WHEN {a}.v > 0 THEN 1 ELSE 0 END)"),
    ("COUNT({a}.s) FILTER (WHERE {b}.v > 0)", "COUNT(CASE WHEN {b}.v > 0 THEN {a}.s END)"),
    ("SUM({a}.v) FILTER (WHERE {b}.s = 'b')", "SUM(CASE WHEN {b}.s = 'b' THEN {a}.v END)"),
    ("MAX({a}.x) FILTER (WHERE {a}.v < {b}.v)", "MAX(CASE WHEN {a}.v < {b}.v THEN {a}.x END)"),
    ("MIN({a}.s) FILTER (WHERE {a}.s IS NOT NULL)", "MIN({a}.s)"),
)


def test_filter_selects_the_values_of_one_aggregate() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        rng = Random(seed)
        case = generate_aggregation(seed)
        filtered, spelled_out = rng.choice(FILTERED)
        aliases = [item.alias for item in case.items]
        piece = choose_piece(Random(seed), aliases, [filtered])
        plain = choose_piece(Random(seed), aliases, [spelled_out])
        with_filter = _add_output(case, piece)
        found = collect_groups(with_filter)
        assert_same(with_filter, found, expected_groups(with_filter))
        if not spelled_out.startswith("SUM(CASE WHEN {a}.v > 0"):  # an empty group has COUNT 0 and SUM NULL
            assert_same(with_filter, found, collect_groups(_add_output(case, plain)))


def test_keys_named_by_alias_or_position_group_as_the_keys_themselves() -> None:
    renamed = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        case = generate_aggregation(seed)
        shown = {piece.text.rsplit(" AS ", 1)[0]: place for place, piece in enumerate(case.select)}
        rng = Random(seed)
        keys = tuple(
            replace(key, text=f"c{shown[key.text]}" if rng.random() < 0.5 else str(shown[key.text] + 1))
            if key.text in shown
            else key
            for key in case.keys
        )
        renamed += keys != case.keys
        assert_same(case, collect_groups(replace(case, keys=keys)), expected_groups(case))
    assert renamed


@pytest.mark.parametrize("every", [True, False])
def test_pair_constraints_alone_bound_an_aggregation(*, every: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        rng = Random(seed)
        case = _without_windows(rng, generate_aggregation(seed, every=every))
        arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness))(rng, case)
        found = collect_groups_arriving(rng, case, arrivals, early_plans(case))
        if every:
            admitted = case.with_tables(case.tables | admit(arrivals).tables)
            assert_same(case, found, expected_groups(admitted))
        else:
            assert_same(case, found, expected_groups_by_batch(case, arrivals))


def _add_output(case: AggregationCase, piece: QueryPiece) -> AggregationCase:
    return replace(case, select=(*case.select, replace(piece, text=f"{piece.text} AS added")))


def _without_windows(rng: Random, case: AggregationCase) -> AggregationCase:
    """Return the case with one bound for all pairs, and streams without a window, if there are several streams."""
    streams = [item for item in case.items if item.name in case.streams]
    if len(streams) < 2:
        return case
    times_us = sorted(time for source in case.streams.values() for time in source.times_us) or [0]
    length_us = rng.choice((0, 1, (times_us[-1] - times_us[0]) // 4, (times_us[-1] - times_us[0]) // 20))
    mixed = rng.random() < 0.5
    items = tuple(
        replace(item, window=f"[RANGE {2 * length_us} MICROSECONDS]" if mixed and rng.random() < 0.4 else "")
        if item in streams
        else item
        for item in case.items
    )
    return replace(case, items=items, constraints=(QueryPiece(f"WINDOW = {length_us} MICROSECONDS", ()),))

"""Snapshots, final tiles and operations equal the oracle's, and changes maintain a table that equals the snapshots."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import admit, table_rows
from tests.properties.engine import declare_source
from tests.properties.generators.aggregation_cases import (
    AggregationCase,
    collect_groups,
    collect_groups_arriving,
    early_plans,
    expected_groups,
    expected_groups_by_batch,
    expected_groups_by_row,
    generate_aggregation,
    with_equal_tiles,
)
from tests.properties.generators.arrival_orders import (
    arrive_in_any_batches,
    arrive_with_late_rows,
    arrive_within_lateness,
)
from tests.volume import scale_volume
from watersmeet.errors import QueryError

from .test_against_the_oracle import FIRST_SEED
from .test_aggregation import assert_same

CHUNKS = 5
SEEDS = scale_volume(4)
TABLE_SEEDS = scale_volume(20)
MODES = ("SNAPSHOT", "CHANGES WITH OPERATIONS")


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("mode", MODES)
def test_batches_restarts_and_plan_changes_emit_the_oracles_rows(mode: str, chunk: int) -> None:
    for seed in _seeds(chunk):
        check_arriving(seed, replace(generate_aggregation(seed), emit=mode))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_final_tiles_are_emitted_once(chunk: int) -> None:
    for seed in _seeds(chunk):
        check_arriving(seed, with_equal_tiles(generate_aggregation(seed), emit="FINAL"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("mode", MODES)
def test_without_every_each_batch_is_emitted(mode: str, chunk: int) -> None:
    for seed in _seeds(chunk):
        rng = Random(seed)
        case = replace(generate_aggregation(seed, every=False), emit=mode)
        arrivals = rng.choice((arrive_within_lateness, arrive_with_late_rows))(rng, case)
        found = collect_groups_arriving(rng, case, arrivals, early_plans(case))
        assert_same(case, found, expected_groups_by_batch(case, arrivals))


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_after_every_row(mode: str) -> None:
    for seed in _seeds(0):
        case = replace(generate_aggregation(seed, every=False), emit=mode)
        assert_same(case, collect_groups(case, None, "row"), expected_groups_by_row(case))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_table_maintained_by_changes_equals_every_snapshot(chunk: int) -> None:
    compared = 0
    for seed in _seeds(chunk, TABLE_SEEDS):
        case = generate_aggregation(seed)
        # The keys identify a group in its rows, under names of their own.
        keyed = replace(case, select=(*case.select, *_name_keys(case)))
        compared += check_maintained_table(keyed)
    assert compared


def check_arriving(seed: int, case: AggregationCase) -> None:
    rng = Random(seed)
    arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
    admitted = case.with_tables(case.tables | admit(arrivals).tables)
    assert_same(case, collect_groups_arriving(rng, case, arrivals, early_plans(case)), expected_groups(admitted))


def check_maintained_table(case: AggregationCase) -> int:
    """Check a case; return the number of snapshots that were compared."""
    streams = {source.name: declare_source(source) for source in case.sources}
    try:
        changes = wm.collect(case.text, streams, emit="changes", operations=True)
        snapshots = wm.collect(case.text, streams, emit="snapshot")
    except QueryError as error:
        if "overflow in the sum" not in str(error):
            raise
        return 0
    tables = _group_by_instant(snapshots)
    maintained: dict[Any, Any] = {}
    by_instant = _group_by_instant(changes)
    for instant in sorted({*tables, *by_instant}):
        for *row, operation in by_instant[instant]:
            key = tuple(map(repr, row[len(row) - len(case.keys) :]))
            if operation == "upsert":
                maintained[key] = tuple(row)
            else:
                del maintained[key]
        assert Counter(map(repr, maintained.values())) == Counter(map(repr, tables[instant])), case.text
    return len(tables)


def _group_by_instant(table: pa.Table) -> defaultdict[Any, list[tuple[Any, ...]]]:
    place = table.column_names.index("as_of")
    found: defaultdict[Any, list[tuple[Any, ...]]] = defaultdict(list)
    for row in table_rows(table):
        found[row[place].ns].append((*row[:place], *row[place + 1 :]))
    return found


def _name_keys(case: AggregationCase) -> list[Any]:
    return [replace(key, text=f"{key.text} AS key{number}") for number, key in enumerate(case.keys)]


def _seeds(chunk: int, size: int = SEEDS) -> range:
    return range(FIRST_SEED + chunk * size, FIRST_SEED + (chunk + 1) * size)

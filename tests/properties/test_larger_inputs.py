"""Inputs too large for brute force, against DuckDB; and small ones cut as if they were large.

Small tables never fill a pane, a piece or a time slice, so here either the tables grow or the limits shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import duckdb
import pytest

from tests.properties.generators.arrival_orders import arrive_in_any_batches, arrive_within_lateness
from tests.properties.generators.join_cases import generate_case, generate_large_case
from tests.volume import scale_volume
from watersmeet.operators import parallel as cores
from watersmeet.operators.window_join import admission, state
from watersmeet.operators.window_join.tactics import grouped_runs

from .duckdb_oracle import duckdb_rows, make_portable, open_duckdb
from .engine import assert_same, collect, collect_arriving, expected_rows

CHUNKS = 10
CROWDS_PER_CHUNK = scale_volume(4)
SEEDS_PER_CHUNK = scale_volume(15)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duckdb() as connection:
        yield connection


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_larger_inputs_give_duckdbs_rows(connection: duckdb.DuckDBPyConnection, chunk: int) -> None:
    for seed in range(chunk * CROWDS_PER_CHUNK, (chunk + 1) * CROWDS_PER_CHUNK):
        case, rng = make_portable(generate_large_case(seed)), Random(seed)
        wanted = duckdb_rows(connection, case)
        assert_same(case, collect(case).rows, wanted)
        assert_same(case, collect_arriving(case, arrive_in_any_batches(rng, case)).rows, wanted)
        assert_same(case, collect_arriving(case, arrive_within_lateness(rng, case)).rows, wanted)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_cutting_work_into_tiny_pieces_gives_the_same_rows(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_runs, "PIECE_ROWS", 1 + chunk % 3)
    monkeypatch.setattr(cores, "MIN_PARALLEL_ROWS", 1 + chunk % 2 * 100)
    monkeypatch.setattr(admission, "MIN_SLICE_ROWS", 1 + chunk % 4)
    monkeypatch.setattr(state, "MERGE_ROWS", chunk % 5)
    monkeypatch.setattr(state, "_MAX_PANES", 1 + chunk % 2)
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        case, rng = generate_case(seed), Random(seed)
        wanted = expected_rows(case)
        assert_same(case, collect(case).rows, wanted)
        assert_same(case, collect_arriving(case, arrive_in_any_batches(rng, case)).rows, wanted)

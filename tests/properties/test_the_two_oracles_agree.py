"""Brute force against DuckDB, on queries that both can express."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from tests.oracle import join_rows
from tests.properties.generators.join_cases import generate_case
from tests.volume import scale_volume

from .duckdb_oracle import duckdb_rows, duckdb_text, make_portable, open_duckdb

CHUNKS = 10
SEEDS_PER_CHUNK = scale_volume(40)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duckdb() as connection:
        yield connection


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_brute_force_agrees_with_duckdb(connection: duckdb.DuckDBPyConnection, chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        case = make_portable(generate_case(seed))
        brute, duck = sorted(join_rows(case.bound, case.tables)), sorted(duckdb_rows(connection, case).elements())
        assert brute == duck, f"{case}\n{duckdb_text(case)}"

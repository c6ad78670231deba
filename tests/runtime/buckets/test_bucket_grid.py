"""Grids of buckets: the rows of a result meet in exactly one cell, and few rows are copied."""

from __future__ import annotations

from itertools import product
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.schema import StreamSchema
from watersmeet.operators.narrow_integers import restore_integers
from watersmeet.operators.window_join.config import JoinConfig, build_join_config
from watersmeet.runtime.buckets.bucket_grid import BucketGrid, choose_grid
from watersmeet.runtime.buckets.packets import ROWS, decode_packets, decode_table
from watersmeet.runtime.buckets.packing import PackedInput, Packer
from watersmeet.sql.binder import bind

FIELDS = {"ts": pa.int64(), "x": pa.int64(), "y": pa.int64(), "id": pa.int64()}
COMMON = "a.x = b.x AND b.x = c.x"
CHAIN = "a.x = b.x AND b.y = c.y"
THETA = "a.x < b.x AND b.y < c.y"


def build_config(where: str, sources: str = "abc") -> JoinConfig:
    windows = ", ".join(f"{alias} [RANGE 1 SECOND]" for alias in sources)
    schemas = {alias: StreamSchema(alias, pa.schema(FIELDS), "ts") for alias in sources}
    return build_join_config(bind(wm.sql(f"SELECT a.id FROM {windows} WHERE {where}"), schemas))


def find_cells(chosen: JoinConfig, grid: BucketGrid, number: int, table: pa.Table) -> dict[int, set[int]]:
    """Return the cells that each row of an input goes to, by the row's id."""
    packed = PackedInput(number, tuple(FIELDS), chosen.inputs[number].keys)
    packer = Packer(0, "s", "ts", (packed,), grid, tuple(range(grid.cells)))
    cells: dict[int, set[int]] = {}
    for batch in packer.pack([table]):
        for packet in decode_packets(batch):
            if packet.kind == ROWS:
                rows = restore_integers([decode_table(packet.blob)], pa.schema(list(FIELDS.items())))
                for row in cast("list[int]", rows.column("id").to_pylist()):
                    cells.setdefault(row, set()).add(packet.bucket)
    return cells


@pytest.mark.parametrize("where", [COMMON, CHAIN, THETA])
@pytest.mark.parametrize("buckets", [1, 2, 4, 6, 12])
def test_rows_that_may_match_meet_in_exactly_one_cell(where: str, buckets: int) -> None:
    chosen = build_config(where)
    grid = choose_grid(chosen, buckets)
    assert grid.cells == buckets
    rng = np.random.default_rng(buckets)
    tables = [
        pa.table(
            {
                "ts": pa.array(rng.integers(0, 9, 12)),
                "x": pa.array(rng.integers(0, 3, 12)),
                "y": pa.array(rng.integers(0, 3, 12)),
                "id": range(12),
            }
        )
    ] * 3
    cells = [find_cells(chosen, grid, number, table) for number, table in enumerate(tables)]
    rows = [table.to_pylist() for table in tables]
    for a, b, c in product(*rows):
        agree = where == THETA or (a["x"] == b["x"] and (b["x"] == c["x"] if where == COMMON else b["y"] == c["y"]))
        if agree:
            assert len(cells[0][a["id"]] & cells[1][b["id"]] & cells[2][c["id"]]) == 1


def test_a_common_key_copies_nothing() -> None:
    grid = choose_grid(build_config(COMMON), 8)
    assert [len(grid.copies(number)) for number in range(3)] == [1, 1, 1]


def test_a_chain_copies_its_ends_only() -> None:
    grid = choose_grid(build_config(CHAIN), 4)
    assert len(grid.copies(1)) == 1


def test_without_an_equality_the_faster_stream_is_split_and_the_slower_copied() -> None:
    grid = choose_grid(build_config("a.x < b.x", "ab"), 4, rows_per_s=[1000.0, 1.0])
    assert [len(grid.copies(number)) for number in range(2)] == [1, 4]


def test_every_row_is_counted_in_one_of_its_cells() -> None:
    grid = choose_grid(build_config(CHAIN), 12)
    for number in range(3):
        assert (
            sum(grid.is_first_copy(number, cell) for cell in range(grid.cells)) * len(grid.copies(number)) == grid.cells
        )


def test_a_rows_window_over_the_whole_stream_has_one_cell() -> None:
    schemas = {alias: StreamSchema(alias, pa.schema(FIELDS), "ts") for alias in "ab"}
    rows = build_join_config(bind(wm.sql("SELECT a.id FROM a [ROWS 2], b [RANGE 1 SECOND] WHERE a.x = b.x"), schemas))
    assert choose_grid(rows, 8).cells == 1

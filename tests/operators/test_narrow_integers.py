"""Downcast columns are restored exactly, for any values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.operators.narrow_integers import downcast_integers, restore_integers
from watersmeet.runtime.buckets.packets import decode_table, encode_table_to_buffer

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("k", pa.int64()),
    ("ts", pa.timestamp("us", "UTC")),
    ("word", pa.string()),
    ("x", pa.float64()),
    ("small", pa.int32()),
]
SCHEMA = pa.schema(_COLUMNS)

near_integers = st.integers(-(2**31), 2**31)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    far = draw(st.booleans())
    integers = st.integers(-(2**63), 2**63 - 1) if far else near_integers
    values = st.one_of(integers, st.none()) if draw(st.booleans()) else integers
    columns: list[pa.Array[Any]] = [
        pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), pa.int64()),
        pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), pa.int64()).view(pa.timestamp("us", "UTC")),
        pa.array(draw(st.lists(st.one_of(st.text(max_size=3), st.none()), min_size=rows, max_size=rows)), pa.string()),
        pa.array(draw(st.lists(st.floats(allow_nan=False), min_size=rows, max_size=rows)), pa.float64()),
        pa.array(draw(st.lists(st.integers(-5, 5), min_size=rows, max_size=rows)), pa.int32()),
    ]
    start = draw(st.integers(0, rows))
    return pa.Table.from_arrays(columns, schema=SCHEMA).slice(start)


@given(st.lists(tables(), min_size=1, max_size=4))
def test_restored_tables_are_concatenated_in_order(several: list[pa.Table]) -> None:
    decoded = [decode_table(encode_table_to_buffer(downcast_integers(table))) for table in several]
    restored = restore_integers(decoded, SCHEMA)
    restored.validate(full=True)
    assert restored.equals(pa.concat_tables(several))


@pytest.mark.parametrize(
    ("values", "fits"), [([5, 2**32 + 4], True), ([5, 2**32 + 5], False), ([-(2**63), 2**63 - 1], False), ([7], True)]
)
def test_integers_are_downcast_to_32_bits_if_their_range_fits(values: list[int], fits: bool) -> None:
    column = downcast_integers(pa.table({"k": values})).column("k")
    assert column.type == (pa.uint32() if fits else pa.int64())


def test_downcast_tables_have_half_of_the_bytes() -> None:
    table = pa.table({"k": range(10_000), "ts": pa.array(range(10_000), pa.timestamp("us"))})
    assert len(encode_table_to_buffer(downcast_integers(table))) < 0.51 * len(encode_table_to_buffer(table))


@pytest.mark.parametrize("values", [["x"], [1, None], [0, 2**40], [1]])
def test_metadata_of_the_user_change_nothing(values: list[object]) -> None:
    kind = pa.string() if values == ["x"] else pa.int64()
    table = pa.Table.from_arrays(
        [pa.array(values, kind)], schema=pa.schema([pa.field("k", kind, metadata={b"low": b"7"})])
    )
    assert restore_integers([decode_table(encode_table_to_buffer(downcast_integers(table)))], table.schema).equals(
        table
    )

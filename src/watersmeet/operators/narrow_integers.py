"""Narrow integers: columns of 64-bit integers and timestamps as 32-bit offsets from their minimum.

Keys, times and amounts of neighbouring rows are close together, so half of the bytes hold them. Packets between the
stages of Spark and panes in a checkpoint are narrow.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LOW = b"low"
_MAX_OFFSET = 2**32 - 1


def downcast_integers(table: pa.Table) -> pa.Table:
    """Return the table with 32-bit columns where the values fit. The column metadata contain the subtracted minimum."""
    pairs = [_downcast(field, _one_array(column)) for field, column in zip(table.schema, table.columns, strict=True)]
    return pa.Table.from_arrays([column for _, column in pairs], schema=pa.schema([field for field, _ in pairs]))


def restore_integers(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Concatenate downcast tables and restore the original columns."""
    columns = [
        _restore([(each.schema.field(number), _one_array(each.column(number))) for each in tables], field.type)
        for number, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _downcast(field: pa.Field[Any], values: pa.Array[Any]) -> tuple[pa.Field[Any], pa.Array[Any]]:
    if not _is_int64_or_timestamp(field.type) or values.null_count or not len(values):
        return field, values
    numbers = _as_int64(values)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > _MAX_OFFSET:
        return field, values
    return pa.field(field.name, pa.uint32(), metadata={_LOW: str(low).encode()}), pa.array(
        (numbers - low).astype(np.uint32)
    )


def _restore(pieces: list[tuple[pa.Field[Any], pa.Array[Any]]], kind: pa.DataType) -> pa.Array[Any]:
    if len(pieces) == 1 and not _is_downcast(pieces[0][0], kind):
        return pieces[0][1]
    if not _is_int64_or_timestamp(kind) or any(values.null_count for _, values in pieces):
        # A piece with nulls is never downcast, so downcast and plain pieces may be mixed: restore each piece alone.
        return pa.concat_arrays(
            [_restore([piece], kind) if _is_downcast(piece[0], kind) else piece[1] for piece in pieces]
        )
    numbers = np.empty(sum(len(values) for _, values in pieces), np.int64)
    at = 0
    for field, values in pieces:
        here = numbers[at : at + len(values)]
        if _is_downcast(field, kind):
            np.add(values.to_numpy(), int(cast("dict[bytes, bytes]", field.metadata)[_LOW]), out=here, dtype=np.int64)
        else:
            here[:] = _as_int64(values)
        at += len(values)
    return pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(numbers.data)])


def _is_downcast(field: pa.Field[Any], kind: pa.DataType) -> bool:
    """Return whether the column is downcast, judged by its type: its metadata may come from the user."""
    return _is_int64_or_timestamp(kind) and bool(pa.types.is_uint32(field.type))


def _is_int64_or_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def _as_int64(values: pa.Array[Any]) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = values.view(pa.int64()).to_numpy()
    return numbers


def _one_array(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    # The stubs type a chunk as a ChunkedArray.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[return-value]

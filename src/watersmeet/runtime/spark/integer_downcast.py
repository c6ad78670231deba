"""Whole numbers on their way through Spark: as distances from the least one of their packet, in 32 bits where these are
enough.

A packet is copied some eight times between the task that packs it and the bucket that takes it in: through two sockets,
into rows, into and out of the shuffle, into the memory that sorts. Keys, times and amounts of a packet are near each
other, so half of the bytes do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_LOW = b"low"
_MAX_OFFSET = 2**32 - 1


def downcast_integers(table: pa.Table) -> pa.Table:
    """The table with 32-bit columns where they hold what is in it; what was taken off is in the columns' metadata."""
    pairs = [_downcast(field, _one_array(column)) for field, column in zip(table.schema, table.columns, strict=True)]
    return pa.Table.from_arrays([column for _, column in pairs], schema=pa.schema([field for field, _ in pairs]))


def restore_integers(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables that were narrowed, one after the other, as they were."""
    columns = [
        _restore([(each.schema.field(number), _one_array(each.column(number))) for each in tables], field.type)
        for number, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _downcast(field: pa.Field, values: pa.Array) -> tuple[pa.Field, pa.Array]:
    if not _is_int64_or_timestamp(field.type) or values.null_count or not len(values):
        return field, values
    numbers = _as_int64(values)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > _MAX_OFFSET:
        return field, values
    return pa.field(field.name, pa.uint32(), metadata={_LOW: str(low).encode()}), pa.array(
        (numbers - low).astype(np.uint32)
    )


def _restore(pieces: list[tuple[pa.Field, pa.Array]], kind: pa.DataType) -> pa.Array:
    if not _is_int64_or_timestamp(kind) or any(values.null_count for _, values in pieces):
        return pa.concat_arrays(
            [_restore([piece], kind) if _is_downcast(piece[0], kind) else piece[1] for piece in pieces]
        )
    numbers = np.empty(sum(len(values) for _, values in pieces), np.int64)
    at = 0
    for field, values in pieces:
        here = numbers[at : at + len(values)]
        if _is_downcast(field, kind):
            np.add(values.to_numpy(), int(field.metadata[_LOW]), out=here, dtype=np.int64)
        else:
            here[:] = _as_int64(values)
        at += len(values)
    return pa.Array.from_buffers(kind, numbers.size, [None, pa.py_buffer(numbers)])


def _is_downcast(field: pa.Field, kind: pa.DataType) -> bool:
    """Told by its type: what a column's own metadata say is not ours."""
    return _is_int64_or_timestamp(kind) and bool(pa.types.is_uint32(field.type))


def _is_int64_or_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def _as_int64(values: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = values.view(pa.int64()).to_numpy()
    return found


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

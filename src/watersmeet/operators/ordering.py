"""The order ≺ of a stream's rows: by time, ties by the remaining columns from left to right, nulls first.

It decides which rows are the last C, so it must not depend on arrival. NaN is above every number and −0.0 equals 0.0, as everywhere.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

PartitionKey = tuple[str | None, ...]


def stream_order(times_us: NDArray[np.int64], columns: list[pa.Array]) -> NDArray[np.int64]:
    """Row numbers in ≺ order.

    >>> stream_order(np.array([5, 3, 5]), [pa.array(["b", "x", None])]).tolist()
    [1, 2, 0]
    """
    by_time = np.argsort(times_us, kind="stable")
    sorted_times = times_us[by_time]
    if not np.any(sorted_times[1:] == sorted_times[:-1]):
        return by_time
    # np.lexsort takes the most significant key last.
    return np.lexsort([*(order_codes(column) for column in reversed(columns)), times_us])


def order_codes(column: pa.Array) -> NDArray[np.int64]:
    """Numbers that compare as the column's values do: equal values share one, nulls come first.

    >>> order_codes(pa.array([0.0, float("nan"), None, -0.0])).tolist()
    [1, 2, 0, 1]
    """
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        return _float_order(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return _ranked(column)


def partition_groups(columns: list[pa.Array], length: int) -> tuple[NDArray[np.int64], list[PartitionKey]]:
    """PARTITION BY: a group number per row, and each group's values. NULLs are one group, so are NaNs, and −0.0 is 0.0.

    >>> groups, values = partition_groups([pa.array(["x", "y", "x"])], 3)
    >>> [values[group] for group in groups]
    [('x',), ('y',), ('x',)]
    """
    if not length:
        return np.empty(0, np.int64), []
    if not columns:
        return np.zeros(length, np.int64), [()]
    codes = np.stack([order_codes(column) for column in columns], axis=1)
    _, first, groups = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    chosen = pa.array(first)
    values = zip(*(_partition_values(column.take(chosen)) for column in columns), strict=True)
    return groups.reshape(-1).astype(np.int64), list(values)


def _ranked(column: pa.Array) -> NDArray[np.int64]:
    encoded = column.dictionary_encode()
    # Strings sort by their UTF-8 bytes, which is code point order.
    place = np.empty(len(encoded.dictionary), np.int64)
    place[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(1, len(encoded.dictionary) + 1)
    indices = encoded.indices
    if not indices.null_count:
        return np.asarray(place[indices.to_numpy()])
    codes = np.zeros(len(column), np.int64)
    valid = indices.is_valid().to_numpy(zero_copy_only=False)
    codes[valid] = place[indices.drop_null().to_numpy()]
    return codes


def _float_order(column: pa.Array) -> NDArray[np.int64]:
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    distinct = np.unique(values[valid])  # sorted, one NaN at the end
    codes = np.searchsorted(distinct, values) + 1
    codes[~valid] = 0
    return np.asarray(codes, np.int64)


def _partition_values(column: pa.Array) -> list[str | None]:
    """Each value as text; injective inside one column, because a column has one type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        return [None if value is None else repr(value + 0.0) for value in column.to_pylist()]  # −0.0 + 0.0 is 0.0
    if pa.types.is_temporal(column.type):  # nanoseconds do not fit Python's own types
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [None if value is None else value.hex() if isinstance(value, bytes) else str(value) for value in column.to_pylist()]

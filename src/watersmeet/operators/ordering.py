"""The order ≺ of a stream's rows: by time, ties by the remaining columns from left to right, nulls first.

The order decides which rows are the last C, so it must not depend on arrival. NaN is above every number and −0.0 equals
0.0, as everywhere. Nested values compare element by element, with nulls first at every depth. Lists compare from their
first element, and a list comes before longer lists that start with it. Structs compare field by field. Maps compare as
lists of their entries in stored order.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import index_array, is_bytes_view, is_list_view, is_text_view

PartitionKey = tuple[str | None, ...]


def sort_stream_rows(times_us: NDArray[np.int64], columns: list[pa.Array[Any]]) -> NDArray[np.int64]:
    """Return row numbers in ≺ order.

    >>> sort_stream_rows(np.array([5, 3, 5]), [pa.array(["b", "x", None])]).tolist()
    [1, 2, 0]
    """
    by_time = np.argsort(times_us, kind="stable")
    sorted_times = times_us[by_time]
    if not np.any(sorted_times[1:] == sorted_times[:-1]):
        return by_time
    # np.lexsort takes the most significant key last.
    return np.lexsort([*(rank_values(column) for column in reversed(columns)), times_us])


def rank_values(column: pa.Array[Any]) -> NDArray[np.int64]:
    """Return numbers that compare as the column's values do: equal values share one, nulls are 0 and come first.

    >>> rank_values(pa.array([0.0, float("nan"), None, -0.0])).tolist()
    [1, 2, 0, 1]
    >>> rank_values(pa.array([[2], [1, 5], None, [1], []])).tolist()
    [4, 3, 0, 2, 1]
    """
    column = _to_plain_type(column)
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_floating(kind):
        return _rank_floats(column)
    if pa.types.is_struct(kind):
        return _rank_structs(cast("pa.StructArray", column))
    if any(is_list(kind) for is_list in _LIST_TYPE_TESTS):
        return _rank_lists(cast("pa.ListArray[Any]", column))
    return _rank_scalars(column)


def group_by_partition(columns: list[pa.Array[Any]], length: int) -> tuple[NDArray[np.int64], list[PartitionKey]]:
    """Return a PARTITION BY group number per row, and the values of each group.

    NULLs form one group, NaNs form one group, and −0.0 equals 0.0.

    >>> groups, values = group_by_partition([pa.array(["x", "y", "x"])], 3)
    >>> [values[group] for group in groups]
    [('x',), ('y',), ('x',)]
    """
    if not length:
        return np.empty(0, np.int64), []
    if not columns:
        return np.zeros(length, np.int64), [()]
    codes = np.stack([rank_values(column) for column in columns], axis=1)
    _, first, groups = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    chosen = index_array(first)
    values = zip(*(_partition_values(column.take(chosen)) for column in columns), strict=True)
    return groups.reshape(-1).astype(np.int64), list(values)


_LIST_TYPE_TESTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, is_list_view)


def _to_plain_type(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the same values in a type that Arrow's kernels order."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _to_plain_type(cast("pa.ExtensionArray[Any]", column).storage)
    if pa.types.is_run_end_encoded(kind):
        return _to_plain_type(pc.run_end_decode(column))  # type: ignore[attr-defined]  # not in the stubs
    if pa.types.is_dictionary(kind):
        return _to_plain_type(column.cast(kind.value_type))
    plain = _plain_type(kind)
    return column if plain == kind else column.cast(plain)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
    if pa.types.is_boolean(kind):
        return pa.int8()
    if is_text_view(kind) or is_bytes_view(kind):
        return pa.large_binary()
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def _rank_lists(column: pa.ListArray[Any]) -> NDArray[np.int64]:
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return _rank_sequences(column, rank_values(column.flatten()), lengths)


def _rank_structs(column: pa.StructArray) -> NDArray[np.int64]:
    fields = [rank_values(field) for field in column.flatten()]
    codes = np.stack(fields, axis=1).reshape(-1) if fields else np.empty(0, np.int64)
    return _rank_sequences(column, codes, np.full(len(column), len(fields), np.int64))


def _rank_sequences(column: pa.Array[Any], codes: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank rows by the sequences of their elements' codes; `lengths` gives the number of elements per row.

    Codes are not negative and have eight bytes each, highest byte first. So their bytes compare as the sequences do.
    """
    width = codes.dtype.itemsize
    offsets = np.concatenate([[0], np.cumsum(lengths * width)]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(codes.astype(">i8").tobytes())]
    ranks = _rank_scalars(pa.Array.from_buffers(pa.large_binary(), len(column), buffers))
    if column.null_count:
        ranks[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return ranks


def _rank_scalars(column: pa.Array[Any]) -> NDArray[np.int64]:
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


def _rank_floats(column: pa.Array[Any]) -> NDArray[np.int64]:
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    distinct = np.unique(values[valid])  # sorted, one NaN at the end
    codes = np.searchsorted(distinct, values) + 1
    codes[~valid] = 0
    return np.asarray(codes, np.int64)


def _partition_values(column: pa.Array[Any]) -> list[str | None]:
    """Return each value as text. The mapping is injective within a column, because a column has one type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        return [None if value is None else repr(value + 0.0) for value in column.to_pylist()]  # −0.0 + 0.0 is 0.0
    if pa.types.is_temporal(column.type):  # nanoseconds do not fit Python's own types
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [
        None if value is None else value.hex() if isinstance(value, bytes) else str(value)
        for value in column.to_pylist()
    ]

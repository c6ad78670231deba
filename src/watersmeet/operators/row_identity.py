"""Row identities: 64-bit hashes of all values of a row, the same in every process, on every host, in every batch.

The identity is Spark SQL's `xxhash64(column, column, …)` over the stream's columns in declared order, bit for bit. So
Spark can compute it before the row leaves the JVM. Missing values leave the hash unchanged, −0.0 equals 0.0 and all
NaNs are equal. A type that Spark lacks is hashed as the type that Spark reads it as.

- Unsigned integers are read as the next wider signed type (64 bits as DECIMAL(20, 0)).
- Half floats are read as FLOAT.
- Seconds, milliseconds and nanoseconds are read as microseconds.

Spark cannot hash maps, so columns that contain a map are excluded from the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import is_bytes, is_text, view_buffer
from watersmeet.kernels.hashing import hash_int32s, hash_int64s, hash_strings

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
HashFunction = Callable[[Int64s, Any, Bools], None]

#: Initial value of Spark's `xxhash64`.
SPARK_SEED = 42
#: Decimals with at most this many digits are hashed as one number, larger ones as bytes.
LONG_DIGITS = 18


def hash_rows(table: pa.Table) -> Int64s:
    """Return the identity of every row.

    >>> hash_rows(pa.table({"k": [1, None], "name": ["a", None]})).tolist()
    [-8527884376001292090, 42]
    """
    hashes = np.full(table.num_rows, SPARK_SEED, np.int64)
    for column in table.columns:
        if is_part_of_identity(column.type):
            hash_column(hashes, pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type))
    return hashes


def is_part_of_identity(kind: pa.DataType) -> bool:
    """Return whether values of this type have a hash that both hosts agree on."""
    if pa.types.is_struct(kind):
        return all(is_part_of_identity(field.type) for field in kind)
    if _is_list(kind) or pa.types.is_dictionary(kind):
        return is_part_of_identity(kind.value_type)
    return pa.types.is_null(kind) or any(test(kind) for test, _ in _HASHES)


def hash_column(hashes: Int64s, values: pa.Array[Any]) -> None:
    """Add one column to the hash of every row, in place."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if pa.types.is_null(kind) or not len(values):
        return
    present = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(kind):
        _hash_struct_fields(hashes, cast("pa.StructArray", values), present)
    elif _is_list(kind):
        _hash_list_elements(hashes, values, present)
    else:
        next(hash_values for test, hash_values in _HASHES if test(kind))(hashes, values, present)


def _hash_struct_fields(hashes: Int64s, values: pa.StructArray, present: Bools) -> None:
    rows = np.flatnonzero(present)
    part = np.ascontiguousarray(hashes[rows])
    for field in values.take(rows).flatten():
        hash_column(part, field)
    hashes[rows] = part


def _hash_list_elements(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    """Hash the first elements of all lists, then the second elements, and so on."""
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    for place in range(int(lengths.max())):
        rows = np.flatnonzero(present & (lengths > place))
        part = np.ascontiguousarray(hashes[rows])
        hash_column(part, pc.list_element(values.take(rows), place))
        hashes[rows] = part


def _hash_int32_values(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    hash_int32s(hashes, _to_numbers(values, pa.int32()), present)


def _hash_int64_values(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    hash_int64s(hashes, _to_numbers(values, pa.int64()), present)


def _hash_uint64_values(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    _hash_decimals(hashes, values.cast(pa.decimal128(20, 0)), present)


def _hash_booleans(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    _hash_int32_values(hashes, values.cast(pa.int8()), present)


def _hash_floats(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    hash_int32s(hashes, _normalize_floats(_to_numbers(values, pa.float32())).view(np.int32), present)


def _hash_doubles(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    hash_int64s(hashes, _normalize_floats(_to_numbers(values, pa.float64())).view(np.int64), present)


def _normalize_floats(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values with a single zero and a single NaN."""
    values = values + values.dtype.type(0)
    values[np.isnan(values)] = values.dtype.type("nan")
    return values


def _hash_dates(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    _hash_int32_values(hashes, values.cast(pa.date32()).view(pa.int32()), present)


def _hash_timestamps(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    ticks, unit = _to_numbers(values.view(pa.int64()), pa.int64()), values.type.unit
    hash_int64s(
        hashes, ticks // 1_000 if unit == "ns" else ticks * {"s": 1_000_000, "ms": 1_000, "us": 1}[unit], present
    )


def _hash_times(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    ticks = _to_numbers(values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()), pa.int64())
    hash_int64s(hashes, ticks * {"s": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}[values.type.unit], present)


def _hash_decimals(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    """Hash unscaled decimals: as 8 bytes if the type has few digits, else as few bytes as needed, highest first."""
    if values.type.precision <= LONG_DIGITS:
        lowest = _decimal_bytes(values)[:, :8]
        hash_int64s(hashes, np.ascontiguousarray(lowest).view(np.int64).reshape(-1), present)
        return
    digits = _decimal_bytes(values)[:, ::-1]
    negative = digits[:, :1] >= 0x80
    # A leading byte is redundant if it only repeats the sign that the next byte carries too.
    redundant = (digits[:, :-1] == np.where(negative, 0xFF, 0)) & ((digits[:, 1:] >= 0x80) == negative)
    leading = np.cumprod(redundant, axis=1).sum(axis=1)
    width = digits.shape[1]
    data = digits[np.arange(width) >= leading[:, None]]
    hash_strings(hashes, data, np.concatenate(([0], np.cumsum(width - leading))).astype(np.int64), present)


def _decimal_bytes(values: pa.Array[Any]) -> NDArray[np.uint8]:
    """Return one row of little-endian bytes per decimal, at least eight bytes each."""
    if values.type.bit_width < 64:
        values = values.cast(pa.decimal64(values.type.precision, values.type.scale))
    width = values.type.bit_width // 8
    data = view_buffer(values.buffers()[1], np.uint8)
    return data[values.offset * width : (values.offset + len(values)) * width].reshape(len(values), width)


def _hash_bytes(hashes: Int64s, values: pa.Array[Any], present: Bools) -> None:
    flat = values.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = flat.buffers()
    offsets = view_buffer(offsets_buffer, np.int64)[flat.offset : flat.offset + len(flat) + 1]
    data = view_buffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    hash_strings(hashes, data, offsets, present)


def _to_numbers(values: pa.Array[Any], kind: pa.DataType) -> NDArray[Any]:
    """Return the values as numbers of this type; missing values become arbitrary numbers."""
    numbers: pa.Array[Any] = values.cast(kind)
    if numbers.null_count:
        numbers = numbers.fill_null(0)
    return np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False))


def _is_list(
    kind: pa.DataType,
) -> TypeGuard[pa.ListType[Any] | pa.LargeListType[Any] | pa.FixedSizeListType[Any, Any]]:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_one_of(*kinds: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda kind: kind in kinds


#: Hash function per type; the first match applies.
_HASHES: tuple[tuple[Callable[[pa.DataType], bool], HashFunction], ...] = (
    (_is_one_of(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), _hash_int32_values),
    (_is_one_of(pa.int64(), pa.uint32()), _hash_int64_values),
    (_is_one_of(pa.uint64()), _hash_uint64_values),
    (pa.types.is_boolean, _hash_booleans),
    (_is_one_of(pa.float16(), pa.float32()), _hash_floats),
    (_is_one_of(pa.float64()), _hash_doubles),
    (pa.types.is_date, _hash_dates),
    (pa.types.is_timestamp, _hash_timestamps),
    (pa.types.is_duration, _hash_timestamps),
    (pa.types.is_time, _hash_times),
    (pa.types.is_decimal, _hash_decimals),
    (is_text, _hash_bytes),
    (is_bytes, _hash_bytes),
    (pa.types.is_fixed_size_binary, _hash_bytes),
)

"""Join keys of any Arrow type as int64 codes.

Equal keys always have equal codes. If the type fits into 64 bits, the codes are exact: equal codes mean equal keys.
Otherwise the codes are hashes, and the caller must compare the keys themselves after a match.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import is_bytes, is_text, view_buffer
from watersmeet.errors import InternalError, QueryError
from watersmeet.kernels.hashing import hash_slices

_CANONICAL_NAN = np.float64("nan")


def has_exact_codes(kind: pa.DataType) -> bool:
    """Return whether keys of this type fit into their codes."""
    return not (is_text(kind) or is_bytes(kind) or _is_wide(kind))


def encode_keys(keys: pa.Array[Any]) -> NDArray[np.int64]:
    """Return one code per key.

    Keys are never null here: a null key matches nothing, so such rows were dropped earlier.

    >>> encode_keys(pa.array([1, 1, -3])).tolist()
    [1, 1, -3]
    >>> a, b = encode_keys(pa.array([0.0, -0.0])).tolist()
    >>> a == b
    True
    """
    if keys.null_count:
        raise InternalError("null keys reached the key codes")
    kind = keys.type
    if pa.types.is_floating(kind):
        return _encode_floats(keys)
    if is_text(kind) or is_bytes(kind):
        return _hash_bytes(keys)
    if _is_wide(kind):
        return _hash_wide_values(keys)
    return _encode_fixed_width(keys)


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind))


def _encode_floats(keys: pa.Array[Any]) -> NDArray[np.int64]:
    """Return the bits of each number, with a single NaN and a single zero."""
    values = keys.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # −0.0 + 0.0 is 0.0
    values[np.isnan(values)] = _CANONICAL_NAN
    return np.asarray(values).view(np.int64)


def _encode_fixed_width(keys: pa.Array[Any]) -> NDArray[np.int64]:
    kind = keys.type
    if pa.types.is_boolean(kind):
        keys = keys.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        keys = keys.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_integer(kind):
        raise QueryError(
            f"{kind} cannot be a join key", hint="join on numbers, strings, binary, booleans, dates or times"
        )
    values = np.asarray(keys.to_numpy(zero_copy_only=False))
    return values.view(np.int64) if values.dtype.itemsize == 8 else values.astype(np.int64)


def _hash_bytes(keys: pa.Array[Any]) -> NDArray[np.int64]:
    flat = keys.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = flat.buffers()
    offsets = view_buffer(offsets_buffer, np.int64)[flat.offset : flat.offset + len(flat) + 1]
    data = view_buffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else np.zeros(1, np.uint8)
    return hash_slices(data, offsets)


def _hash_wide_values(keys: pa.Array[Any]) -> NDArray[np.int64]:
    """Hash values of a fixed number of bytes.

    Both sides of an equality have the same type, so their bytes are equal exactly when their values are.
    """
    width = keys.type.bit_width // 8
    buffer = keys.buffers()[1]
    data = view_buffer(buffer, np.uint8)[keys.offset * width : (keys.offset + len(keys)) * width]
    offsets = np.arange(len(keys) + 1, dtype=np.int64) * width
    return hash_slices(np.ascontiguousarray(data) if data.size else np.zeros(1, np.uint8), offsets)


def compare_keys(left: pa.Array[Any], right: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return row by row whether two keys are equal. Needed only for types whose codes are hashes."""
    return np.asarray(pc.equal(left, right).to_numpy(zero_copy_only=False), np.bool_)

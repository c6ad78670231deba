"""Arrow types and arrays that not every supported version of pyarrow has, or that its stubs type wrongly.

The types are views of text and bytes, list views and narrow decimals. The calls make arrays, and numbers from buffers.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Since pyarrow 16.
TEXT_VIEWS: tuple[pa.DataType, ...] = (pa.string_view(),) if hasattr(pa, "string_view") else ()
BYTES_VIEWS: tuple[pa.DataType, ...] = (pa.binary_view(),) if hasattr(pa, "binary_view") else ()
_LIST_VIEW_TESTS = tuple(
    getattr(pa.types, name) for name in ("is_list_view", "is_large_list_view") if hasattr(pa.types, name)
)

#: Decimals of 32 and 64 bits, since pyarrow 19.
NARROW_DECIMALS: tuple[pa.DataType, ...] = (pa.decimal32(1), pa.decimal64(1)) if hasattr(pa, "decimal32") else ()
Number = TypeVar("Number", bound=np.generic)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds text, in any encoding.

    >>> [is_text(kind) for kind in (pa.string(), pa.large_string(), pa.binary())]
    [True, True, False]
    """
    return kind in (pa.string(), pa.large_string(), *TEXT_VIEWS)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes of any length, in any encoding."""
    return kind in (pa.binary(), pa.large_binary(), *BYTES_VIEWS)


def is_text_view(kind: pa.DataType) -> bool:
    return kind in TEXT_VIEWS


def is_bytes_view(kind: pa.DataType) -> bool:
    return kind in BYTES_VIEWS


def is_list_view(kind: pa.DataType) -> bool:
    """Return whether a type is a list view, of small or large lists."""
    return any(test(kind) for test in _LIST_VIEW_TESTS)


def null_array(length: int, kind: pa.DataType) -> pa.Array[Any]:
    """Return nulls of a type that is known only at runtime.

    >>> null_array(2, pa.string()).to_pylist()
    [None, None]
    """
    return cast("pa.Array[Any]", pa.nulls(length, cast("Any", kind)))  # the stubs list concrete types only


def index_array(rows: NDArray[np.integer[Any]]) -> pa.Array[Any]:
    """Return row numbers as an Arrow array, without a copy.

    >>> index_array(np.array([2, 0])).type
    DataType(int64)
    """
    return cast("pa.Array[Any]", pa.array(rows))  # the stubs take numpy arrays for booleans


def view_buffer(buffer: pa.Buffer | None, dtype: type[Number]) -> NDArray[Number]:
    """Return the contents of a buffer as numbers, without a copy.

    >>> view_buffer(pa.py_buffer(bytes([1, 2])), np.uint8).tolist()
    [1, 2]
    """
    return np.frombuffer(cast("memoryview", buffer), dtype)  # the stubs omit the buffer protocol

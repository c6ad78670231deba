"""Arrow arrays and buffers by calls that pyarrow's stubs type wrongly or too narrowly."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


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

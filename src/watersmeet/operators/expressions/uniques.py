"""Python functions over Arrow arrays, called once per distinct value instead of once per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.operators.expressions.rows import (
    Array,
    RowNumbers,
    call_kernel,
    find_null_rows,
    find_true_rows,
    to_arrow,
)


def map_unique(function: Callable[[Any], Any], values: Array, kind: pa.DataType) -> Array:
    """`function` of every value, NULL for NULL.

    >>> map_unique(str.upper, pa.array(["a", None, "a"]), pa.string()).to_pylist()
    ['A', None, 'A']
    """
    encoded = values.dictionary_encode()
    mapped: Array = pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind)
    return mapped.take(encoded.indices)


def map_unique_rows(function: Callable[..., Any], arrays: list[Array], kind: pa.DataType) -> Array:
    """`function` of every row of several arrays, NULL where any of them is NULL.

    >>> map_unique_rows(str.startswith, [pa.array(["ab", "ab"]), pa.array(["a", None])], pa.bool_()).to_pylist()
    [True, None]
    """
    nulls = find_null_rows(*arrays)
    present = np.flatnonzero(~nulls)
    encoded = [array.take(present).dictionary_encode() for array in arrays]
    first, code = _distinct_rows([column.indices.to_numpy(zero_copy_only=False) for column in encoded])
    samples = [column.dictionary.take(column.indices.take(first)).to_pylist() for column in encoded]
    mapped: Array = pa.array([function(*row) for row in zip(*samples, strict=True)], kind)
    place = np.zeros(len(nulls), np.int64)
    place[present] = code
    return mapped.take(to_arrow(place, nulls, pa.int64()))


def is_all_ascii(values: Array) -> bool:
    return bool(find_true_rows(call_kernel("coalesce", call_kernel("string_is_ascii", values), pa.scalar(True))).all())


def _distinct_rows(codes: list[Any]) -> tuple[RowNumbers, RowNumbers]:
    """The number of one row of each distinct combination of codes, and which combination each row has.

    Codes are folded from the left and made dense after each column, so that the product never leaves int64.
    """
    folded = np.zeros(len(codes[0]), np.int64)
    for column in codes:
        _, folded = np.unique(folded * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    _, first, code = np.unique(folded, return_index=True, return_inverse=True)
    return first, code

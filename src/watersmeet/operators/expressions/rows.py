"""Rows that an expression is evaluated on, and the ways in which evaluators call Arrow and Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.expressions import Column, Expr
from watersmeet.errors import InternalError, QueryError

Array: TypeAlias = "pa.Array[Any]"
Scalar: TypeAlias = "pa.Scalar[Any]"
#: A value per row, or one value for all rows (constants stay scalars as long as Arrow's kernels take them).
Datum: TypeAlias = "pa.Array[Any] | pa.Scalar[Any]"
Bools = npt.NDArray[np.bool_]
RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EvaluationRows:
    """`length` rows, their columns on demand, and the evaluator of every kind of node."""

    column: Callable[[Column], Array]
    length: int
    evaluators: Mapping[type[Expr], Callable[[Any, EvaluationRows], Datum]]

    def evaluate_datum(self, expr: Expr) -> Datum:
        """Return the expression's value, as a scalar if it is the same for all rows.

        Without rows there are no scalars either: an expression that no row reaches must not raise.
        """
        evaluator = self.evaluators.get(type(expr))
        if evaluator is None:
            raise InternalError(f"{type(expr).__name__} cannot be evaluated row by row")
        found = evaluator(expr, self)
        return found if self.length else broadcast(found, 0)

    def evaluate_array(self, expr: Expr) -> Array:
        """Return the expression's value as one array of `length` values."""
        return broadcast(self.evaluate_datum(expr), self.length)

    def evaluate_predicate(self, expr: Expr) -> Bools:
        """Return a mask of the rows on which the predicate is true. NULL is not true."""
        return find_true_rows(self.evaluate_array(expr))

    def select(self, numbers: RowNumbers) -> EvaluationRows:
        """Return the rows with these numbers, in this order. A column is gathered once, on first use."""
        if len(numbers) == self.length and (np.diff(numbers) == 1).all():
            return self
        picked: dict[Column, Array] = {}

        def column(reference: Column) -> Array:
            if reference not in picked:
                picked[reference] = self.column(reference).take(numbers)
            return picked[reference]

        return EvaluationRows(column, len(numbers), self.evaluators)


def call_kernel(function: str, *args: Datum, options: pc.FunctionOptions | None = None) -> Array:
    """Call an Arrow kernel by name. Its result is a scalar only if every argument is one.

    The published stubs miss some kernels and scalar arguments, so all kernels are called here and nowhere else.
    """
    found: Array = pc.call_function(function, list(args), options)
    return found


def broadcast(value: Datum, length: int) -> Array:
    """Return one value per row; a scalar is repeated."""
    if not isinstance(value, pa.Scalar):
        return value
    if not value.is_valid:
        return make_nulls(value.type, length)
    anything: Any = value  # the stubs list scalars by type, and this may be any
    repeated: Array = pa.repeat(anything, length)
    return repeated


def make_nulls(kind: Any, length: int) -> Array:
    """Return `length` NULLs of a type (typed `Any`, because the stubs list the types one by one)."""
    found: Array = pa.nulls(length, kind)
    return found


def constant_value(value: Datum) -> Any:
    """Return the Python value of a constant; None for NULL and for values that differ by row."""
    return value.as_py() if isinstance(value, pa.Scalar) else None


def find_true_rows(flags: Array) -> Bools:
    """Return a boolean array as numpy, with NULL as False."""
    if pa.types.is_null(flags.type):
        return np.zeros(len(flags), np.bool_)
    found: Bools = call_kernel("coalesce", flags, pa.scalar(False)).to_numpy(zero_copy_only=False)
    return found


def find_null_rows(*values: Array) -> Bools:
    """Return the rows in which any of the arrays is null."""
    found = np.zeros(len(values[0]), np.bool_)
    for array in values:
        if array.null_count:
            found |= call_kernel("is_null", array).to_numpy(zero_copy_only=False)
    return found


def to_int64(values: Array) -> RowNumbers:
    """Return the 64-bit integers (or times, or durations) of an array, 0 for null."""
    plain = values.view(pa.int64())
    filled: RowNumbers = call_kernel("coalesce", plain, pa.scalar(0)).to_numpy(zero_copy_only=False)
    return filled


def to_arrow(values: npt.NDArray[Any], nulls: Bools, kind: pa.DataType) -> Array:
    """Return a numpy array as Arrow, null where `nulls` is true."""
    return pa.array(values, type=kind, mask=nulls if nulls.any() else None)


def map_unique(function: Callable[[Any], Any], values: Array, kind: pa.DataType) -> Array:
    """Apply a Python function once per distinct value; NULL stays NULL.

    >>> map_unique(str.upper, pa.array(["a", None, "a"]), pa.string()).to_pylist()
    ['A', None, 'A']
    """
    encoded = values.dictionary_encode()
    mapped: Array = pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind)
    return mapped.take(encoded.indices)


def map_unique_rows(function: Callable[..., Any], arrays: list[Array], kind: pa.DataType) -> Array:
    """Apply a Python function once per distinct row of several arrays; NULL if any of them is NULL.

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
    """Return whether all strings are ASCII."""
    return bool(find_true_rows(call_kernel("coalesce", call_kernel("string_is_ascii", values), pa.scalar(True))).all())


def _distinct_rows(codes: list[Any]) -> tuple[RowNumbers, RowNumbers]:
    """Return one row number per distinct combination of codes, and the combination of each row.

    Codes are folded from the left and renumbered after each column, so that the product stays within int64.
    """
    folded = np.zeros(len(codes[0]), np.int64)
    for column in codes:
        _, folded = np.unique(folded * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    _, first, code = np.unique(folded, return_index=True, return_inverse=True)
    return first, code


def expression_excerpt(expr: Expr) -> str:
    """Return the expression as text for an error message, shortened if long."""
    from watersmeet.algebra.render import format_expression

    text = format_expression(expr)
    return text if len(text) <= 200 else text[:197] + "..."


def overflow_error(expr: Expr, noun: str = "integer") -> QueryError:
    """Return the error for a result that does not fit its type."""
    return QueryError(f"{noun} overflow in {expression_excerpt(expr)}", span=expr.span)

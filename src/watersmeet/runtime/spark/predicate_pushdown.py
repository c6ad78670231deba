"""Bound expressions as Spark columns, where the two mean the same to the last bit; None where they do not.

Spark agrees with us on three-valued logic, on NaN (equal to itself, above every number) and on −0.0 in comparisons. It
does not on overflow, division by zero, rounding, text in other alphabets, time zones or casts: those stay with the
operator. What is built here is built from the tree; no text of the caller's is ever parsed by Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.algebra.expressions import And, Between, Column, Comparison, Expr, In, IsNull, Literal, Not, Or, walk

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def translated(expr: Expr, schema: pa.Schema) -> SparkColumn | None:
    """The predicate as a column of the frame with this schema, or None where Spark would not mean the same by it."""
    if not all(_means_the_same(node, schema) for node in walk(expr)):
        return None
    return _column(expr)


def column_of(name: str) -> SparkColumn:
    """A column by its exact name, whatever signs are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def _means_the_same(node: Expr, schema: pa.Schema) -> bool:
    if isinstance(node, Column):
        return _is_plain(schema.field(node.name).type)
    if isinstance(node, Literal):
        return _is_plain(node.type) and node.value is not None
    return isinstance(node, Comparison | And | Or | Not | In | Between | IsNull)


def _is_plain(kind: pa.DataType) -> bool:
    tests = ("is_signed_integer", "is_float64", "is_boolean", "is_string", "is_date32")
    return any(getattr(pa.types, test)(kind) for test in tests)


def _column(expr: Expr) -> SparkColumn:
    return _BUILDERS[type(expr)](expr)


def _in(expr: In) -> SparkColumn:
    return reduce(lambda left, right: left | right, (_column(expr.arg) == _column(option) for option in expr.options))


def _between(expr: Between) -> SparkColumn:
    arg = _column(expr.arg)
    return (_column(expr.low) <= arg) & (arg <= _column(expr.high))


_BUILDERS: dict[type[Expr], Callable[[Any], SparkColumn]] = {
    Column: lambda e: column_of(e.name),
    Literal: lambda e: F.lit(e.value),
    Comparison: lambda e: _OPERATORS[e.op](_column(e.left), _column(e.right)),
    And: lambda e: reduce(lambda left, right: left & right, map(_column, e.args)),
    Or: lambda e: reduce(lambda left, right: left | right, map(_column, e.args)),
    Not: lambda e: ~_column(e.arg),
    In: _in,
    Between: _between,
    IsNull: lambda e: _column(e.arg).isNull(),
}

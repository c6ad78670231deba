"""Predicate pushdown: translate bound predicates to Spark columns where both give the same result to the last bit.

Spark agrees with us on three-valued logic, on NaN (equal to itself, above every number) and on −0.0 in comparisons. It
differs on overflow, division by zero, rounding, text in other alphabets, time zones and casts; our operator evaluates
those. Columns are built from the parsed tree. Spark never parses text of the caller.
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


def translate_predicate(expr: Expr, schema: pa.Schema) -> SparkColumn | None:
    """Translate a predicate over this schema to a Spark column; return None where Spark's result could differ."""
    if not all(_has_same_semantics(node, schema) for node in walk(expr)):
        return None
    return _translate(expr)


def quote_column(name: str) -> SparkColumn:
    """Return the column with exactly this name, whatever characters it contains."""
    return F.col("`" + name.replace("`", "``") + "`")


def _has_same_semantics(node: Expr, schema: pa.Schema) -> bool:
    if isinstance(node, Column):
        return _is_supported_type(schema.field(node.name).type)
    if isinstance(node, Literal):
        return _is_supported_type(node.type) and node.value is not None
    return isinstance(node, Comparison | And | Or | Not | In | Between | IsNull)


def _is_supported_type(kind: pa.DataType) -> bool:
    tests = ("is_signed_integer", "is_float64", "is_boolean", "is_string", "is_date32")
    return any(getattr(pa.types, test)(kind) for test in tests)


def _translate(expr: Expr) -> SparkColumn:
    return _BUILDERS[type(expr)](expr)


def _translate_in(expr: In) -> SparkColumn:
    return reduce(
        lambda left, right: left | right, (_translate(expr.arg) == _translate(option) for option in expr.options)
    )


def _translate_between(expr: Between) -> SparkColumn:
    arg = _translate(expr.arg)
    return (_translate(expr.low) <= arg) & (arg <= _translate(expr.high))


_BUILDERS: dict[type[Expr], Callable[[Any], SparkColumn]] = {
    Column: lambda e: quote_column(e.name),
    Literal: lambda e: F.lit(e.value),
    Comparison: lambda e: _OPERATORS[e.op](_translate(e.left), _translate(e.right)),
    And: lambda e: reduce(lambda left, right: left & right, map(_translate, e.args)),
    Or: lambda e: reduce(lambda left, right: left | right, map(_translate, e.args)),
    Not: lambda e: ~_translate(e.arg),
    In: _translate_in,
    Between: _translate_between,
    IsNull: lambda e: _translate(e.arg).isNull(),
}

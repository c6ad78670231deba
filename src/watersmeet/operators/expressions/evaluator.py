"""Evaluation of expressions: the two entry points, and the evaluators by kind of node and by function name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from watersmeet.algebra.expressions import (
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
)
from watersmeet.errors import InternalError
from watersmeet.operators.expressions import arithmetic, conditional, strings, temporal
from watersmeet.operators.expressions.arithmetic import evaluate_arithmetic, evaluate_negate
from watersmeet.operators.expressions.casts import evaluate_cast
from watersmeet.operators.expressions.compare import (
    evaluate_between,
    evaluate_comparison,
    evaluate_in,
    evaluate_is_null,
)
from watersmeet.operators.expressions.conditional import evaluate_and, evaluate_case, evaluate_not, evaluate_or
from watersmeet.operators.expressions.rows import Array, Bools, Datum, EvaluationRows
from watersmeet.operators.expressions.strings import evaluate_like


def evaluate(expr: Expr, columns: Callable[[Column], Array], length: int) -> Array:
    """Return the value of a bound expression for each of `length` rows, as one Arrow array.

    `columns` returns a column's values, one per row. The result is never chunked and never a scalar.

    >>> price = Column("price", source="a")
    >>> doubled = Arithmetic("*", price, Literal(2, pa.int64()))
    >>> evaluate(doubled, lambda column: pa.array([1, None, 3]), 3).to_pylist()
    [2, None, 6]
    """
    return EvaluationRows(columns, length, EVALUATORS).evaluate_array(expr)


def is_true(expr: Expr, columns: Callable[[Column], Array], length: int) -> Bools:
    """Return the rows for which a bound predicate is true. NULL is not true.

    >>> cheap = Comparison("<", Column("price", source="a"), Literal(3, pa.int64()))
    >>> is_true(cheap, lambda column: pa.array([1, None, 3]), 3)
    array([ True, False, False])
    """
    return EvaluationRows(columns, length, EVALUATORS).evaluate_predicate(expr)


def _evaluate_column(column: Column, rows: EvaluationRows) -> Datum:
    values = rows.column(column)
    if len(values) != rows.length:
        raise InternalError(f'column "{column.name}" has {len(values)} values for {rows.length} rows')
    return values


def _evaluate_literal(literal: Literal, rows: EvaluationRows) -> Datum:
    constant: Datum = pa.scalar(literal.value, literal.type)
    return constant


def evaluate_call(node: Call, rows: EvaluationRows) -> Datum:
    """Evaluate a function call."""
    function = FUNCTIONS.get(node.name)
    if function is None:
        raise InternalError(f"no evaluator for the function {node.name}")
    return function(node, rows)


EVALUATORS: Mapping[type[Expr], Callable[[Any, EvaluationRows], Datum]] = {
    Column: _evaluate_column,
    Literal: _evaluate_literal,
    Comparison: evaluate_comparison,
    Between: evaluate_between,
    In: evaluate_in,
    IsNull: evaluate_is_null,
    Like: evaluate_like,
    And: evaluate_and,
    Or: evaluate_or,
    Not: evaluate_not,
    Case: evaluate_case,
    Arithmetic: evaluate_arithmetic,
    Negate: evaluate_negate,
    Cast: evaluate_cast,
    Call: evaluate_call,
}


FUNCTIONS: Mapping[str, Callable[[Call, EvaluationRows], Datum]] = {
    "ABS": arithmetic.evaluate_abs,
    "FLOOR": arithmetic.evaluate_floor,
    "CEIL": arithmetic.evaluate_ceil,
    "ROUND": arithmetic.evaluate_round,
    "SQRT": arithmetic.evaluate_sqrt,
    "LOWER": strings.evaluate_lower,
    "UPPER": strings.evaluate_upper,
    "LENGTH": strings.evaluate_length,
    "TRIM": strings.evaluate_trim,
    "LTRIM": strings.evaluate_ltrim,
    "RTRIM": strings.evaluate_rtrim,
    "SUBSTRING": strings.evaluate_substring,
    "CONCAT": strings.evaluate_concat,
    "REPLACE": strings.evaluate_replace,
    "STARTS_WITH": strings.evaluate_starts_with,
    "ENDS_WITH": strings.evaluate_ends_with,
    "CONTAINS": strings.evaluate_contains,
    "COALESCE": conditional.evaluate_coalesce,
    "NULLIF": conditional.evaluate_nullif,
    "GREATEST": conditional.evaluate_greatest,
    "LEAST": conditional.evaluate_least,
    "YEAR": temporal.evaluate_year,
    "MONTH": temporal.evaluate_month,
    "DAY": temporal.evaluate_day,
    "HOUR": temporal.evaluate_hour,
    "MINUTE": temporal.evaluate_minute,
    "SECOND": temporal.evaluate_second,
    "DATE_TRUNC": temporal.evaluate_date_trunc,
    "TIME_BUCKET": temporal.evaluate_time_bucket,
}

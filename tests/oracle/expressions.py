"""Bound expressions over one row, with SQL's three-valued logic: None is NULL."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from tests.oracle.casts import cast
from tests.oracle.functions import FUNCTIONS
from tests.oracle.values import Duration, Instant, compare, literal_value, midnight_of
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
from watersmeet.errors import InternalError, QueryError

#: A row: its values by source alias and column name.
Row = Mapping[tuple[str, str], Any]

#: Enough digits for any product of two decimals, so that decimal arithmetic is exact.
_EXACT = decimal.Context(prec=200)
MAX_DIGITS = 38

_HOLDS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "<>": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def evaluate(expr: Expr, row: Row) -> Any:
    """Return the value of a bound expression on a row.

    >>> evaluate(Comparison("=", Column("k", "a"), Column("k", "b")), {("a", "k"): None, ("b", "k"): 1}) is None
    True
    """
    rule = _RULES.get(type(expr))
    if rule is None:
        raise InternalError(f"the oracle cannot evaluate {type(expr).__name__}")
    return rule(expr, row)


def _column(expr: Column, row: Row) -> Any:
    if expr.source is None:
        raise InternalError(f'column "{expr.name}" was never bound')
    return row[expr.source, expr.name]


def _literal(expr: Literal, row: Row) -> Any:
    return literal_value(expr.value)


def _comparison(expr: Comparison, row: Row) -> bool | None:
    return _compare_values(expr.op, evaluate(expr.left, row), evaluate(expr.right, row))


def _compare_values(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    return _HOLDS[op](compare(left, right))


def _and(expr: And, row: Row) -> bool | None:
    return _all_of(evaluate(arg, row) for arg in expr.args)


def _or(expr: Or, row: Row) -> bool | None:
    return _any_of(evaluate(arg, row) for arg in expr.args)


def _not(expr: Not, row: Row) -> bool | None:
    value = evaluate(expr.arg, row)
    return None if value is None else not value


def _all_of(truths: Iterable[bool | None]) -> bool | None:
    """Combine truth values from left to right, and stop at the first false.

    The values after it are not evaluated, so they cannot raise.
    """
    found: bool | None = True
    for truth in truths:
        if truth is False:
            return False
        found = None if truth is None else found
    return found


def _any_of(truths: Iterable[bool | None]) -> bool | None:
    found: bool | None = False
    for truth in truths:
        if truth is True:
            return True
        found = None if truth is None else found
    return found


def _in(expr: In, row: Row) -> bool | None:
    value, options = evaluate(expr.arg, row), [evaluate(option, row) for option in expr.options]
    return _any_of(_compare_values("=", value, option) for option in options)


def _between(expr: Between, row: Row) -> bool | None:
    value = evaluate(expr.arg, row)
    return _all_of(
        [_compare_values("<=", evaluate(expr.low, row), value), _compare_values("<=", value, evaluate(expr.high, row))]
    )


def _is_null(expr: IsNull, row: Row) -> bool:
    return evaluate(expr.arg, row) is None


def _like(expr: Like, row: Row) -> bool | None:
    value = evaluate(expr.arg, row)
    return None if value is None else matches_like(value, expr.pattern)


def matches_like(text: str, pattern: str) -> bool:
    """Match SQL LIKE, one character of the pattern at a time.

    >>> matches_like("10%", r"1_\\%"), matches_like("100", r"1_\\%")
    (True, False)
    """
    if not pattern:
        return not text
    sign, rest = pattern[0], pattern[1:]
    if sign == "%":
        return any(matches_like(text[skipped:], rest) for skipped in range(len(text) + 1))
    if sign == "\\" and rest:
        return text[:1] == rest[0] and matches_like(text[1:], rest[1:])
    return bool(text) and sign in ("_", text[0]) and matches_like(text[1:], rest)


def _case(expr: Case, row: Row) -> Any:
    for condition, value in expr.branches:
        if evaluate(condition, row) is True:
            return evaluate(value, row)
    return None if expr.default is None else evaluate(expr.default, row)


def _call(expr: Call, row: Row) -> Any:
    if expr.name == "COALESCE":
        return next((value for arg in expr.args if (value := evaluate(arg, row)) is not None), None)
    function = FUNCTIONS.get(expr.name)
    if function is None:
        raise InternalError(f"the oracle has no function {expr.name}")
    return function(*(evaluate(arg, row) for arg in expr.args))


def _cast(expr: Cast, row: Row) -> Any:
    return cast(evaluate(expr.arg, row), expr.type)


def _negate(expr: Negate, row: Row) -> Any:
    value = evaluate(expr.arg, row)
    if value is None:
        return None
    if isinstance(value, Duration):
        return Duration(-value.ns)
    return (
        check_int64(-value) if isinstance(value, int) else value.copy_negate() if isinstance(value, Decimal) else -value
    )


def _arithmetic(expr: Arithmetic, row: Row) -> Any:
    left, right = _moment(evaluate(expr.left, row)), _moment(evaluate(expr.right, row))
    if left is None or right is None:
        return None
    if isinstance(left, Instant | Duration) or isinstance(right, Instant | Duration):
        return _time_arithmetic(expr.op, left, right)
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        return _decimal_arithmetic(expr.op, left, right)
    result = _NUMBER_RULES[expr.op](left, right)
    return check_int64(result) if isinstance(result, int) else result


def _moment(value: Any) -> Any:
    """Return a date as its midnight, for arithmetic."""
    return midnight_of(value) if isinstance(value, dt.date) else value


def _divide(left: float, right: float) -> float | None:
    return None if right == 0 else left / right


def _remainder(left: Any, right: Any) -> Any:
    """Return the remainder of truncated division, which has the sign of the dividend."""
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) % abs(right) * (-1 if left < 0 else 1)
    return math.fmod(left, right) if math.isfinite(left) else math.nan


def _decimal_arithmetic(op: str, left: Any, right: Any) -> Decimal | None:
    if op in ("/", "%") and right == 0:
        return None
    rules: dict[str, Callable[[Any, Any], Decimal]] = {
        "+": _EXACT.add,
        "-": _EXACT.subtract,
        "*": _EXACT.multiply,
        "/": _EXACT.divide,
        "%": _EXACT.remainder,
    }
    return _check_decimal(rules[op](left, right))


def _check_decimal(value: Decimal) -> Decimal:
    """Refuse a sum, difference or product of more than 38 digits, those after the point included."""
    if len(value.as_tuple().digits) > MAX_DIGITS:
        raise QueryError(f"decimal overflow: {value} has more than {MAX_DIGITS} digits")
    return value


def _time_arithmetic(op: str, left: Any, right: Any) -> Any:
    """Compute with times: a time and a duration make a time; two times make a duration."""
    match op, left, right:
        case "-", Instant(a), Instant(b):
            return Duration(a - b)
        case "+", Instant(a), Duration(b):
            return Instant(a + b)
        case "+", Duration(a), Instant(b):
            return Instant(a + b)
        case "-", Instant(a), Duration(b):
            return Instant(a - b)
        case "+", Duration(a), Duration(b):
            return Duration(a + b)
        case "-", Duration(a), Duration(b):
            return Duration(a - b)
    raise InternalError(f"the oracle cannot compute {left!r} {op} {right!r}")


def check_int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise QueryError(f"integer overflow: {value} does not fit into 64 bits")
    return value


_NUMBER_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": _remainder,
}

_RULES: dict[type[Expr], Callable[[Any, Row], Any]] = {
    Column: _column,
    Literal: _literal,
    Comparison: _comparison,
    And: _and,
    Or: _or,
    Not: _not,
    In: _in,
    Between: _between,
    IsNull: _is_null,
    Like: _like,
    Case: _case,
    Call: _call,
    Cast: _cast,
    Negate: _negate,
    Arithmetic: _arithmetic,
}

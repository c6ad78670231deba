"""Types of expressions: the result types of operators, and the type of any bound expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from watersmeet.algebra.expressions import (
    Aggregate,
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
from watersmeet.algebra.query import BoundSource
from watersmeet.algebra.render import format_type
from watersmeet.errors import InternalError, QueryError
from watersmeet.sql.coercion import convert_to
from watersmeet.sql.functions import FUNCTIONS, resolve_aggregate_signature
from watersmeet.sql.types import (
    INSTANTS,
    MAX_DIGITS,
    NUMBERS,
    Family,
    TypedExpr,
    decimal_size,
    decimal_type,
    family_of,
    finest_unit,
    plain_type,
    span_of_all,
    unit_of,
)


def type_of(expr: Expr, sources: Sequence[BoundSource]) -> pa.DataType:
    """Return the type of a bound expression.

    >>> type_of(Comparison("=", Literal(1, pa.int64()), Literal(2, pa.int64())), [])
    DataType(bool)
    """
    return _type(expr, {source.alias: source.fields for source in sources})


def _type(expr: Expr, fields: Mapping[str, pa.Schema]) -> pa.DataType:
    return _TYPES[type(expr)](expr, fields)


def build_typed_arithmetic(op: str, left: TypedExpr, right: TypedExpr) -> TypedExpr:
    """Build `left op right` with both sides converted to types that the operator is defined on; the result has no span.

    >>> from watersmeet.algebra.render import format_expression
    >>> one, half = TypedExpr(Literal(1, pa.int64()), pa.int64()), TypedExpr(Literal(0.5, pa.float64()), pa.float64())
    >>> total = build_typed_arithmetic("+", one, half)
    >>> format_expression(total.expr), total.type
    ('1.0 + 0.5', DataType(double))
    """
    left_kind, right_kind = _operand_types(op, left, right)
    expr = Arithmetic(op, convert_to(left, left_kind), convert_to(right, right_kind))
    return TypedExpr(expr, arithmetic_result_type(op, left_kind, right_kind))


def arithmetic_result_type(op: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the result type of operands already converted; decimals grow as in Arrow."""
    if family_of(left) is Family.DECIMAL:
        first, second = cast("tuple[pa.Decimal128Type[Any, Any], pa.Decimal128Type[Any, Any]]", (left, right))
        return pa.decimal128(
            *_decimal_result_size(op, (first.precision, first.scale), (second.precision, second.scale))
        )
    if family_of(left) is Family.TIMESTAMP and family_of(right) is Family.TIMESTAMP:
        return pa.duration(unit_of(left))
    return right if family_of(left) is Family.DURATION else left


# --- arithmetic


def _operand_types(op: str, left: TypedExpr, right: TypedExpr) -> tuple[pa.DataType, pa.DataType]:
    left, right = _adapt_operand(op, left, right), _adapt_operand(op, right, left)
    families = {left.family, right.family}
    if families <= NUMBERS:
        return _number_operand_types(op, left, right, families)
    kinds = _time_operand_types(op, left, right)
    if kinds is None:
        raise _no_arithmetic_error(op, left, right)
    return kinds


def _adapt_operand(op: str, operand: TypedExpr, other: TypedExpr) -> TypedExpr:
    """Return the operand with the type that the other operand implies.

    NULL gets the other's type, or an interval where it is added to an instant. A string constant next to an instant
    becomes an instant.
    """
    if operand.family is Family.NULL:
        kind = pa.int64() if other.family is Family.NULL else plain_type(other.type)
        return TypedExpr(operand.expr, pa.duration("us") if op == "+" and other.family in INSTANTS else kind)
    if operand.is_string_constant and other.family in INSTANTS:
        return TypedExpr(operand.expr, pa.timestamp("us"))
    return TypedExpr(operand.expr, plain_type(operand.type))


def _number_operand_types(
    op: str, left: TypedExpr, right: TypedExpr, families: set[Family]
) -> tuple[pa.DataType, pa.DataType]:
    if op == "/" or Family.FLOAT in families:
        return pa.float64(), pa.float64()
    wide = [operand for operand in (left, right) if operand.family is Family.DECIMAL or operand.type == pa.uint64()]
    if not wide:
        return pa.int64(), pa.int64()
    if op == "%":
        raise QueryError(
            f"% takes integers and floating-point numbers, not a {format_type(wide[0].type)}",
            span=wide[0].span,
            hint="CAST it",
        )
    sizes = [decimal_size(operand) for operand in (left, right)]
    _refuse_too_many_digits(op, sizes, (left, right))
    return pa.decimal128(*sizes[0]), pa.decimal128(*sizes[1])


def _refuse_too_many_digits(op: str, sizes: list[tuple[int, int]], operands: tuple[TypedExpr, TypedExpr]) -> None:
    """Refuse a product that needs more digits after the point than a decimal has."""
    _, scale = _decimal_result_size(op, *sizes)
    if scale > MAX_DIGITS:
        decimal_type(scale, scale, operands)


def _decimal_result_size(op: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """Return the precision and the scale of an exact sum, difference or product.

    A result is exact, with at most 38 digits. One with more digits is an overflow, as with integers, so that
    SUM(a.price) * 2 is a decimal.
    """
    if op == "*":
        return min(left[0] + right[0] + 1, MAX_DIGITS), left[1] + right[1]
    scale = max(left[1], right[1])
    return min(max(left[0] - left[1], right[0] - right[1]) + scale + 1, MAX_DIGITS), scale


def _time_operand_types(op: str, left: TypedExpr, right: TypedExpr) -> tuple[pa.DataType, pa.DataType] | None:
    """Return the types for instant ± interval, interval + instant, instant - instant, interval ± interval."""
    if left.family in INSTANTS and right.family in INSTANTS and op == "-":
        kind = _common_instant(left.type, right.type)
        return kind, kind
    if right.family is Family.DURATION and op in {"+", "-"}:
        if left.family is Family.DURATION:
            unit = finest_unit(unit_of(left.type), unit_of(right.type))
            return pa.duration(unit), pa.duration(unit)
        if left.family in INSTANTS:
            return _shift_types(left.type, right.type)
    if left.family is Family.DURATION and right.family in INSTANTS and op == "+":
        instant, length = _shift_types(right.type, left.type)
        return length, instant
    return None


def _common_instant(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type in which two instants are subtracted: UTC, in microseconds or the finer unit of the two."""
    stamps = [kind for kind in (left, right) if isinstance(kind, pa.TimestampType)]
    unit = finest_unit("us", *(kind.unit for kind in stamps))
    return pa.timestamp(unit, "UTC") if any(kind.tz is not None for kind in stamps) else pa.timestamp(unit)


def _shift_types(instant: pa.DataType, length: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    stamp: pa.TimestampType[Any, Any] = instant if isinstance(instant, pa.TimestampType) else pa.timestamp("us")
    unit = finest_unit(stamp.unit, unit_of(length))
    return pa.timestamp(unit, stamp.tz), pa.duration(unit)


def _no_arithmetic_error(op: str, left: TypedExpr, right: TypedExpr) -> QueryError:
    hint: str | None = "CAST the string to a number"
    if left.family is Family.STRING and right.family is Family.STRING and op == "+":
        hint = "concatenate strings with ||"
    elif Family.STRING not in {left.family, right.family}:
        hint = None
    return QueryError(
        f"{format_type(left.type)} {op} {format_type(right.type)} is not defined",
        span=span_of_all((left, right)),
        hint=hint,
    )


# --- types of bound expressions


def _type_of_column(column: Column, fields: Mapping[str, pa.Schema]) -> pa.DataType:
    if column.source is None or column.source not in fields:
        raise InternalError(f'column "{column.name}" was never bound')
    kind: pa.DataType = fields[column.source].field(column.name).type
    return kind


def _type_of_arithmetic(expr: Arithmetic, fields: Mapping[str, pa.Schema]) -> pa.DataType:
    return arithmetic_result_type(expr.op, _type(expr.left, fields), _type(expr.right, fields))


def _type_of_call(call: Call, fields: Mapping[str, pa.Schema]) -> pa.DataType:
    _, kind = FUNCTIONS[call.name].resolve_signature(
        call.name, [TypedExpr(arg, _type(arg, fields)) for arg in call.args]
    )
    return kind


def _type_of_aggregate(expr: Aggregate, fields: Mapping[str, pa.Schema]) -> pa.DataType:
    _, kind = resolve_aggregate_signature(
        expr.function, None if expr.arg is None else TypedExpr(expr.arg, _type(expr.arg, fields))
    )
    return kind


def _type_of_boolean(expr: Expr, fields: Mapping[str, pa.Schema]) -> pa.DataType:
    return pa.bool_()


_TYPES: dict[type[Expr], Callable[[Any, Mapping[str, pa.Schema]], pa.DataType]] = {
    Column: _type_of_column,
    Literal: lambda expr, _: expr.type,
    **dict.fromkeys((Comparison, And, Or, Not, In, Between, Like, IsNull), _type_of_boolean),
    Arithmetic: _type_of_arithmetic,
    Negate: lambda expr, fields: _type(expr.arg, fields),
    Case: lambda expr, fields: _type(expr.branches[0][1], fields),
    Call: _type_of_call,
    Cast: lambda expr, _: expr.type,
    Aggregate: _type_of_aggregate,
}

"""Conversion of values to types: constants at once, everything else by a `Cast` that evaluators carry out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, cast

import pyarrow as pa

from watersmeet.algebra.expressions import Cast, Expr, Literal, Value
from watersmeet.algebra.render import format_type
from watersmeet.errors import QueryError, Span
from watersmeet.sql import literals
from watersmeet.sql.types import NUMBERS, Family, TypedExpr, common_type, family_of, plain_type, span_of_all


def convert_to(operand: TypedExpr, kind: pa.DataType) -> Expr:
    """Return the operand as a value of that type.

    >>> from watersmeet.algebra.expressions import Column
    >>> convert_to(TypedExpr(Literal(2, pa.int64()), pa.int64()), pa.float64())
    Literal(value=2.0, type=DataType(double))
    >>> convert_to(TypedExpr(Column("x", "a"), pa.int32()), pa.int64())
    Cast(arg=Column(name='x', source='a'), type=DataType(int64))
    """
    if operand.type == kind:
        return operand.expr
    if isinstance(operand.expr, Literal):
        constant = _convert_constant(operand.expr, kind)
        if constant is not None:
            return constant
    return Cast(operand.expr, kind, span=operand.span)


def check_cast(operand: TypedExpr, kind: pa.DataType) -> TypedExpr:
    """Return a CAST that the caller wrote, or refuse it if no value of the one family converts to the other."""
    source, target = operand.family, family_of(kind)
    if not (source is target or source is Family.NULL or {source, target} <= NUMBERS or (source, target) in _CASTS):
        raise QueryError(f"a {format_type(operand.type)} cannot be cast to {format_type(kind)}", span=operand.span)
    used = operand if plain_type(operand.type) == kind else convert_to_plain(operand)
    return TypedExpr(Cast(used.expr, kind, span=operand.span), kind)


_CASTS = {
    pair
    for one, other in (
        (Family.STRING, Family.BOOLEAN),
        (Family.STRING, Family.INTEGER),
        (Family.STRING, Family.DECIMAL),
        (Family.STRING, Family.FLOAT),
        (Family.STRING, Family.BINARY),
        (Family.STRING, Family.DATE),
        (Family.STRING, Family.TIMESTAMP),
        (Family.DATE, Family.TIMESTAMP),
        (Family.BOOLEAN, Family.INTEGER),
    )
    for pair in ((one, other), (other, one))
}


def convert_to_plain(operand: TypedExpr) -> TypedExpr:
    """Return the operand with the type that expressions use: see `types.plain_type`."""
    kind = plain_type(operand.type)
    return operand if kind == operand.type else TypedExpr(convert_to(operand, kind), kind)


def coerce_to_common_type(operands: Sequence[TypedExpr], context: str) -> tuple[list[Expr], pa.DataType]:
    """Return all operands as values of their common type, and the type; `context` names the place for the error.

    If all are NULL, the type is NULL, which every evaluator supports.
    """
    for operand in operands:
        if operand.family is Family.OTHER:
            raise QueryError(
                f"{context} cannot take a {format_type(operand.type)}",
                span=operand.span,
                hint="nested values do not compare",
            )
    kind = common_type(operands)
    if kind is None:
        raise _mismatch_error(operands, context)
    return [convert_to(operand, kind) for operand in operands], kind


def _mismatch_error(operands: Sequence[TypedExpr], context: str) -> QueryError:
    shown = list(dict.fromkeys(format_type(plain_type(operand.type)) for operand in operands))
    hint = "CAST one of them to the other's type"
    if any(operand.is_string_constant for operand in operands) and any(
        operand.family in NUMBERS for operand in operands
    ):
        hint = "write a number without quotes, or CAST the string to a number"
    return QueryError(f"{context} cannot combine {' and '.join(shown)}", span=span_of_all(operands), hint=hint)


def _convert_constant(literal: Literal, kind: pa.DataType) -> Literal | None:
    """Return the constant with that type, or None if only an evaluator can convert it."""
    if literal.value is None:
        return Literal(None, kind, span=literal.span)
    convert = _CONSTANTS.get(type(literal.value))
    value = None if convert is None else convert(literal.value, kind, literal.span)
    return None if value is None else Literal(value, kind, span=literal.span)


_EXACT = Context(prec=80)


def _convert_number(value: int | float | Decimal, kind: pa.DataType, span: Span | None) -> Value:
    if kind == pa.float64():
        return float(value)
    if family_of(kind) is Family.DECIMAL and not isinstance(value, float):
        scale = cast("pa.Decimal128Type[Any, Any]", kind).scale
        return Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return value if isinstance(value, int) and kind in {pa.int64(), pa.uint64()} else None


def _convert_instant(value: dt.date, kind: pa.DataType, span: Span | None) -> Value:
    """Convert a date or timestamp; dates and naive timestamps are in UTC."""
    if not isinstance(kind, pa.TimestampType):
        return None
    instant = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
    if kind.tz is None:
        return instant if instant.tzinfo is None else instant.astimezone(dt.UTC).replace(tzinfo=None)
    return instant.replace(tzinfo=dt.UTC) if instant.tzinfo is None else instant


def _convert_string(value: str, kind: pa.DataType, span: Span | None) -> Value:
    match family_of(kind):
        case Family.DATE:
            return literals.parse_date(value, span).value
        case Family.TIMESTAMP:
            read = literals.parse_timestamp(value, span).value
            assert isinstance(read, dt.datetime)
            return _convert_instant(read, kind, span)
        case Family.TIME:
            return literals.parse_time(value, span).value
    return None


_CONSTANTS: dict[type, Callable[[Any, pa.DataType, Span | None], Value]] = {
    int: _convert_number,
    float: _convert_number,
    Decimal: _convert_number,
    dt.date: _convert_instant,
    dt.datetime: _convert_instant,
    dt.timedelta: lambda value, kind, _: value if family_of(kind) is Family.DURATION else None,
    str: _convert_string,
}

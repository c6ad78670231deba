"""The scalar and aggregate functions: the arguments that each takes, their types, and the type of the result.

A scalar function that is not in this table does not exist: query text never reaches the function registry of Spark.
`operators.aggregate.functions` has a row for each aggregate too: how a group computes it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from watersmeet.algebra.expressions import Cast, Expr, Literal
from watersmeet.algebra.render import format_type
from watersmeet.errors import InternalError, QueryError, Span, listing
from watersmeet.sql.coercion import coerce_to_common_type, convert_to, convert_to_plain
from watersmeet.sql.types import (
    INSTANTS,
    NUMBERS,
    UINT64_AS_DECIMAL,
    Family,
    TypedExpr,
    decimal_size,
    finest_unit,
    plain_type,
    unit_of,
)

#: Units of DATE_TRUNC. A week begins on Monday.
TRUNCATED_UNITS = (
    "MICROSECOND",
    "MILLISECOND",
    "SECOND",
    "MINUTE",
    "HOUR",
    "DAY",
    "WEEK",
    "MONTH",
    "QUARTER",
    "YEAR",
)
_INTEGER_TIME_HINT = "TIME_BUCKET(60, a.seconds) truncates integers to multiples"

#: Arguments converted to the right types, and the type of the result.
Signature = tuple[list[Expr], pa.DataType]
#: The argument converted to the right type, and the type of the result.
AggregateTypes = tuple[Expr, pa.DataType]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function of `min_args` to `max_args` arguments (None: no limit).

    `resolve_signature` checks and converts the arguments and returns the type of the result.
    """

    name: str
    min_args: int
    max_args: int | None
    resolve_signature: Callable[[str, Sequence[TypedExpr]], Signature]

    def check_count(self, count: int, span: Span | None) -> None:
        if count < self.min_args or (self.max_args is not None and count > self.max_args):
            raise QueryError(f"{self.name} takes {self._describe_counts()}, not {count}", span=span)

    def _describe_counts(self) -> str:
        if self.max_args is None:
            return f"{self.min_args} or more arguments"
        if self.min_args == self.max_args:
            return "one argument" if self.max_args == 1 else f"{self.max_args} arguments"
        return f"{self.min_args} to {self.max_args} arguments"


# --- typing rules


def _type_absolute(name: str, args: Sequence[TypedExpr]) -> Signature:
    return _type_number(
        name, args[0], wide=plain_type(args[0].type) if args[0].family is Family.DECIMAL else UINT64_AS_DECIMAL
    )


def _type_rounded(name: str, args: Sequence[TypedExpr]) -> Signature:
    return _type_number(name, args[0], wide=pa.float64())


def _type_number(name: str, arg: TypedExpr, wide: pa.DataType) -> Signature:
    """Return the signature of a function of one number. `wide` is the type for decimals and for unsigned BIGINT."""
    match arg.family:
        case Family.INTEGER:
            kind = wide if plain_type(arg.type) == pa.uint64() else pa.int64()
        case Family.DECIMAL:
            kind = wide
        case Family.FLOAT | Family.NULL:
            kind = pa.float64()
        case _:
            raise _wrong_type_error(name, arg, "a number")
    return [convert_to(arg, kind)], kind


def _type_square_root(name: str, args: Sequence[TypedExpr]) -> Signature:
    if args[0].family not in {*NUMBERS, Family.NULL}:
        raise _wrong_type_error(name, args[0], "a number")
    return [convert_to(args[0], pa.float64())], pa.float64()


def _type_strings(result: pa.DataType) -> Callable[[str, Sequence[TypedExpr]], Signature]:
    def resolve_signature(name: str, args: Sequence[TypedExpr]) -> Signature:
        return [_string_argument(name, arg) for arg in args], result

    return resolve_signature


def _type_substring(name: str, args: Sequence[TypedExpr]) -> Signature:
    return [_string_argument(name, args[0]), *(_integer_argument(name, arg) for arg in args[1:])], pa.string()


def _type_common(name: str, args: Sequence[TypedExpr]) -> Signature:
    return coerce_to_common_type(args, name)


def _type_date_part(name: str, args: Sequence[TypedExpr]) -> Signature:
    """Return the signature of YEAR, MONTH, DAY, HOUR, MINUTE and SECOND. The parts are computed in UTC."""
    return [convert_to(args[0], _instant_type(name, args[0]))], pa.int64()


def _type_truncated_time(name: str, args: Sequence[TypedExpr]) -> Signature:
    """Return the signature of DATE_TRUNC: a unit as a string constant, and an instant. It truncates in UTC."""
    unit = args[0].expr
    if not isinstance(unit, Literal) or not isinstance(unit.value, str) or unit.value.upper() not in TRUNCATED_UNITS:
        raise QueryError(
            f"{name} takes a unit as its first argument",
            span=args[0].span,
            hint=f"units: {', '.join(repr(each.lower()) for each in TRUNCATED_UNITS)}",
        )
    kind = _instant_type(name, args[1])
    return [unit, convert_to(args[1], kind)], kind


def _type_time_bucket(name: str, args: Sequence[TypedExpr]) -> Signature:
    """Return the signature of TIME_BUCKET: a constant width and an instant, or two integers."""
    width, value = args
    constant = width.expr.arg if isinstance(width.expr, Cast) else width.expr
    is_number = width.family is Family.INTEGER and value.family in {Family.INTEGER, Family.NULL}
    if not isinstance(constant, Literal) or not (is_number or width.family is Family.DURATION):
        raise QueryError(
            f"{name} takes the width of a bucket as its first argument",
            span=width.span,
            hint="write TIME_BUCKET(INTERVAL 5 MINUTES, a.ts), or TIME_BUCKET(300, a.seconds) for integers",
        )
    if not _is_positive(constant.value):
        raise QueryError("the width of a time bucket must be positive", span=width.span)
    if is_number:
        return [convert_to(width, pa.int64()), convert_to(value, pa.int64())], pa.int64()
    kind = _instant_type(name, value)
    unit = finest_unit(unit_of(kind), unit_of(width.type))
    kind = pa.timestamp(unit, cast("pa.TimestampType[Any, Any]", kind).tz)
    return [convert_to(width, pa.duration(unit)), convert_to(value, kind)], kind


def _is_positive(width: object) -> bool:
    return width > dt.timedelta(0) if isinstance(width, dt.timedelta) else isinstance(width, int) and width > 0


def _instant_type(name: str, arg: TypedExpr) -> pa.DataType:
    """Return the type in which an instant is truncated: in UTC, a date as its midnight."""
    kind = plain_type(arg.type)
    if isinstance(kind, pa.TimestampType):
        return pa.timestamp(kind.unit, None if kind.tz is None else "UTC")
    if arg.family in {*INSTANTS, Family.NULL} or arg.is_string_constant:
        return pa.timestamp("us")
    raise _wrong_type_error(name, arg, "a date or timestamp", hint=_INTEGER_TIME_HINT if name == "DATE_TRUNC" else None)


def _string_argument(name: str, arg: TypedExpr) -> Expr:
    if arg.family not in {Family.STRING, Family.NULL}:
        raise _wrong_type_error(name, arg, "a string", hint="use CAST(… AS VARCHAR)")
    return convert_to(arg, pa.string())


def _integer_argument(name: str, arg: TypedExpr) -> Expr:
    if arg.family not in {Family.INTEGER, Family.NULL}:
        raise _wrong_type_error(name, arg, "an integer")
    return convert_to(arg, pa.int64())


def _wrong_type_error(name: str, arg: TypedExpr, expected: str, hint: str | None = None) -> QueryError:
    return QueryError(f"{name} takes {expected}, not a {format_type(arg.type)}", span=arg.span, hint=hint)


# --- the table

_STRING_TO_STRING = _type_strings(pa.string())
_STRINGS_TO_BOOLEAN = _type_strings(pa.bool_())

FUNCTIONS: dict[str, ScalarFunction] = {
    function.name: function
    for function in (
        ScalarFunction("ABS", 1, 1, _type_absolute),
        ScalarFunction("FLOOR", 1, 1, _type_rounded),
        ScalarFunction("CEIL", 1, 1, _type_rounded),
        ScalarFunction("ROUND", 1, 1, _type_rounded),
        ScalarFunction("SQRT", 1, 1, _type_square_root),
        ScalarFunction("LOWER", 1, 1, _STRING_TO_STRING),
        ScalarFunction("UPPER", 1, 1, _STRING_TO_STRING),
        ScalarFunction("LENGTH", 1, 1, _type_strings(pa.int64())),
        ScalarFunction("TRIM", 1, 1, _STRING_TO_STRING),
        ScalarFunction("LTRIM", 1, 1, _STRING_TO_STRING),
        ScalarFunction("RTRIM", 1, 1, _STRING_TO_STRING),
        ScalarFunction("SUBSTRING", 2, 3, _type_substring),
        ScalarFunction("CONCAT", 2, None, _STRING_TO_STRING),
        ScalarFunction("REPLACE", 3, 3, _STRING_TO_STRING),
        ScalarFunction("STARTS_WITH", 2, 2, _STRINGS_TO_BOOLEAN),
        ScalarFunction("ENDS_WITH", 2, 2, _STRINGS_TO_BOOLEAN),
        ScalarFunction("CONTAINS", 2, 2, _STRINGS_TO_BOOLEAN),
        ScalarFunction("COALESCE", 1, None, _type_common),
        ScalarFunction("NULLIF", 2, 2, _type_common),
        ScalarFunction("GREATEST", 2, None, _type_common),
        ScalarFunction("LEAST", 2, None, _type_common),
        ScalarFunction("YEAR", 1, 1, _type_date_part),
        ScalarFunction("MONTH", 1, 1, _type_date_part),
        ScalarFunction("DAY", 1, 1, _type_date_part),
        ScalarFunction("HOUR", 1, 1, _type_date_part),
        ScalarFunction("MINUTE", 1, 1, _type_date_part),
        ScalarFunction("SECOND", 1, 1, _type_date_part),
        ScalarFunction("DATE_TRUNC", 2, 2, _type_truncated_time),
        ScalarFunction("TIME_BUCKET", 2, 2, _type_time_bucket),
    )
}

SYNONYMS = {"CEILING": "CEIL", "SUBSTR": "SUBSTRING"}
EXTRACTED_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")

#: Functions that become other nodes: a conversion, a date part, a CASE, an operator.
_REWRITTEN = ("CAST", "EXTRACT", "IF", "MOD")


def list_callable_names() -> list[str]:
    """Return the names that a query can call."""
    return sorted({*FUNCTIONS, *SYNONYMS, *_REWRITTEN, *AGGREGATES})


def unknown_function_error(name: str, span: Span) -> QueryError:
    """Build the error for a function that does not exist, with a list of those that do."""
    shown = name if len(name) <= 60 else name[:57] + "..."
    return QueryError(
        f'there is no function "{shown}"',
        span=span,
        hint=f"existing functions: {listing(list_callable_names(), most=100)}",
    )


@dataclass(frozen=True, slots=True)
class AggregateSignature:
    """Typing rule of an aggregate, and whether it `counts_rows` when a star is its argument."""

    resolve: Callable[[str, TypedExpr], AggregateTypes]
    counts_rows: bool = False


def resolve_aggregate_signature(
    function: str, arg: TypedExpr | None, span: Span | None = None
) -> tuple[Expr | None, pa.DataType]:
    """Return the converted argument of an aggregate, and the type of its result."""
    signature = AGGREGATES.get(function)
    if signature is None:
        raise InternalError(f"{function!r} is no aggregate function")
    if arg is not None:
        return signature.resolve(function, arg)
    if not signature.counts_rows:
        raise QueryError(f"{function} needs an argument", span=span)
    return None, pa.int64()


def _type_count(function: str, arg: TypedExpr) -> AggregateTypes:
    return arg.expr, pa.int64()


def _type_sum(function: str, arg: TypedExpr) -> AggregateTypes:
    kind = arg.type if arg.family is Family.DURATION else _widest_number(function, arg)
    return convert_to(arg, kind), kind


def _type_average(function: str, arg: TypedExpr) -> AggregateTypes:
    return convert_to(arg, _widest_number(function, arg)), pa.float64()


def _type_extreme(function: str, arg: TypedExpr) -> AggregateTypes:
    _refuse_unordered(function, arg)
    used = convert_to_plain(arg)
    return used.expr, used.type


def _widest_number(function: str, arg: TypedExpr) -> pa.DataType:
    """Return the widest type of the argument's family: sums and averages add up in it."""
    _refuse_unordered(function, arg)
    match arg.family:
        case Family.INTEGER:
            return pa.decimal128(38, 0) if plain_type(arg.type) == pa.uint64() else pa.int64()
        case Family.DECIMAL:
            return pa.decimal128(38, decimal_size(arg)[1])
        case Family.FLOAT | Family.NULL:
            return pa.float64()
    hint = "COUNT the rows, or SUM(CASE WHEN … THEN 1 ELSE 0 END)" if arg.family is Family.BOOLEAN else None
    raise QueryError(f"{function} takes a number, not a {format_type(arg.type)}", span=arg.span, hint=hint)


def _refuse_unordered(function: str, arg: TypedExpr) -> None:
    if arg.family is Family.OTHER:
        raise QueryError(f"{function} cannot take a {format_type(arg.type)}", span=arg.span)


AGGREGATES: dict[str, AggregateSignature] = {
    "COUNT": AggregateSignature(_type_count, counts_rows=True),
    "SUM": AggregateSignature(_type_sum),
    "AVG": AggregateSignature(_type_average),
    "MIN": AggregateSignature(_type_extreme),
    "MAX": AggregateSignature(_type_extreme),
}

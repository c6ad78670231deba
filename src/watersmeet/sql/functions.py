"""The scalar functions of the language: how many arguments each takes, what types they are brought to, and what type
comes back.

A function that is not in this table does not exist: query text never reaches Spark's own function registry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.algebra.expressions import AGGREGATES, Expr
from watersmeet.algebra.render import type_text
from watersmeet.errors import QueryError, Span, listing
from watersmeet.sql.coercion import converted, unified
from watersmeet.sql.types import INSTANTS, NUMBERS, UINT64_AS_DECIMAL, Family, Typed, plain

#: Arguments as values of the right types, and the type of the result.
Signature = tuple[list[Expr], pa.DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """`fewest` to `most` arguments (None: any number); `sign` checks and converts them."""

    name: str
    fewest: int
    most: int | None
    sign: Callable[[str, Sequence[Typed]], Signature]

    def check_count(self, count: int, span: Span | None) -> None:
        if count < self.fewest or (self.most is not None and count > self.most):
            raise QueryError(f"{self.name} takes {self._wanted()}, not {count}", span=span)

    def _wanted(self) -> str:
        if self.most is None:
            return f"{self.fewest} or more arguments"
        if self.fewest == self.most:
            return "one argument" if self.most == 1 else f"{self.most} arguments"
        return f"{self.fewest} to {self.most} arguments"


# --- typing rules
# -----------------------------------------------------------------------------------------------------------------------


def _absolute(name: str, args: Sequence[Typed]) -> Signature:
    return _number(name, args[0], wide=plain(args[0].type) if args[0].family is Family.DECIMAL else UINT64_AS_DECIMAL)


def _rounded(name: str, args: Sequence[Typed]) -> Signature:
    return _number(name, args[0], wide=pa.float64())


def _number(name: str, arg: Typed, wide: pa.DataType) -> Signature:
    """Integers stay integers, floats floats; `wide` is for decimals and the integers that BIGINT does not hold."""
    match arg.family:
        case Family.INTEGER:
            kind = wide if plain(arg.type) == pa.uint64() else pa.int64()
        case Family.DECIMAL:
            kind = wide
        case Family.FLOAT | Family.NULL:
            kind = pa.float64()
        case _:
            raise _wrong(name, arg, "a number")
    return [converted(arg, kind)], kind


def _square_root(name: str, args: Sequence[Typed]) -> Signature:
    if args[0].family not in {*NUMBERS, Family.NULL}:
        raise _wrong(name, args[0], "a number")
    return [converted(args[0], pa.float64())], pa.float64()


def _of_strings(result: pa.DataType) -> Callable[[str, Sequence[Typed]], Signature]:
    def sign(name: str, args: Sequence[Typed]) -> Signature:
        return [_string(name, arg) for arg in args], result

    return sign


def _substring(name: str, args: Sequence[Typed]) -> Signature:
    return [_string(name, args[0]), *(_integer(name, arg) for arg in args[1:])], pa.string()


def _common(name: str, args: Sequence[Typed]) -> Signature:
    return unified(args, name)


def _date_part(name: str, args: Sequence[Typed]) -> Signature:
    """Parts are those of the instant in UTC."""
    arg = args[0]
    kind = plain(arg.type)
    if isinstance(kind, pa.TimestampType):
        kind = pa.timestamp(kind.unit, None if kind.tz is None else "UTC")
    elif arg.family in {*INSTANTS, Family.NULL} or arg.is_string_constant:
        kind = pa.timestamp("us")
    else:
        raise _wrong(name, arg, "a date or timestamp")
    return [converted(arg, kind)], pa.int64()


def _string(name: str, arg: Typed) -> Expr:
    if arg.family not in {Family.STRING, Family.NULL}:
        raise _wrong(name, arg, "a string", hint="CAST(… AS VARCHAR) makes one")
    return converted(arg, pa.string())


def _integer(name: str, arg: Typed) -> Expr:
    if arg.family not in {Family.INTEGER, Family.NULL}:
        raise _wrong(name, arg, "an integer")
    return converted(arg, pa.int64())


def _wrong(name: str, arg: Typed, wanted: str, hint: str | None = None) -> QueryError:
    return QueryError(f"{name} takes {wanted}, not a {type_text(arg.type)}", span=arg.span, hint=hint)


# --- the table
# --------------------------------------------------------------------------------------------------------------------------

_STRING_TO_STRING = _of_strings(pa.string())
_STRINGS_TO_BOOLEAN = _of_strings(pa.bool_())

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        Function("ABS", 1, 1, _absolute),
        Function("FLOOR", 1, 1, _rounded),
        Function("CEIL", 1, 1, _rounded),
        Function("ROUND", 1, 1, _rounded),
        Function("SQRT", 1, 1, _square_root),
        Function("LOWER", 1, 1, _STRING_TO_STRING),
        Function("UPPER", 1, 1, _STRING_TO_STRING),
        Function("LENGTH", 1, 1, _of_strings(pa.int64())),
        Function("TRIM", 1, 1, _STRING_TO_STRING),
        Function("LTRIM", 1, 1, _STRING_TO_STRING),
        Function("RTRIM", 1, 1, _STRING_TO_STRING),
        Function("SUBSTRING", 2, 3, _substring),
        Function("CONCAT", 2, None, _STRING_TO_STRING),
        Function("REPLACE", 3, 3, _STRING_TO_STRING),
        Function("STARTS_WITH", 2, 2, _STRINGS_TO_BOOLEAN),
        Function("ENDS_WITH", 2, 2, _STRINGS_TO_BOOLEAN),
        Function("CONTAINS", 2, 2, _STRINGS_TO_BOOLEAN),
        Function("COALESCE", 1, None, _common),
        Function("NULLIF", 2, 2, _common),
        Function("GREATEST", 2, None, _common),
        Function("LEAST", 2, None, _common),
        Function("YEAR", 1, 1, _date_part),
        Function("MONTH", 1, 1, _date_part),
        Function("DAY", 1, 1, _date_part),
        Function("HOUR", 1, 1, _date_part),
        Function("MINUTE", 1, 1, _date_part),
        Function("SECOND", 1, 1, _date_part),
    )
}

SYNONYMS = {"CEILING": "CEIL", "SUBSTR": "SUBSTRING"}
EXTRACTED_UNITS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")

#: Functions that become other nodes: a conversion, a date part, a CASE, an operator.
_REWRITTEN = ("CAST", "EXTRACT", "IF", "MOD")

CALLABLE = frozenset([*FUNCTIONS, *SYNONYMS, *_REWRITTEN, *AGGREGATES])


def unknown_function(name: str, span: Span) -> QueryError:
    shown = name if len(name) <= 60 else name[:57] + "..."
    return QueryError(
        f'there is no function "{shown}"', span=span, hint=f"existing functions: {listing(sorted(CALLABLE), most=100)}"
    )

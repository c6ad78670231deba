"""Families of Arrow types, the common type of several values, and the names of types in CAST.

Types combine as follows; all other combinations are refused.

- Types of one kind need no conversion. NULL takes the other's type.
- Integers combine to BIGINT; an unsigned 64-bit integer and a signed one to DECIMAL(20, 0).
- Integers and decimals, or several decimals, combine to the decimal that loses no digit before or after the point.
- Any number and a FLOAT or DOUBLE combine to DOUBLE.
- Strings of every encoding combine to VARCHAR, binaries to BINARY. A dictionary-encoded column has the type it encodes.
- A date and a timestamp combine to a timestamp, timestamps of different units to the finest. A naive timestamp is in
  UTC and combines with a zoned one there.
- A string constant next to a date, timestamp or time is parsed as one.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, cast

import pyarrow as pa

from watersmeet.algebra.arrow_types import BYTES_VIEWS, NARROW_DECIMALS, TEXT_VIEWS
from watersmeet.algebra.expressions import Expr, Literal
from watersmeet.algebra.render import format_type
from watersmeet.errors import QueryError, Span


class Family(Enum):
    """Families of types, with the text for error messages."""

    NULL = "NULL"
    BOOLEAN = "a boolean"
    INTEGER = "an integer"
    DECIMAL = "a decimal"
    FLOAT = "a floating-point number"
    STRING = "a string"
    BINARY = "binary"
    DATE = "a date"
    TIMESTAMP = "a timestamp"
    TIME = "a time of day"
    DURATION = "an interval"
    OTHER = "a nested value"


NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOAT})
INSTANTS = frozenset({Family.DATE, Family.TIMESTAMP})

TimeUnit: TypeAlias = typing.Literal["s", "ms", "us", "ns"]
_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")

_FAMILY_TYPES: dict[Family, list[pa.DataType]] = {
    Family.NULL: [pa.null()],
    Family.BOOLEAN: [pa.bool_()],
    Family.INTEGER: [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    ],
    Family.DECIMAL: [*NARROW_DECIMALS, pa.decimal128(1), pa.decimal256(1)],
    Family.FLOAT: [pa.float16(), pa.float32(), pa.float64()],
    Family.STRING: [pa.string(), pa.large_string(), *TEXT_VIEWS],
    Family.BINARY: [pa.binary(), pa.large_binary(), *BYTES_VIEWS, pa.binary(1)],
    Family.DATE: [pa.date32(), pa.date64()],
    Family.TIMESTAMP: [pa.timestamp("us")],
    Family.TIME: [pa.time32("s"), pa.time64("us")],
    Family.DURATION: [pa.duration("us")],
}
_FAMILIES: dict[int, Family] = {kind.id: family for family, kinds in _FAMILY_TYPES.items() for kind in kinds}
_ONE_TYPE: dict[Family, pa.DataType] = {
    Family.STRING: pa.string(),
    Family.BINARY: pa.binary(),
    Family.DATE: pa.date32(),
}
_INTEGER_DIGITS: dict[int, int] = {
    **{kind.id: 3 for kind in (pa.int8(), pa.uint8())},
    **{kind.id: 5 for kind in (pa.int16(), pa.uint16())},
    **{kind.id: 10 for kind in (pa.int32(), pa.uint32())},
    pa.int64().id: 19,
    pa.uint64().id: 20,
}
_UNSIGNED = frozenset(kind.id for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()))
UINT64_AS_DECIMAL = pa.decimal128(20, 0)


@dataclass(frozen=True, slots=True)
class TypedExpr:
    """An expression and its type."""

    expr: Expr
    type: pa.DataType

    @property
    def span(self) -> Span | None:
        return self.expr.span

    @property
    def family(self) -> Family:
        return family_of(self.type)

    @property
    def is_string_constant(self) -> bool:
        return isinstance(self.expr, Literal) and isinstance(self.expr.value, str)


def family_of(kind: pa.DataType) -> Family:
    """Return the family of a type; a dictionary has the family of its values.

    >>> family_of(pa.uint8()), family_of(pa.dictionary(pa.int32(), pa.string()))
    (<Family.INTEGER: 'an integer'>, <Family.STRING: 'a string'>)
    """
    if isinstance(kind, pa.DictionaryType):
        return family_of(kind.value_type)
    return _FAMILIES.get(kind.id, Family.OTHER)


def has_order(kind: pa.DataType) -> bool:
    """Return whether values of the type have an order: all but unions and calendar intervals, alone or nested.

    >>> has_order(pa.list_(pa.int64())), has_order(pa.list_(pa.month_day_nano_interval()))
    (True, False)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return has_order(kind.storage_type)
    if pa.types.is_union(kind) or pa.types.is_interval(kind):
        return False
    return all(has_order(kind.field(number).type) for number in range(kind.num_fields))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that expressions use for a type.

    It has one encoding of strings, binaries and dates, decimals of 128 bits, and no half floats or dictionaries.

    >>> plain_type(pa.dictionary(pa.int32(), pa.large_string()))
    DataType(string)
    """
    if isinstance(kind, pa.DictionaryType):
        return plain_type(kind.value_type)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.float32() if kind == pa.float16() else _ONE_TYPE.get(family_of(kind), kind)


def common_type(operands: Sequence[TypedExpr]) -> pa.DataType | None:
    """Return the type that all operands are converted to, or None if there is none.

    String constants do not count as long as the others agree on a type that can be parsed from a string.
    """
    others = [operand for operand in operands if operand.family is not Family.NULL and not operand.is_string_constant]
    constants = [operand for operand in operands if operand.is_string_constant]
    if not others:
        return pa.string() if constants else pa.null()
    agreed = _combine_types(others)
    return agreed if agreed is None or not constants else _type_of_strings(agreed, constants)


def _type_of_strings(kind: pa.DataType, constants: Sequence[TypedExpr]) -> pa.DataType | None:
    """Return the type for string constants; fractions of a second need a unit that holds them."""
    has_fraction = any(isinstance(c.expr, Literal) and "." in str(c.expr.value) for c in constants)
    match family_of(kind):
        case Family.STRING | Family.DATE:
            return kind
        case Family.TIMESTAMP:
            stamp = cast("pa.TimestampType[Any, Any]", kind)
            return pa.timestamp(finest_unit(stamp.unit, "us"), stamp.tz) if has_fraction else kind
        case Family.TIME:
            return _time_type(finest_unit(unit_of(kind), "us")) if has_fraction else kind
    return None


def _combine_types(operands: Sequence[TypedExpr]) -> pa.DataType | None:
    kinds = [plain_type(operand.type) for operand in operands]
    if all(kind == kinds[0] for kind in kinds[1:]):
        return kinds[0]
    families = {family_of(kind) for kind in kinds}
    if families <= NUMBERS:
        return _common_number(operands, families)
    if families <= INSTANTS:
        return common_timestamp(kinds)
    if families == {Family.TIME}:
        return _time_type(finest_unit(*(unit_of(kind) for kind in kinds)))
    if families == {Family.DURATION}:
        return pa.duration(finest_unit(*(unit_of(kind) for kind in kinds)))
    return None


def _time_type(unit: TimeUnit) -> pa.DataType:
    match unit:
        case "s" | "ms":
            return pa.time32(unit)
        case "us" | "ns":
            return pa.time64(unit)


def common_timestamp(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the timestamp type that dates and timestamps are converted to.

    >>> common_timestamp([pa.date32(), pa.timestamp("ms"), pa.timestamp("s", "Europe/Paris")])
    TimestampType(timestamp[ms, tz=UTC])
    """
    stamps = [kind for kind in kinds if isinstance(kind, pa.TimestampType)]
    zones: set[Any] = {kind.tz for kind in stamps}
    zone = zones.pop() if len(zones) == 1 else "UTC"
    return pa.timestamp(finest_unit(*(kind.unit for kind in stamps)), zone)


def unit_of(kind: pa.DataType) -> TimeUnit:
    """Return the unit of a timestamp, time or duration.

    >>> unit_of(pa.duration("ms"))
    'ms'
    """
    unit: TimeUnit = cast("pa.TimestampType[Any, Any]", kind).unit
    return unit


def finest_unit(*units: TimeUnit) -> TimeUnit:
    """Return the finest of some units of time.

    >>> finest_unit("s", "us", "ms")
    'us'
    """
    return max(units, key=_UNITS.index)


def _common_number(operands: Sequence[TypedExpr], families: set[Family]) -> pa.DataType:
    if Family.FLOAT in families:
        return pa.float64()
    if Family.DECIMAL in families:
        sizes = [decimal_size(operand) for operand in operands]
        scale = max(scale for _, scale in sizes)
        return decimal_type(max(precision - scale for precision, scale in sizes) + scale, scale, operands)
    if any(operand.type == pa.uint64() for operand in operands):
        return UINT64_AS_DECIMAL if any(_may_be_negative(operand) for operand in operands) else pa.uint64()
    return pa.int64()


def decimal_type(precision: int, scale: int, operands: Sequence[TypedExpr]) -> pa.DataType:
    """Return a decimal type of that size, or refuse one with too many digits."""
    if precision <= MAX_DIGITS:
        return pa.decimal128(precision, scale)
    shown = " and ".join(format_type(plain_type(operand.type)) for operand in operands[:3])
    raise QueryError(
        f"{shown} together need a DECIMAL of {precision} digits; {MAX_DIGITS} is the most",
        span=span_of_all(operands),
        hint="CAST one of them to DOUBLE or to a smaller DECIMAL",
    )


def decimal_size(operand: TypedExpr) -> tuple[int, int]:
    """Return the precision and the scale of the decimal type that holds the number.

    The precision of an integer constant is the number of its digits.
    """
    if isinstance(operand.expr, Literal) and isinstance(operand.expr.value, int):
        return len(str(abs(operand.expr.value))), 0
    kind = operand.type
    if family_of(kind) is Family.INTEGER:
        return _INTEGER_DIGITS[plain_type(kind).id], 0
    decimal = cast("pa.Decimal128Type[Any, Any]", plain_type(kind))
    return decimal.precision, decimal.scale


def _may_be_negative(operand: TypedExpr) -> bool:
    if isinstance(operand.expr, Literal) and isinstance(operand.expr.value, int):
        return operand.expr.value < 0
    return plain_type(operand.type).id not in _UNSIGNED


def span_of_all(operands: Sequence[TypedExpr]) -> Span | None:
    """Return the span from the first operand to the last."""
    spans = [operand.span for operand in operands if operand.span is not None]
    return spans[0].to(spans[-1]) if spans else None


MAX_DIGITS = 38

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "BINARY": pa.binary(),
}


def parse_type_name(name: str, sizes: list[str], span: Span) -> pa.DataType:
    """Return the Arrow type of a type name.

    >>> parse_type_name("decimal", ["10", "2"], Span(0, 0))
    Decimal128Type(decimal128(10, 2))
    """
    upper = name.upper()
    if upper == "DECIMAL":
        return _parse_decimal(sizes, span)
    if upper not in TYPES:
        raise QueryError(
            f'there is no type "{name[:40]}"', span=span, hint=f"types: {', '.join([*TYPES, 'DECIMAL(p, s)'])}"
        )
    if sizes:
        raise QueryError(f"{upper} takes no size", span=span)
    return TYPES[upper]


def _parse_decimal(sizes: list[str], span: Span) -> pa.DataType:
    numbers = [int(size) for size in sizes if size.isdecimal()]
    if len(numbers) == len(sizes) and 1 <= len(numbers) <= 2:
        precision, scale = numbers[0], numbers[1] if len(numbers) == 2 else 0
        if 1 <= precision <= MAX_DIGITS and scale <= precision:
            return pa.decimal128(precision, scale)
    raise QueryError(
        "DECIMAL takes a precision and a scale",
        span=span,
        hint=f"write it like DECIMAL(10, 2); {MAX_DIGITS} digits at most",
    )

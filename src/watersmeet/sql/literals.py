"""Constants: from the text of a number, date, instant or length to a value with its Arrow type."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal

import pyarrow as pa

from watersmeet.algebra.expressions import Literal
from watersmeet.algebra.windows import MAX_LENGTH_US, UNITS_US
from watersmeet.errors import QueryError, Span

INT64 = range(-(2**63), 2**63)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", re.ASCII)
_TIMESTAMP = re.compile(rf"{_DATE.pattern}([ T]{_TIME.pattern}(Z|[+-]\d{{2}}:\d{{2}})?)?", re.ASCII)
_QUANTITY = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def parse_number(text: str, span: Span | None) -> Literal:
    """Parse an integer as BIGINT, or as DECIMAL if it does not fit; with a point or an exponent it is a DOUBLE.

    >>> parse_number("42", None).type, parse_number("1.5", None).type
    (DataType(int64), DataType(double))
    >>> parse_number("18446744073709551615", None).type
    Decimal128Type(decimal128(20, 0))
    """
    if text.isdecimal():
        return integer_literal(int(text), span)
    try:
        value = float(text)
    except ValueError:
        raise QueryError("this is not a number", span=span) from None
    if math.isinf(value):
        raise QueryError("this number is too large for a DOUBLE", span=span)
    return Literal(value, pa.float64(), span=span)


def integer_literal(value: int, span: Span | None) -> Literal:
    if value in INT64:
        return Literal(value, pa.int64(), span=span)
    digits = len(str(abs(value)))
    if digits > 38:
        raise QueryError(
            f"an integer of {digits} digits is too large", span=span, hint="38 digits at most; write 1e50 for a DOUBLE"
        )
    return Literal(Decimal(value), pa.decimal128(digits, 0), span=span)


def negate(literal: Literal, span: Span | None) -> Literal:
    """Return the literal with a minus sign before it.

    >>> negate(parse_number("9223372036854775808", None), None).type
    DataType(int64)
    """
    match literal.value:
        case Decimal() as value:
            return integer_literal(-int(value), span)
        case int() | float() as value:
            return Literal(-value, literal.type, span=span)
    raise AssertionError("only numbers are written with a sign")


def parse_date(text: str, span: Span | None) -> Literal:
    try:
        if _DATE.fullmatch(text):
            return Literal(dt.date.fromisoformat(text), pa.date32(), span=span)
    except ValueError:
        pass
    raise QueryError("this is not a date", span=span, hint="write it like DATE '2024-12-31'")


def parse_timestamp(text: str, span: Span | None) -> Literal:
    """Parse a timestamp; with an offset it is zoned and kept in UTC.

    >>> parse_timestamp("2024-12-31 23:59:59+01:00", None).value
    datetime.datetime(2024, 12, 31, 22, 59, 59, tzinfo=datetime.timezone.utc)
    """
    try:
        if _TIMESTAMP.fullmatch(text):
            value = dt.datetime.fromisoformat(text)
            if value.tzinfo is None:
                return Literal(value, pa.timestamp("us"), span=span)
            return Literal(value.astimezone(dt.UTC), pa.timestamp("us", "UTC"), span=span)
    except (ValueError, OverflowError):
        pass
    raise QueryError("this is not a timestamp", span=span, hint="write it like TIMESTAMP '2024-12-31 23:59:59.5'")


def parse_time(text: str, span: Span | None) -> Literal:
    try:
        if _TIME.fullmatch(text):
            return Literal(dt.time.fromisoformat(text), pa.time64("us"), span=span)
    except ValueError:
        pass
    raise QueryError("this is not a time of day", span=span, hint="write it like '23:59:59.5'")


def interval_literal(length_us: int, span: Span | None) -> Literal:
    if abs(length_us) > MAX_LENGTH_US:
        raise QueryError("this interval is too long", span=span, hint="the longest is about 18,000 years")
    return Literal(dt.timedelta(microseconds=length_us), pa.duration("us"), span=span)


def parse_length_us(quantity: str, unit: str, *, number: Span, unit_span: Span) -> int:
    """Parse a length in microseconds.

    >>> here = Span(0, 0)
    >>> parse_length_us("0.5", "seconds", number=here, unit_span=here)
    500000
    """
    size_us = UNITS_US.get(unit.upper()) or UNITS_US.get(unit.upper().removesuffix("S"))
    if size_us is None:
        raise QueryError(f'"{unit[:40]}" is not a unit of time', span=unit_span, hint=f"units: {', '.join(UNITS_US)}")
    if not _QUANTITY.fullmatch(quantity):
        raise QueryError("a length is a number and a unit, like 10 SECONDS", span=number)
    exact = Decimal(quantity)
    if exact.adjusted() > 25:  # before any arithmetic: 1e999999999 written out would fill the memory
        raise QueryError("this length is too long", span=number, hint="the longest is about 18,000 years")
    length_us = exact * size_us
    if (exact and exact.adjusted() < -25) or length_us != length_us.to_integral_value():
        raise QueryError("a length is a whole number of microseconds", span=number)
    return int(length_us)


#: Words that make a date or a timestamp of the string after them.
DATE_OR_TIMESTAMP = {"DATE": parse_date, "TIMESTAMP": parse_timestamp}

"""The scalar functions of the query language on Python values; COALESCE, which stops early, is in `expressions`."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import wraps
from typing import Any

from tests.oracle.values import EPOCH, Instant, compare, datetime_of, midnight_of
from watersmeet.errors import QueryError

_EXACT = Context(prec=200)


def null_if_any_null(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function return NULL if any argument is NULL."""

    @wraps(function)
    def call_unless_null(*args: Any) -> Any:
        return None if any(arg is None for arg in args) else function(*args)

    return call_unless_null


@null_if_any_null
def absolute(value: Any) -> Any:
    if value == -(2**63) and isinstance(value, int):
        raise QueryError(f"integer overflow: ABS({value}) does not fit into 64 bits")
    return value.copy_abs() if isinstance(value, Decimal) else abs(value)


@null_if_any_null
def floor(value: Any) -> Any:
    return _round_to_integer(value, math.floor, ROUND_FLOOR)


@null_if_any_null
def ceil(value: Any) -> Any:
    return _round_to_integer(value, math.ceil, ROUND_CEILING)


@null_if_any_null
def round_half_away(value: Any) -> Any:
    """Round to the nearest integer, halves away from zero."""
    return _round_to_integer(value, _half_away_from_zero, ROUND_HALF_UP)


def _round_to_integer(value: Any, of_float: Callable[[float], int], of_decimal: str) -> Any:
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return value.to_integral_value(rounding=of_decimal, context=_EXACT)
    return float(of_float(value)) if math.isfinite(value) else value


def _half_away_from_zero(value: float) -> int:
    return int(math.copysign(math.floor(abs(Fraction(value)) + Fraction(1, 2)), value))


@null_if_any_null
def square_root(value: float) -> float:
    return math.nan if value < 0 else math.sqrt(value)


@null_if_any_null
def lower(text: str) -> str:
    return text.lower()


@null_if_any_null
def upper(text: str) -> str:
    return text.upper()


@null_if_any_null
def length(text: str | bytes) -> int:
    return len(text)


@null_if_any_null
def trim(text: str) -> str:
    return text.strip(" ")


@null_if_any_null
def trim_left(text: str) -> str:
    return text.lstrip(" ")


@null_if_any_null
def trim_right(text: str) -> str:
    return text.rstrip(" ")


@null_if_any_null
def substring(text: str, start: int, count: int | None = None) -> str:
    """Return a substring; positions count from 1, 0 means 1, and a negative start counts from the end.

    >>> substring("stream", 2, 3), substring("stream", -2), substring("stream", -8, 3)
    ('tre', 'am', 's')
    """
    first = start - 1 if start > 0 else 0 if start == 0 else len(text) + start
    last = len(text) if count is None else first + max(count, 0)
    return text[max(first, 0) : max(last, 0)]


@null_if_any_null
def concat(*parts: str) -> str:
    return "".join(parts)


@null_if_any_null
def replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


@null_if_any_null
def starts_with(text: str, start: str) -> bool:
    return text.startswith(start)


@null_if_any_null
def ends_with(text: str, end: str) -> bool:
    return text.endswith(end)


@null_if_any_null
def contains(text: str, part: str) -> bool:
    return part in text


def null_if(value: Any, unwanted: Any) -> Any:
    return None if value is not None and unwanted is not None and compare(value, unwanted) == 0 else value


def greatest(*args: Any) -> Any:
    """Return the largest argument that is not null; NaN is the largest number."""
    return _extreme(args, 1)


def least(*args: Any) -> Any:
    return _extreme(args, -1)


def _extreme(args: tuple[Any, ...], sign: int) -> Any:
    best = None
    for arg in args:
        if arg is not None and (best is None or compare(arg, best) == sign):
            best = arg
    return best


def part_of_time(name: str) -> Callable[..., Any]:
    """Return the function for YEAR … SECOND of a timestamp or a date, in UTC."""

    @null_if_any_null
    def part(value: Instant | dt.date) -> int:
        instant = value if isinstance(value, Instant) else midnight_of(value)
        return int(getattr(datetime_of(instant), name))

    return part


@null_if_any_null
def truncate_time(unit: str, value: Instant | dt.date) -> Instant:
    """Return the start of the unit that contains an instant, in UTC, by the calendar; weeks begin on Monday."""
    instant = value if isinstance(value, Instant) else midnight_of(value)
    at = datetime_of(instant)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    starts = {
        "MICROSECOND": at,
        "MILLISECOND": at.replace(microsecond=at.microsecond // 1000 * 1000),
        "SECOND": at.replace(microsecond=0),
        "MINUTE": at.replace(second=0, microsecond=0),
        "HOUR": at.replace(minute=0, second=0, microsecond=0),
        "DAY": day,
        "WEEK": day - dt.timedelta(days=day.weekday()),
        "MONTH": day.replace(day=1),
        "QUARTER": day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        "YEAR": day.replace(month=1, day=1),
    }
    return Instant((starts[unit.upper()] - EPOCH) // dt.timedelta(microseconds=1) * 1000)


@null_if_any_null
def time_bucket(width: Any, value: Any) -> Any:
    """Return the largest multiple of the width that is not above the value."""
    if isinstance(value, int):
        return value // width * width
    instant = value if isinstance(value, Instant) else midnight_of(value)
    return Instant(instant.ns // width.ns * width.ns)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ABS": absolute,
    "CEIL": ceil,
    "CONCAT": concat,
    "CONTAINS": contains,
    "DAY": part_of_time("day"),
    "ENDS_WITH": ends_with,
    "FLOOR": floor,
    "GREATEST": greatest,
    "HOUR": part_of_time("hour"),
    "LEAST": least,
    "LENGTH": length,
    "LOWER": lower,
    "LTRIM": trim_left,
    "MINUTE": part_of_time("minute"),
    "MONTH": part_of_time("month"),
    "NULLIF": null_if,
    "REPLACE": replace,
    "ROUND": round_half_away,
    "RTRIM": trim_right,
    "SECOND": part_of_time("second"),
    "SQRT": square_root,
    "STARTS_WITH": starts_with,
    "SUBSTRING": substring,
    "TRIM": trim,
    "UPPER": upper,
    "YEAR": part_of_time("year"),
    "DATE_TRUNC": truncate_time,
    "TIME_BUCKET": time_bucket,
}

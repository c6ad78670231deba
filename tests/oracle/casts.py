"""CAST on Python values.

Integers truncate towards zero, text that is not a number becomes NULL, and a value that does not fit is an error.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from tests.oracle.values import NS_PER_UNIT, Duration, Instant, date_of, instant_of, midnight_of
from watersmeet.errors import InternalError, QueryError

_EXACT = Context(prec=200)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_TRUTHS = {"true": True, "false": False}


def cast(value: Any, kind: pa.DataType) -> Any:
    """Return the value as the given type; NULL stays NULL.

    >>> cast(-1.9, pa.int32()), cast("seven", pa.int64()), cast(True, pa.string())
    (-1, None, 'true')
    """
    if value is None or pa.types.is_null(kind):
        return None
    for is_kind, rule in _RULES:
        if is_kind(kind):
            return rule(value, kind)
    raise InternalError(f"the oracle cannot cast to {kind}")


def _to_integer(value: Any, kind: pa.DataType) -> int | None:
    if isinstance(value, str):
        whole = int(value) if _WHOLE.fullmatch(value) else None
        return whole if whole is not None and _fits(whole, kind) else None
    if isinstance(value, float) and not math.isfinite(value):
        raise QueryError(f"{value} does not fit into {kind}")
    whole = int(value)
    if not _fits(whole, kind):
        raise QueryError(f"{value} does not fit into {kind}")
    return whole


def _fits(whole: int, kind: pa.DataType) -> bool:
    bits = kind.bit_width
    low: int = -(2 ** (bits - 1)) if pa.types.is_signed_integer(kind) else 0
    return bool(low <= whole < low + (1 << bits))


def _to_float64(value: Any, kind: pa.DataType) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    return float(value)


def _to_float32(value: Any, kind: pa.DataType) -> float | None:
    wide = _to_float64(value, kind)
    return None if wide is None else _nearest_float32(wide)


def _nearest_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _to_decimal(value: Any, kind: pa.Decimal128Type[Any, Any]) -> Decimal | None:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        raise QueryError(f"{value} does not fit into {kind}")
    exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP, context=_EXACT)
    if abs(exact.scaleb(kind.scale, context=_EXACT)) >= 10**kind.precision:
        raise QueryError(f"{value} does not fit into {kind}")
    return exact


def _to_bool(value: Any, kind: pa.DataType) -> bool | None:
    return _TRUTHS.get(value.lower()) if isinstance(value, str) else bool(value)


def _to_string(value: Any, kind: pa.DataType) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode()
        case dt.date():
            return value.isoformat()
        case str() | int():
            return str(value)
        case _:
            raise InternalError(f"the oracle does not write {value!r} as text")


def _to_binary(value: Any, kind: pa.DataType) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _to_date(value: Any, kind: pa.DataType) -> Any:
    match value:
        case Instant():
            return date_of(value)
        case str():
            return _parse_or_null(dt.date.fromisoformat, value)
        case _:
            return value


def _to_timestamp(value: Any, kind: pa.TimestampType[Any, Any]) -> Any:
    """Truncate parts finer than the unit downwards."""
    size_ns = NS_PER_UNIT[kind.unit]
    match value:
        case Instant(ns):
            return Instant(ns // size_ns * size_ns)
        case dt.date():
            return midnight_of(value)
        case str():
            return _parse_or_null(lambda text: instant_of(dt.datetime.fromisoformat(text)), value)
        case _:
            return Instant(value * size_ns)


def _to_time(value: Any, kind: pa.DataType) -> Any:
    return _parse_or_null(dt.time.fromisoformat, value) if isinstance(value, str) else value


def _to_duration(value: Duration, kind: pa.DurationType[Any]) -> Duration:
    size_ns = NS_PER_UNIT[kind.unit]
    return Duration(value.ns // size_ns * size_ns)


def _parse_or_null(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any], Any]], ...] = (
    (pa.types.is_integer, _to_integer),
    (pa.types.is_float64, _to_float64),
    (pa.types.is_float32, _to_float32),
    (pa.types.is_decimal, _to_decimal),
    (pa.types.is_boolean, _to_bool),
    (pa.types.is_string, _to_string),
    (pa.types.is_large_string, _to_string),
    (pa.types.is_binary, _to_binary),
    (pa.types.is_large_binary, _to_binary),
    (pa.types.is_date, _to_date),
    (pa.types.is_timestamp, _to_timestamp),
    (pa.types.is_time, _to_time),
    (pa.types.is_duration, _to_duration),
)

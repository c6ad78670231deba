"""Text as other types: NULL where it does not read as one. Each distinct text is read once."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from watersmeet.operators.expressions.numbers import quantize_exactly
from watersmeet.operators.expressions.rows import Array
from watersmeet.operators.expressions.uniques import map_unique

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
#: No 64-bit integer has more digits, leading zeros aside; Python refuses to read thousands of them.
_MAX_DIGITS = 4_000
_BOOLEANS = {"true": True, "false": False}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def parse_text(values: Array, kind: pa.DataType) -> Array:
    """Each text as a value of `kind`, NULL where it is none.

    >>> parse_text(pa.array(["12", "1e3", "x", None]), pa.float64()).to_pylist()
    [12.0, 1000.0, None, None]
    """
    if pa.types.is_timestamp(kind):
        return (
            map_unique(parse_instant_us, values, pa.int64())
            .view(pa.timestamp("us"))
            .cast(pa.timestamp(kind.unit), safe=False)
            .view(kind)
        )
    return map_unique(_text_parser(kind), values, kind)


def parse_instant_us(text: str) -> int | None:
    """An ISO 8601 date or time as microseconds since the epoch, UTC unless it says otherwise; None when it is none.

    >>> parse_instant_us("1970-01-01T00:00:01Z"), parse_instant_us("1970-01-01 01:00:00+01:00"), parse_instant_us("soon")
    (1000000, 0, None)
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or dt.UTC) - _EPOCH) // _MICROSECOND


def _text_parser(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_integer(kind):
        return lambda text: _parse_integer(text, kind)
    if pa.types.is_floating(kind):
        return lambda text: float(text) if _NUMBER.fullmatch(text) else None
    if pa.types.is_decimal(kind):
        return lambda text: _parse_decimal(text, kind.scale)
    if pa.types.is_boolean(kind):
        return lambda text: _BOOLEANS.get(text.lower())
    if pa.types.is_date(kind):
        return _parse_date
    raise pa.ArrowNotImplementedError(f"text to {kind}")


def _parse_integer(text: str, kind: pa.DataType) -> int | None:
    if not _WHOLE.fullmatch(text) or len(text) > _MAX_DIGITS:
        return None
    value, bits = int(text), kind.bit_width
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if pa.types.is_signed_integer(kind) else (0, 2**bits)
    return value if low <= value < high else None


def _parse_decimal(text: str, scale: int) -> Decimal | None:
    return quantize_exactly(text, scale) if _NUMBER.fullmatch(text) else None


def _parse_date(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None

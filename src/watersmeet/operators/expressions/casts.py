"""CAST: coercions written by the binder and by the caller, between numbers, text, times and booleans.

Integers truncate towards zero. Text that does not parse becomes NULL; each distinct text is parsed once. A number that
does not fit raises.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.arrow_types import is_bytes, is_text, view_buffer
from watersmeet.algebra.expressions import Cast
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.rows import (
    Array,
    Bools,
    Datum,
    EvaluationRows,
    broadcast,
    call_kernel,
    expression_excerpt,
    find_null_rows,
    make_nulls,
    map_unique,
    to_arrow,
)
from watersmeet.operators.expressions.temporal import convert_unit

_EXACT_CONTEXT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
_MAX_PRECISION = 38
#: Integers up to this size are exact as doubles, and so are powers of ten up to this exponent.
_EXACT_INTEGER = 2**53
_EXACT_EXPONENT = 22
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
#: Longer texts are not parsed as integers: Python refuses to read thousands of digits.
_MAX_DIGITS = 4_000
_BOOLEANS = {"true": True, "false": False}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def evaluate_cast(node: Cast, rows: EvaluationRows) -> Datum:
    """Evaluate CAST."""
    arg = rows.evaluate_datum(node.arg)
    if arg.type == node.type:
        return arg
    try:
        if isinstance(arg, pa.Scalar):
            only: Datum = convert(broadcast(arg, 1), node.type)[0]
            return only
        return convert(arg, node.type)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise QueryError(
            f"a value does not fit into {node.type} in {expression_excerpt(node)}", span=node.span
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise QueryError(f"{arg.type} cannot be cast to {node.type}", span=node.span) from error


def convert(values: Array, kind: pa.DataType) -> Array:
    """Convert values to another type; raise `pa.ArrowInvalid` for a number that does not fit.

    >>> convert(pa.array([1.9, -1.9, None]), pa.int32()).to_pylist()
    [1, -1, None]
    """
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if values.type == kind:
        return values
    if pa.types.is_null(values.type) or pa.types.is_null(kind):
        return make_nulls(kind, len(values))
    if is_text(values.type) and not (is_text(kind) or _is_bytes(kind)):
        return parse_text(values, kind)
    for is_kind, convert_to_kind in _RULES:
        if is_kind(kind):
            return convert_to_kind(values, kind)
    return values.cast(kind)


def decimals_to_doubles(values: Array) -> Array:
    """Convert each decimal to its nearest double, correctly rounded.

    Arrow's own cast multiplies by a rounded power of ten. So it misses the nearest double for about one in eight
    decimals of two places. IEEE 754 division rounds correctly, so dividing two exact doubles is enough. Decimals that
    have no such quotient take Python's exact conversion, once per distinct value.

    >>> decimals_to_doubles(pa.array([Decimal("1.15"), None], pa.decimal128(7, 2))).to_pylist()
    [1.15, None]

    """
    if values.type.bit_width < 128:
        values = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    unscaled, is_exact = _exact_unscaled(values)
    scale = values.type.scale
    doubles = unscaled / float(10**scale) if scale >= 0 else unscaled * float(10**-scale)
    nulls = find_null_rows(values)
    slow = ~is_exact & ~nulls
    if slow.any():
        doubles[slow] = map_unique(float, values.filter(pa.array(slow)), pa.float64()).to_numpy()
    return to_arrow(doubles, nulls, pa.float64())


def quantize_exactly(number: float | str, scale: int) -> Decimal:
    """Return a number with `scale` digits after the point, halves rounded away from zero.

    >>> quantize_exactly(0.125, 2)
    Decimal('0.13')
    """
    value = Decimal(number)
    if not value.is_finite():
        raise OverflowError(f"{number} is not a decimal")
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT_CONTEXT)


def parse_text(values: Array, kind: pa.DataType) -> Array:
    """Parse each text as a value of `kind`, NULL if it does not parse.

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
    """Parse an ISO 8601 date or time to microseconds since the epoch; None if it does not parse.

    A time without a zone is UTC.

    >>> parse_instant_us("1970-01-01T00:00:01Z"), parse_instant_us("1970-01-01 01:00:00+01:00")
    (1000000, 0)
    >>> parse_instant_us("soon") is None
    True
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment.replace(tzinfo=moment.tzinfo or dt.UTC) - _EPOCH) // _MICROSECOND


def to_integer(values: Array, kind: pa.DataType) -> Array:
    """Truncate towards zero; raise for values that do not fit, including NaN.

    Arrow's safe cast refuses fractions and values out of range. So truncating first leaves only the range to check.
    """
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        values = call_kernel("trunc", values)
    return values.cast(kind)


def to_float(values: Array, kind: pa.DataType) -> Array:
    """Convert to the nearest float.

    Integers beyond 2**53 round, and doubles too large for a single become infinite.
    """
    if pa.types.is_decimal(values.type):
        values = decimals_to_doubles(values)
    return values.cast(kind, safe=False)


def _exact_unscaled(values: Array) -> tuple[npt.NDArray[np.float64], Bools]:
    """Return the unscaled decimals as doubles, and where both they and their power of ten are exact."""
    width = values.type.bit_width // 64
    buffer = values.buffers()[1]
    words = view_buffer(buffer, np.int64) if buffer is not None and buffer.size else np.zeros(0, np.int64)
    words = words[: (values.offset + len(values)) * width].reshape(-1, width)[values.offset :]
    lowest = words[:, 0]
    fits = (words[:, 1:] == (lowest >> 63)[:, None]).all(axis=1)
    fits &= (lowest >= -_EXACT_INTEGER) & (lowest <= _EXACT_INTEGER)
    return lowest.astype(np.float64), fits if abs(values.type.scale) <= _EXACT_EXPONENT else np.zeros_like(fits)


def to_decimal(values: Array, kind: pa.Decimal128Type[Any, Any]) -> Array:
    """Round half away from zero to the requested scale; raise for values with too many digits."""
    if pa.types.is_floating(values.type):
        return map_unique(lambda number: quantize_exactly(number, kind.scale), values, kind)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64() if pa.types.is_boolean(values.type) else values.type).cast(
            pa.decimal128(_MAX_PRECISION, 0)
        )
    if values.type.scale > kind.scale:
        values = call_kernel("round", values, options=pc.RoundOptions(kind.scale, "half_towards_infinity"))
    return values.cast(kind)


def _to_boolean(values: Array, kind: pa.DataType) -> Array:
    return values.cast(kind)


def _to_text(values: Array, kind: pa.DataType) -> Array:
    written = values.type
    plain = pa.types.is_integer(written) or pa.types.is_boolean(written) or is_text(written) or _is_bytes(written)
    if plain:
        return values.cast(kind)
    if pa.types.is_date(written):
        return values.cast(pa.date32()).cast(kind)
    raise pa.ArrowNotImplementedError(f"{written} to {kind}")


def _to_date(values: Array, kind: pa.DataType) -> Array:
    """Convert to the day in UTC."""
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.timestamp(values.type.unit)).cast(pa.date32())
    return values.cast(kind)


def _to_timestamp(values: Array, kind: pa.TimestampType[Any, Any]) -> Array:
    """Convert to the same instant.

    A time without a zone is UTC, a date is its first moment, and a finer unit is rounded down.
    """
    if pa.types.is_timestamp(values.type):
        return convert_unit(values.view(pa.timestamp(values.type.unit)), kind.unit).view(kind)
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp(kind.unit)).view(kind)
    return values.cast(kind)


def _to_duration(values: Array, kind: pa.DurationType[Any]) -> Array:
    return convert_unit(values, kind.unit) if pa.types.is_duration(values.type) else values.cast(kind)


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


def _is_bytes(kind: pa.DataType) -> bool:
    return is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Array]], ...] = (
    (pa.types.is_integer, to_integer),
    (pa.types.is_floating, to_float),
    (pa.types.is_decimal, to_decimal),
    (pa.types.is_boolean, _to_boolean),
    (is_text, _to_text),
    (pa.types.is_date, _to_date),
    (pa.types.is_timestamp, _to_timestamp),
    (pa.types.is_duration, _to_duration),
)

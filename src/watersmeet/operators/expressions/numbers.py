"""Numbers as other numbers."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.operators.expressions.rows import Array, Bools, call_kernel, find_null_rows, to_arrow
from watersmeet.operators.expressions.uniques import map_unique

_EXACT_CONTEXT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
_MAX_PRECISION = 38

#: Integers up to this size are doubles, and so are powers of ten up to this exponent.
_EXACT_INTEGER = 2**53
_EXACT_EXPONENT = 22


def to_integer(values: Array, kind: pa.DataType) -> Array:
    """Cut off towards zero; what does not fit, NaN included, raises.

    Arrow's safe cast refuses fractions and whatever is out of range, so cutting off first leaves it the range to check.
    """
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        values = call_kernel("trunc", values)
    return values.cast(kind)


def to_float(values: Array, kind: pa.DataType) -> Array:
    """Convert to the nearest float: integers beyond 2**53 round, doubles too large for a single become infinite."""
    if pa.types.is_decimal(values.type):
        values = decimals_to_doubles(values)
    return values.cast(kind, safe=False)


def decimals_to_doubles(values: Array) -> Array:
    """Convert each decimal to its nearest double, correctly rounded.

    Arrow's own cast multiplies by a rounded power of ten, so it misses the nearest double in about one of eight
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


def _exact_unscaled(values: Array) -> tuple[npt.NDArray[np.float64], Bools]:
    """Return the unscaled decimals as doubles, and where both they and their power of ten are exact."""
    width = values.type.bit_width // 64
    buffer = values.buffers()[1]
    words = np.frombuffer(buffer, np.int64) if buffer is not None and buffer.size else np.zeros(0, np.int64)
    words = words[: (values.offset + len(values)) * width].reshape(-1, width)[values.offset :]
    lowest = words[:, 0]
    fits = (words[:, 1:] == (lowest >> 63)[:, None]).all(axis=1)
    fits &= (lowest >= -_EXACT_INTEGER) & (lowest <= _EXACT_INTEGER)
    return lowest.astype(np.float64), fits if abs(values.type.scale) <= _EXACT_EXPONENT else np.zeros_like(fits)


def to_decimal(values: Array, kind: pa.Decimal128Type[Any, Any]) -> Array:
    """Rounded half away from zero to the wanted scale; what has too many digits raises."""
    if pa.types.is_floating(values.type):
        return map_unique(lambda number: quantize_exactly(number, kind.scale), values, kind)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64() if pa.types.is_boolean(values.type) else values.type).cast(
            pa.decimal128(_MAX_PRECISION, 0)
        )
    if values.type.scale > kind.scale:
        values = call_kernel("round", values, options=pc.RoundOptions(kind.scale, "half_towards_infinity"))
    return values.cast(kind)


def quantize_exactly(number: float | str, scale: int) -> Decimal:
    """A number with `scale` digits after the point, halves away from zero.

    >>> quantize_exactly(0.125, 2)
    Decimal('0.13')
    """
    value = Decimal(number)
    if not value.is_finite():
        raise OverflowError(f"{number} is no decimal")
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT_CONTEXT)

"""Numbers as other numbers."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.operators.expressions.rows import Array, call
from watersmeet.operators.expressions.uniques import map_unique

_EXACT = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
_WIDEST = 38


def to_integer(values: Array, kind: pa.DataType) -> Array:
    """Cut off towards zero; what does not fit, NaN included, raises.

    Arrow's safe cast refuses fractions and whatever is out of range, so cutting off first leaves it the range to check.
    """
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        values = call("trunc", values)
    return values.cast(kind)


def to_float(values: Array, kind: pa.DataType) -> Array:
    """The nearest float: whole numbers beyond 2**53 round, doubles too large for a single become infinite."""
    return values.cast(kind, safe=False)


def to_decimal(values: Array, kind: pa.Decimal128Type[Any, Any]) -> Array:
    """Rounded half away from zero to the wanted scale; what has too many digits raises."""
    if pa.types.is_floating(values.type):
        return map_unique(lambda number: exact_decimal(number, kind.scale), values, kind)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        values = values.cast(pa.int64() if pa.types.is_boolean(values.type) else values.type).cast(pa.decimal128(_WIDEST, 0))
    if values.type.scale > kind.scale:
        values = call("round", values, options=pc.RoundOptions(kind.scale, "half_towards_infinity"))
    return values.cast(kind)


def exact_decimal(number: float | str, scale: int) -> Decimal:
    """A number with `scale` digits after the point, halves away from zero.

    >>> exact_decimal(0.125, 2)
    Decimal('0.13')
    """
    value = Decimal(number)
    if not value.is_finite():
        raise OverflowError(f"{number} is no decimal")
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)

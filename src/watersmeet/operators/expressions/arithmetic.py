"""`+ - * / %`, negation and the numeric functions. Integers never wrap; division by zero gives NULL."""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.expressions import Arithmetic, Call, Expr, Negate
from watersmeet.operators.expressions.rows import (
    Array,
    Datum,
    EvaluationRows,
    broadcast,
    call_kernel,
    find_null_rows,
    overflow_error,
    to_arrow,
)
from watersmeet.operators.expressions.temporal import add_or_subtract_times, is_temporal

_MAX_DIGITS, _MAX_WIDE_DIGITS = 38, 76
_CHECKED = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_PLAIN = {"+": "add", "-": "subtract", "*": "multiply"}


def evaluate_arithmetic(node: Arithmetic, rows: EvaluationRows) -> Datum:
    left, right = rows.evaluate_datum(node.left), rows.evaluate_datum(node.right)
    if is_temporal(left.type) or is_temporal(right.type):
        return add_or_subtract_times(node, left, right)
    if node.op == "/":
        return _divide(node, left, right)
    if node.op == "%":
        return _remainder(broadcast(left, rows.length), broadcast(right, rows.length))
    if pa.types.is_decimal(left.type):
        return _compute_decimals(node, left, right, rows.length)
    return call_checked(node, (_PLAIN if pa.types.is_floating(left.type) else _CHECKED)[node.op], left, right)


def evaluate_negate(node: Negate, rows: EvaluationRows) -> Datum:
    arg = rows.evaluate_datum(node.arg)
    if pa.types.is_unsigned_integer(arg.type):
        return call_checked(node, "subtract_checked", pa.scalar(0, arg.type), arg)
    return call_checked(node, "negate" if pa.types.is_floating(arg.type) else "negate_checked", arg)


def evaluate_abs(node: Call, rows: EvaluationRows) -> Datum:
    return call_checked(node, "abs_checked", rows.evaluate_datum(node.args[0]))


def evaluate_floor(node: Call, rows: EvaluationRows) -> Datum:
    return _round_to_whole("floor", rows.evaluate_datum(node.args[0]))


def evaluate_ceil(node: Call, rows: EvaluationRows) -> Datum:
    return _round_to_whole("ceil", rows.evaluate_datum(node.args[0]))


def evaluate_round(node: Call, rows: EvaluationRows) -> Datum:
    """Round to the nearest whole number, halves away from zero."""
    return _round_to_whole("round", rows.evaluate_datum(node.args[0]), pc.RoundOptions(0, "half_towards_infinity"))


def evaluate_sqrt(node: Call, rows: EvaluationRows) -> Datum:
    """Return the square root; NaN below zero."""
    return call_kernel("sqrt", rows.evaluate_datum(node.args[0]))


def call_checked(node: Expr, kernel: str, *args: Datum) -> Array:
    """Call a checked kernel; its failure becomes an error that shows the expression."""
    try:
        return call_kernel(kernel, *args)
    except pa.ArrowInvalid as error:
        noun = "decimal" if pa.types.is_decimal(args[0].type) else "integer"
        raise overflow_error(node, noun) from error


def _compute_decimals(node: Arithmetic, left: Datum, right: Datum, length: int) -> Array:
    """Return an exact sum, difference or product; more than 38 digits are an overflow.

    Arrow refuses types whose result could have too many digits, so such results are computed with 76 digits.
    """
    scale = left.type.scale + right.type.scale if node.op == "*" else max(left.type.scale, right.type.scale)
    whole = max(left.type.precision - left.type.scale, right.type.precision - right.type.scale)
    digits = left.type.precision + right.type.precision + 1 if node.op == "*" else whole + scale + 1
    if digits <= _MAX_DIGITS:
        return call_checked(node, _CHECKED[node.op], left, right)
    result = pa.decimal128(_MAX_DIGITS, scale)
    if digits > _MAX_WIDE_DIGITS:
        return _compute_with_python(node, broadcast(left, length), broadcast(right, length), result)
    wide = [each.cast(pa.decimal256(each.type.precision, each.type.scale)) for each in (left, right)]
    try:
        return call_kernel(_CHECKED[node.op], *wide).cast(result)
    except pa.ArrowInvalid as error:
        raise overflow_error(node, "decimal") from error


def _compute_with_python(node: Arithmetic, left: Array, right: Array, result: pa.DataType) -> Array:
    compute = {"+": decimal.Context.add, "-": decimal.Context.subtract, "*": decimal.Context.multiply}[node.op]
    exact = decimal.Context(prec=100)
    values = [
        None if a is None or b is None else compute(exact, a, b)
        for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    try:
        return pa.array(values, result)
    except pa.ArrowInvalid as error:
        raise overflow_error(node, "decimal") from error


def null_where_zero(divisor: Datum) -> Array:
    """Return the divisor with NULL in place of zero."""
    zero = pa.scalar(Decimal(0), divisor.type) if pa.types.is_decimal(divisor.type) else pa.scalar(0, divisor.type)
    return call_kernel("if_else", call_kernel("equal", divisor, zero), pa.scalar(None, divisor.type), divisor)


def _divide(node: Arithmetic, left: Datum, right: Datum) -> Array:
    return call_checked(
        node, "divide" if pa.types.is_floating(left.type) else "divide_checked", left, null_where_zero(right)
    )


def _remainder(left: Array, right: Array) -> Array:
    """Return the remainder of a division that rounds towards zero: it has the sign of the dividend.

    >>> _remainder(pa.array([7, -7, 7, 7]), pa.array([3, 3, -3, 0])).to_pylist()
    [1, -1, 1, None]
    """
    divisor = null_where_zero(right)
    nulls = find_null_rows(left, divisor)
    if pa.types.is_decimal(left.type):
        return _decimal_remainder(left, divisor)
    filler = pa.scalar(1, left.type)
    dividends, divisors = (
        call_kernel("coalesce", side, filler).to_numpy(zero_copy_only=False) for side in (left, divisor)
    )
    with np.errstate(invalid="ignore"):
        return to_arrow(np.fmod(dividends, divisors), nulls, left.type)


def _decimal_remainder(left: Array, right: Array) -> Array:
    """Return the remainder of decimals with Python, because Arrow has no such kernel.

    Python's remainder truncates as well, and is exact at this precision.
    """
    scale = max(left.type.scale, right.type.scale)
    with decimal.localcontext(prec=100):
        values = [
            None if a is None or b is None else a % b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
        ]
    return pa.array(values, pa.decimal128(38, scale))


def _round_to_whole(kernel: str, arg: Datum, options: pc.FunctionOptions | None = None) -> Datum:
    if pa.types.is_integer(arg.type):
        return arg
    if pa.types.is_decimal(arg.type):
        return call_kernel(kernel, arg, options=options)
    return call_kernel(kernel, arg.cast(pa.float64()), options=options)

"""Comparisons, with SQL's three-valued logic and one total order on floats.

Arrow compares floats as IEEE 754 does: NaN equals nothing. Here NaN equals NaN and is above every other number, and
-0.0 equals 0.0. So floats are first compared by Arrow, then corrected where a NaN is involved.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.expressions import Between, Comparison, In, IsNull
from watersmeet.operators.expressions.rows import Array, Datum, EvaluationRows, Scalar, broadcast, call_kernel

_KERNELS = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_OPPOSITE = {"<>": "=", "<=": ">", ">=": "<"}


def evaluate_comparison(node: Comparison, rows: EvaluationRows) -> Datum:
    return compare(node.op, rows.evaluate_datum(node.left), rows.evaluate_datum(node.right))


def evaluate_between(node: Between, rows: EvaluationRows) -> Datum:
    arg = rows.evaluate_datum(node.arg)
    return call_kernel(
        "and_kleene",
        compare("<=", rows.evaluate_datum(node.low), arg),
        compare("<=", arg, rows.evaluate_datum(node.high)),
    )


def evaluate_is_null(node: IsNull, rows: EvaluationRows) -> Datum:
    return call_kernel("is_null", rows.evaluate_datum(node.arg))


def evaluate_in(node: In, rows: EvaluationRows) -> Datum:
    """Evaluate IN: true if one option is equal; otherwise NULL if the value or an option is NULL.

    Constant options are looked up together, so that a list of thousands costs one pass. The others are compared one by
    one.
    """
    arg = rows.evaluate_datum(node.arg)
    options = [rows.evaluate_datum(option) for option in node.options]
    constants = [option for option in options if isinstance(option, pa.Scalar)]
    parts = [compare("=", arg, option) for option in options if not isinstance(option, pa.Scalar)]
    if constants:
        parts.append(_compare_with_constants(arg, constants))
    return reduce(lambda left, right: call_kernel("or_kleene", left, right), parts)


def compare(op: str, left: Datum, right: Datum) -> Datum:
    """Evaluate `left op right`, NULL if a side is NULL.

    >>> nan = float("nan")
    >>> compare(">", pa.array([nan, nan, 1.0]), pa.array([1.0, nan, None])).to_pylist()
    [True, False, None]
    """
    if pa.types.is_floating(left.type) and pa.types.is_floating(right.type):
        return _compare_floats(op, left, right)
    if pa.types.is_null(left.type):  # Arrow compares no two untyped NULLs
        left = left.cast(pa.bool_() if pa.types.is_null(right.type) else right.type)
    return call_kernel(_KERNELS[op], left, right)


def _compare_floats(op: str, left: Datum, right: Datum) -> Datum:
    if op == "=":
        return call_kernel(
            "or",
            call_kernel("equal", left, right),
            call_kernel("and", call_kernel("is_nan", left), call_kernel("is_nan", right)),
        )
    if op == "<":
        return call_kernel(
            "or",
            call_kernel("less", left, right),
            call_kernel("and_not", call_kernel("is_nan", right), call_kernel("is_nan", left)),
        )
    if op == ">":
        return _compare_floats("<", right, left)
    return call_kernel("invert", _compare_floats(_OPPOSITE[op], left, right))


def _compare_with_constants(arg: Datum, constants: list[Scalar]) -> Datum:
    known = [scalar for scalar in constants if scalar.is_valid]
    if not known:
        return compare("=", arg, constants[0])
    options: Array = pa.concat_arrays([broadcast(scalar, 1) for scalar in known])
    if pa.types.is_floating(arg.type):
        arg, options = _without_negative_zero(arg), _without_negative_zero(options)
    inside = call_kernel("is_in", arg, options=pc.SetLookupOptions(options))
    outside = pa.scalar(None if len(known) < len(constants) else False, pa.bool_())
    return call_kernel(
        "if_else",
        call_kernel("is_null", arg),
        pa.scalar(None, pa.bool_()),
        call_kernel("if_else", inside, pa.scalar(True), outside),
    )


def _without_negative_zero(values: Datum) -> Array:
    """Replace -0.0 by 0.0. Adding zero does that and changes no other number."""
    return call_kernel("add", values, pa.scalar(0.0, values.type))

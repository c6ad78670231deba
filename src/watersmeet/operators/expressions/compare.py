"""Comparisons, with SQL's three-valued logic and one total order on floats.

Arrow compares floats as IEEE 754 does (NaN equals nothing). Here NaN equals NaN and stands above every other number,
and -0.0 equals 0.0, so floats are compared by Arrow first and corrected where a NaN is involved.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.expressions import Between, Comparison, In, IsNull
from watersmeet.operators.expressions.rows import Array, Datum, Rows, Scalar, call, spread

_KERNELS = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_OPPOSITE = {"<>": "=", "<=": ">", ">=": "<"}


def evaluate_comparison(node: Comparison, rows: Rows) -> Datum:
    return compare(node.op, rows.datum(node.left), rows.datum(node.right))


def evaluate_between(node: Between, rows: Rows) -> Datum:
    arg = rows.datum(node.arg)
    return call("and_kleene", compare("<=", rows.datum(node.low), arg), compare("<=", arg, rows.datum(node.high)))


def evaluate_is_null(node: IsNull, rows: Rows) -> Datum:
    return call("is_null", rows.datum(node.arg))


def evaluate_in(node: In, rows: Rows) -> Datum:
    """True where one option is equal; else NULL where the value or an option is NULL.

    Constant options are looked up together, so that a list of thousands costs one pass; the others are compared one by
    one.
    """
    arg = rows.datum(node.arg)
    options = [rows.datum(option) for option in node.options]
    constants = [option for option in options if isinstance(option, pa.Scalar)]
    parts = [compare("=", arg, option) for option in options if not isinstance(option, pa.Scalar)]
    if constants:
        parts.append(_among(arg, constants))
    return reduce(lambda left, right: call("or_kleene", left, right), parts)


def compare(op: str, left: Datum, right: Datum) -> Datum:
    """`left op right`, NULL where a side is NULL.

    >>> nan = float("nan")
    >>> compare(">", pa.array([nan, nan, 1.0]), pa.array([1.0, nan, None])).to_pylist()
    [True, False, None]
    """
    if pa.types.is_floating(left.type) and pa.types.is_floating(right.type):
        return _compare_floats(op, left, right)
    if pa.types.is_null(left.type):  # Arrow compares no two untyped NULLs
        left = left.cast(pa.bool_() if pa.types.is_null(right.type) else right.type)
    return call(_KERNELS[op], left, right)


def _compare_floats(op: str, left: Datum, right: Datum) -> Datum:
    if op == "=":
        return call("or", call("equal", left, right), call("and", call("is_nan", left), call("is_nan", right)))
    if op == "<":
        return call("or", call("less", left, right), call("and_not", call("is_nan", right), call("is_nan", left)))
    if op == ">":
        return _compare_floats("<", right, left)
    return call("invert", _compare_floats(_OPPOSITE[op], left, right))


def _among(arg: Datum, constants: list[Scalar]) -> Datum:
    known = [scalar for scalar in constants if scalar.is_valid]
    if not known:
        return compare("=", arg, constants[0])
    options: Array = pa.concat_arrays([spread(scalar, 1) for scalar in known])
    if pa.types.is_floating(arg.type):
        arg, options = _without_negative_zero(arg), _without_negative_zero(options)
    inside = call("is_in", arg, options=pc.SetLookupOptions(options))
    outside = pa.scalar(None if len(known) < len(constants) else False, pa.bool_())
    return call(
        "if_else", call("is_null", arg), pa.scalar(None, pa.bool_()), call("if_else", inside, pa.scalar(True), outside)
    )


def _without_negative_zero(values: Datum) -> Array:
    """-0.0 becomes 0.0: adding zero does that and changes no other number."""
    return call("add", values, pa.scalar(0.0, values.type))

"""Predicates between two inputs as ranges of one input's value.

A range condition is `left op sign · right + offset`. Left and right are expressions over one input each. A comparison
of two inputs is a condition as written: `a.x < b.y + 5`. Other predicates are solved for a value: `a.x - b.y <= 5`,
`ABS(a.x - b.y) < 5`, `a.t - b.t BETWEEN ...`.

A solved condition of integers, decimals or times is equivalent to its predicate while no sum can leave int64. A search
tests this on the values that it joins (`fits_sums`). Otherwise it does not use the condition, because the predicate may
raise. Sums of floats are rounded. So the range of a float is widened by more than the rounding, and the predicate is
tested on the candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import view_buffer
from watersmeet.algebra.expressions import (
    FLIPPED,
    Arithmetic,
    Call,
    Cast,
    Comparison,
    Expr,
    Literal,
    Negate,
    sources_of,
)
from watersmeet.operators.expressions import evaluate
from watersmeet.operators.window_join.join_predicates import encode_ordered, split_comparison

Int64s = NDArray[np.int64]
InferType = Callable[[Expr], pa.DataType]

LOWEST, HIGHEST = -(2**63), 2**63 - 1
#: Floats above this could make a sum infinite.
_LARGEST_FLOAT = 1e300
#: More than the relative rounding errors of a dozen sums.
_ROUNDING = 2.0**-48


@dataclass(frozen=True, slots=True)
class RangeCondition:
    """`left op sign · right + offset`.

    A condition is `solved` if it is not the predicate as written. `magnitude` is the sum of the predicate's constants.
    """

    predicate: Expr
    op: str
    left: Expr
    right: Expr
    sign: int = 1
    offset: int | float = 0
    magnitude: int | float = 0
    is_float: bool = False
    is_solved: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the condition is equivalent to its predicate, if it may be used at all."""
        return not (self.is_solved and self.is_float)

    def orient_to(self, alias: str) -> RangeCondition | None:
        """Return the condition with the value of this source on the left, or None if it has none.

        `x op y + k` is `y flipped-op x - k`, and `x op -y + k` is `y op -x + k`.
        """
        if sources_of(self.left) == {alias}:
            return self
        if sources_of(self.right) != {alias}:
            return None
        offset = -self.offset if self.sign > 0 else self.offset
        op = FLIPPED[self.op] if self.sign > 0 else self.op
        return replace(self, op=op, left=self.right, right=self.left, offset=offset)


def find_range_conditions(predicate: Expr, infer: InferType) -> tuple[RangeCondition, ...]:
    """Return the conditions that a predicate implies; all of them together are equivalent to it if they are exact.

    There are none if the predicate is no range of a value that has codes of 64 bits.
    """
    sides = split_comparison(predicate)
    if sides is not None:
        op, left, right = sides
        kind = infer(left)
        if op == "<>" or kind != infer(right) or not has_range_codes(kind):
            return ()
        return (RangeCondition(predicate, op, left, right, is_float=pa.types.is_floating(kind)),)
    if not isinstance(predicate, Comparison) or predicate.op == "<>":
        return ()
    solved = [_solve(predicate, op, left, right, infer) for op, left, right in _split_absolute(predicate, infer)]
    return tuple(each for each in solved if each is not None)


def has_range_codes(kind: pa.DataType) -> bool:
    """Return whether values of the type may have order-preserving codes of 64 bits; wide decimals may be too large."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal128(kind)
    )


def _split_absolute(predicate: Comparison, infer: InferType) -> list[tuple[str, Expr, Expr]]:
    """Return the comparisons that `ABS(x) <= c` consists of, or the comparison itself.

    `ABS(x) <= c` is `x <= c AND x >= -c`. A lower bound of ABS(x) is no single range.
    """
    op, left, right = predicate.op, predicate.left, predicate.right
    if _is_absolute(right, infer):
        op, left, right = FLIPPED[op], right, left
    if not _is_absolute(left, infer):
        return [(op, left, right)]
    argument = _strip_exact_casts(left, infer)
    if op not in ("<", "<=") or not isinstance(argument, Call) or len(sources_of(right)) > 1:
        return []
    return [(op, argument.args[0], right), (FLIPPED[op], argument.args[0], Negate(right))]


def _is_absolute(expr: Expr, infer: InferType) -> bool:
    inner = _strip_exact_casts(expr, infer)
    return isinstance(inner, Call) and inner.name == "ABS" and len(sources_of(inner)) == 2


def _strip_exact_casts(expr: Expr, infer: InferType) -> Expr:
    while isinstance(expr, Cast) and _keeps_value(infer(expr.arg), expr.type):
        expr = expr.arg
    return expr


def _keeps_value(kind: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a cast keeps every integer or decimal and never raises."""
    if pa.types.is_signed_integer(kind):
        return bool(target == pa.int64() or (pa.types.is_decimal128(target) and target.precision - target.scale >= 19))
    if not (pa.types.is_decimal128(kind) and pa.types.is_decimal128(target)):
        return False
    return bool(target.scale >= kind.scale and target.precision - target.scale >= kind.precision - kind.scale)


def _solve(predicate: Expr, op: str, left: Expr, right: Expr, infer: InferType) -> RangeCondition | None:
    """Solve `left op right` for the value of one of two sources; None if it is not a sum of one value of each."""
    terms = [*_list_terms(left, 1, infer), *_list_terms(right, -1, infer)]
    values = [(sign, expr) for sign, expr in terms if sources_of(expr)]
    if len(values) != 2 or sorted(len(sources_of(expr)) for _, expr in values) != [1, 1]:
        return None
    if sources_of(values[0][1]) == sources_of(values[1][1]):
        return None
    kinds = [_find_unit(infer(expr)) for _, expr in terms]
    if kinds[0] is None or any(kind != kinds[0] for kind in kinds):
        return None
    constants = [(sign, _constant_value(expr)) for sign, expr in terms if not sources_of(expr)]
    if any(value is None for _, value in constants):
        return None
    total = sum(sign * value for sign, value in constants if value is not None)
    magnitude = sum(abs(value) for _, value in constants if value is not None)
    (sign, x), (other_sign, y) = values
    # sign · x + other_sign · y + total op 0
    return RangeCondition(
        predicate,
        op if sign > 0 else FLIPPED[op],
        x,
        y,
        sign=-sign * other_sign,
        offset=-sign * total,
        magnitude=magnitude,
        is_float=kinds[0] == "float",
        is_solved=True,
    )


def _list_terms(expr: Expr, sign: int, infer: InferType) -> list[tuple[int, Expr]]:
    """Return the terms of a sum with their signs. An expression over one source is a term as a whole."""
    if len(sources_of(expr)) == 1:
        return [(sign, expr)]
    if isinstance(expr, Negate):
        return _list_terms(expr.arg, -sign, infer)
    if isinstance(expr, Arithmetic) and expr.op in ("+", "-"):
        right_sign = sign if expr.op == "+" else -sign
        return [*_list_terms(expr.left, sign, infer), *_list_terms(expr.right, right_sign, infer)]
    if isinstance(expr, Cast) and sources_of(expr) and _keeps_value(infer(expr.arg), expr.type):
        return _list_terms(expr.arg, sign, infer)
    return [(sign, expr)]


def _find_unit(kind: pa.DataType) -> str | None:
    """Return the unit of a type's codes; sums of codes of one unit are codes of sums. None if there is no such unit."""
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_signed_integer(kind) or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 64):
        return "decimal 0"
    if pa.types.is_decimal128(kind):
        return f"decimal {kind.scale}"
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return f"time {kind.unit}"
    return None


def _constant_value(expr: Expr) -> int | float | None:
    """Return a constant in the unit of its type, or None for NULL, NaN and expressions that are no constants."""
    if not isinstance(expr, Literal) and not (isinstance(expr, Cast) and isinstance(expr.arg, Literal)):
        return None
    values = evaluate(expr, _no_columns, 1)
    codes = encode_range(values) if values.null_count == 0 else None
    if codes is None:
        return None
    if pa.types.is_floating(values.type):
        number = float(values[0].as_py())
        return number if np.isfinite(number) else None
    return int(codes[0])


def _no_columns(column: Expr) -> Any:
    raise AssertionError(f"a constant reads {column}")


def encode_range(values: pa.Array[Any]) -> Int64s | None:
    """Return codes that compare like the values, which are not null; None if decimals do not fit into 64 bits.

    The codes of integers, decimals and times are the numbers of their units.
    """
    if not pa.types.is_decimal128(values.type):
        return encode_ordered(values)
    if not len(values):
        return np.empty(0, np.int64)
    words = view_buffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    low, high = words[::2], words[1::2]
    return np.ascontiguousarray(low) if np.array_equal(high, low >> np.int64(63)) else None


def fits_sums(condition: RangeCondition, left: Extent, right: Extent) -> bool:
    """Return whether a condition may be used for values of these extents.

    A condition as written always may. A solved one may if no sum of its values can overflow. NaN on the left of a float
    condition may satisfy a predicate that the range excludes.
    """
    if not condition.is_solved:
        return True
    if condition.is_float:
        return not left.has_nan and left.largest + right.largest + condition.magnitude < _LARGEST_FLOAT
    return int(left.largest) + int(right.largest) + int(condition.magnitude) <= HIGHEST


@dataclass(frozen=True, slots=True)
class Extent:
    """The largest absolute value of an input's finite values, and whether one of them is NaN."""

    largest: int | float = 0
    has_nan: bool = False

    def union(self, other: Extent) -> Extent:
        return Extent(max(self.largest, other.largest), self.has_nan or other.has_nan)


def measure_extent(codes: Int64s, *, is_float: bool) -> Extent:
    """Return the extent of values given by their codes.

    >>> measure_extent(np.array([-5, 3]), is_float=False)
    Extent(largest=5, has_nan=False)
    """
    if not codes.size:
        return Extent()
    if not is_float:
        return Extent(max(abs(int(codes.min())), abs(int(codes.max()))))
    values = decode_floats(codes)
    finite = values[np.isfinite(values)]
    return Extent(float(np.abs(finite).max()) if finite.size else 0.0, bool(np.isnan(values).any()))


def decode_floats(codes: Int64s) -> NDArray[np.float64]:
    """Return the floats of codes: the inverse of `encode_ordered`."""
    return np.where(codes < 0, codes ^ np.int64(HIGHEST), codes).view(np.float64)


def encode_floats(values: NDArray[np.float64]) -> Int64s:
    """Return order-preserving codes of floats that are not NaN."""
    codes = (values + 0.0).view(np.int64)
    return np.where(codes < 0, codes ^ np.int64(HIGHEST), codes)


def tighten_range(condition: RangeCondition, codes: Int64s, lows: Int64s, highs: Int64s) -> None:
    """Tighten the inclusive bounds of the left value, in place, by the codes of the right value.

    >>> lows, highs = np.array([LOWEST]), np.array([HIGHEST])
    >>> x_below_y = RangeCondition(Literal(True, pa.bool_()), "<", Literal(1, pa.int64()), Literal(2, pa.int64()))
    >>> tighten_range(x_below_y, np.array([7]), lows, highs)
    >>> int(lows[0]) == LOWEST, int(highs[0])
    (True, 6)
    """
    if condition.is_solved and condition.is_float:
        _tighten_by_floats(condition, codes, lows, highs)
        return
    bounds = condition.sign * codes + np.int64(condition.offset) if condition.is_solved else codes
    empty = np.zeros(codes.size, np.bool_)
    if condition.op in (">", ">=", "="):
        if condition.op == ">":
            empty |= bounds == HIGHEST
        np.maximum(lows, bounds + (condition.op == ">") * (bounds < HIGHEST), out=lows)
    if condition.op in ("<", "<=", "="):
        if condition.op == "<":
            empty |= bounds == LOWEST
        np.minimum(highs, bounds - (condition.op == "<") * (bounds > LOWEST), out=highs)
    if empty.any():
        lows[empty], highs[empty] = HIGHEST, LOWEST


def _tighten_by_floats(condition: RangeCondition, codes: Int64s, lows: Int64s, highs: Int64s) -> None:
    """Tighten by widened bounds. A right value that is not finite may match any left value."""
    right = decode_floats(codes)
    finite = np.isfinite(right)
    right = np.where(finite, right, 0.0)
    bounds = condition.sign * right + condition.offset
    slack = (np.abs(right) + condition.magnitude) * _ROUNDING + np.finfo(np.float64).tiny
    if condition.op in (">", ">=", "="):
        np.maximum(lows, np.where(finite, encode_floats(bounds - slack), LOWEST), out=lows)
    if condition.op in ("<", "<=", "="):
        np.minimum(highs, np.where(finite, encode_floats(bounds + slack), HIGHEST), out=highs)

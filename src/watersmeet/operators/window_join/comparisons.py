"""Theta conditions a kernel can check: comparisons between an expression over one input and an expression over another.

Both sides become order-preserving int64 codes, so `a.x < b.y + 5` is one integer comparison, and a tree index on `a.x`
can answer it. A NULL side makes the comparison not true, so such rows meet nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import FLIPPED, And, Between, Comparison, Expr, sources_of
from watersmeet.operators.keys import encode_keys


@dataclass(frozen=True, slots=True)
class Theta:
    """`left op right`: value column `left_column` of input `left` against `right_column` of input `right`."""

    op: str
    left: int
    left_column: int
    right: int
    right_column: int

    def seen_from(self, target: int) -> tuple[str, int, int, int] | None:
        """As (op, target's column, other input, its column), with the target on the left."""
        if target == self.left:
            return self.op, self.left_column, self.right, self.right_column
        if target == self.right:
            return FLIPPED[self.op], self.right_column, self.left, self.left_column
        return None


def spread_between(predicates: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Split BETWEEN into the two comparisons it stands for: each is a conjunct of its own."""
    spread: list[Expr] = []
    for predicate in predicates:
        if isinstance(predicate, Between):
            spread += [Comparison(">=", predicate.arg, predicate.low), Comparison("<=", predicate.arg, predicate.high)]
        elif isinstance(predicate, And):
            spread += spread_between(predicate.args)
        else:
            spread.append(predicate)
    return tuple(spread)


def comparison_sides(predicate: Expr) -> tuple[str, Expr, Expr] | None:
    """(op, left, right) of a comparison whose sides read one input each, and not the same one."""
    if not isinstance(predicate, Comparison):
        return None
    left, right = sources_of(predicate.left), sources_of(predicate.right)
    if len(left) != 1 or len(right) != 1 or left == right:
        return None
    return predicate.op, predicate.left, predicate.right


def is_range(predicate: Expr) -> bool:
    """Whether the predicate bounds a value of one input by a value of another, so that a sorted index can answer it."""
    sides = comparison_sides(predicate)
    return sides is not None and sides[0] != "<>"


def is_orderable(kind: pa.DataType) -> bool:
    """Whether values of the type have order-preserving codes of 64 bits."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
    )


def ordered_codes(values: pa.Array) -> NDArray[np.int64]:
    """Codes that compare as the values do; NaN is above every number.

    >>> ordered_codes(pa.array([1.5, float("nan"), -2.0, -0.0])).argsort().tolist()
    [2, 3, 0, 1]
    """
    codes = encode_keys(values)
    if pa.types.is_floating(values.type):
        return np.where(codes < 0, codes ^ np.int64(2**63 - 1), codes)
    if pa.types.is_uint64(values.type):
        return codes ^ np.int64(-(2**63))
    return codes

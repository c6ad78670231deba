"""Predicates between inputs that kernels check: equality classes and theta conditions.

An equality class contains the keys that must be equal, including by transitivity. `a.x = b.x AND b.x = c.x` is one
class with a key on each of three inputs, so a probe can go from any of them to any other.

A theta condition compares an expression over one input with an expression over another. Both sides become
order-preserving int64 codes. `a.x < b.y + 5` is then one integer comparison, and a tree index on `a.x` can answer it. A
NULL side makes the comparison not true, so such rows match nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import FLIPPED, And, Between, Comparison, Expr, sources_of
from watersmeet.operators.keys import encode_keys


@dataclass(frozen=True, slots=True)
class EqualityClasses:
    """Equality classes of a query: `keys[c][i]` is the key of input i in class c.

    `residuals` are the predicates over several inputs that no class covers.
    """

    keys: tuple[dict[int, Expr], ...]
    residuals: tuple[Expr, ...]
    _connections: dict[tuple[int, ...], list[tuple[int, int]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def keys_of(self, number: int) -> tuple[tuple[int, Expr], ...]:
        """Return the (class, key) pairs of an input."""
        return tuple((c, members[number]) for c, members in enumerate(self.keys) if number in members)

    def find_connections(self, target: int, known: list[int]) -> list[tuple[int, int]]:
        """Return the classes that hold a key of the target and of a known input, with the first such input."""
        # A search of orders asks for the same few sets again and again.
        asked = (target, *known)
        found = self._connections.get(asked)
        if found is None:
            found = self._connections[asked] = self._list_connections(target, known)
        return found

    def _list_connections(self, target: int, known: list[int]) -> list[tuple[int, int]]:
        connections = []
        for key_class, members in enumerate(self.keys):
            if target in members:
                provider = next((i for i in known if i in members), None)
                if provider is not None:
                    connections.append((key_class, provider))
        return connections


def build_equality_classes(predicates: tuple[Expr, ...], numbers: dict[str, int]) -> EqualityClasses:
    """Merge equalities between expressions over one input each into classes; all other predicates stay residuals.

    An input has one key per class. An equality that would give it a second one stays a residual, so none is lost.
    """
    classes: list[dict[int, Expr]] = []
    residuals: list[Expr] = []
    for predicate in predicates:
        ends = _equality_sides(predicate, numbers)
        if ends is None or not _merge_equality(classes, ends):
            residuals.append(predicate)
    return EqualityClasses(tuple(classes), tuple(residuals))


def _equality_sides(predicate: Expr, numbers: dict[str, int]) -> dict[int, Expr] | None:
    """Return the two sides of an equality between two inputs, by input; None for any other predicate."""
    if not (isinstance(predicate, Comparison) and predicate.op == "="):
        return None
    sides = [(sources_of(side), side) for side in (predicate.left, predicate.right)]
    if any(len(read) != 1 for read, _ in sides):
        return None
    ends = {numbers[next(iter(read))]: side for read, side in sides}
    return ends if len(ends) == 2 else None


def _merge_equality(classes: list[dict[int, Expr]], ends: dict[int, Expr]) -> bool:
    """Add an equality to the classes of its sides; return False if an input would get two keys in one class."""
    touched = [members for members in classes if any(members.get(i) == key for i, key in ends.items())]
    merged: dict[int, Expr] = {}
    for part in (*touched, ends):
        for number, key in part.items():
            if merged.setdefault(number, key) != key:
                return False
    for members in touched:
        classes.remove(members)
    classes.append(merged)
    return True


@dataclass(frozen=True, slots=True)
class Theta:
    """`left op right`: value column `left_column` of input `left` compared with `right_column` of input `right`."""

    op: str
    left: int
    left_column: int
    right: int
    right_column: int

    def orient_to(self, target: int) -> tuple[str, int, int, int] | None:
        """Return (op, target's column, other input, its column), with the target on the left."""
        if target == self.left:
            return self.op, self.left_column, self.right, self.right_column
        if target == self.right:
            return FLIPPED[self.op], self.right_column, self.left, self.left_column
        return None


def split_betweens(predicates: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Split BETWEEN into its two comparisons, each a separate conjunct."""
    comparisons: list[Expr] = []
    for predicate in predicates:
        if isinstance(predicate, Between):
            comparisons += [
                Comparison(">=", predicate.arg, predicate.low),
                Comparison("<=", predicate.arg, predicate.high),
            ]
        elif isinstance(predicate, And):
            comparisons += split_betweens(predicate.args)
        else:
            comparisons.append(predicate)
    return tuple(comparisons)


def split_comparison(predicate: Expr) -> tuple[str, Expr, Expr] | None:
    """Return (op, left, right) of a comparison whose sides read one input each, and different ones."""
    if not isinstance(predicate, Comparison):
        return None
    left, right = sources_of(predicate.left), sources_of(predicate.right)
    if len(left) != 1 or len(right) != 1 or left == right:
        return None
    return predicate.op, predicate.left, predicate.right


def is_range(predicate: Expr) -> bool:
    """Return whether the predicate bounds a value of one input by another input: a sorted index can answer it."""
    sides = split_comparison(predicate)
    return sides is not None and sides[0] != "<>"


def is_orderable(kind: pa.DataType) -> bool:
    """Return whether values of the type have order-preserving codes of 64 bits."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_boolean(kind)
    )


def fill_with_zero(values: pa.Array[Any]) -> pa.Array[Any]:
    """Return the values with zero in place of null. The zero of a time is its epoch.

    >>> fill_with_zero(pa.array([None, 1], pa.date32())).cast(pa.int32()).to_pylist()
    [0, 1]
    """
    if not values.null_count:
        return values
    zero: pa.Scalar[Any]
    if pa.types.is_temporal(values.type):
        zero = pa.array([0], pa.int32() if values.type.bit_width == 32 else pa.int64()).view(values.type)[0]
    elif pa.types.is_decimal(values.type):
        zero = pa.scalar(Decimal(0), values.type)
    else:
        zero = pa.scalar(0).cast(values.type, safe=False)
    return values.fill_null(zero)


def encode_ordered(values: pa.Array[Any]) -> NDArray[np.int64]:
    """Return codes that compare like the values; NaN is above every number.

    >>> encode_ordered(pa.array([1.5, float("nan"), -2.0, -0.0])).argsort().tolist()
    [2, 3, 0, 1]
    """
    codes = encode_keys(values)
    if pa.types.is_floating(values.type):
        return np.where(codes < 0, codes ^ np.int64(2**63 - 1), codes)
    if pa.types.is_uint64(values.type):
        return codes ^ np.int64(-(2**63))
    return codes

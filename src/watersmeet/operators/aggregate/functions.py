"""The aggregate functions: what a group keeps for each, how the result follows, and how kept rows estimate it.

`sql.functions` has a row for each of them too: its types.

Measures are the columns of numbers that are summed for an aggregate, row by row and group by group, in any order.
Integers are summed modulo 2⁶⁴ with an approximation next to them. As long as the approximation is off by less than 2⁶³,
the two give the exact sum. So an overflow is always detected, and only if the sum itself overflows. Decimals are three
such sums of 60 bits each. Float64s are summed as pairs of doubles. NaN and the infinities are counted instead, because
they could never be subtracted again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import view_buffer
from watersmeet.algebra.expressions import Aggregate, Expr
from watersmeet.errors import InternalError, QueryError
from watersmeet.operators.expressions.casts import decimals_to_doubles
from watersmeet.operators.expressions.rows import expression_excerpt
from watersmeet.operators.shed.estimates import Estimates, SampledJoin

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]

LIMB_BITS = 60
_LIMBS = 3


class GroupState(Enum):
    """State of a group for one aggregate: the number of values, their sum as well, or the values in order."""

    COUNT = auto()
    SUM = auto()
    EXTREME = auto()


def _keep_sums(sums: pa.Array[Any], counts: Int64s) -> pa.Array[Any]:
    return sums


def _divide_by_counts(sums: pa.Array[Any], counts: Int64s) -> pa.Array[Any]:
    is_empty = counts == 0
    if pa.types.is_decimal(sums.type):
        sums = decimals_to_doubles(sums)
    numbers = np.asarray(sums.fill_null(0).to_numpy(zero_copy_only=False), np.float64)
    return pa.array(numbers / np.where(is_empty, 1, counts), mask=is_empty)


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate of what a group `keeps`.

    `finish` turns the sum and the number of values of each group into the result. `estimate` does the same with the
    combinations of kept rows. An extreme is the smallest value, or the `largest`.
    """

    keeps: GroupState
    finish: Callable[[pa.Array[Any], Int64s], pa.Array[Any]] = _keep_sums
    estimate: Callable[[SampledJoin, Float64s, Bools], Estimates] = SampledJoin.estimate_sum
    largest: bool = False

    @property
    def bound(self) -> str | None:
        """Meaning of an extreme of kept values for all values. Other aggregates of kept values are estimates."""
        if self.keeps is not GroupState.EXTREME:
            return None
        return "at least" if self.largest else "at most"


def find_function(aggregate: Aggregate) -> AggregateFunction:
    """Return the function of an aggregate."""
    return AGGREGATE_FUNCTIONS[aggregate.function]


def is_extreme(aggregate: Aggregate) -> bool:
    """Return whether groups keep the values of an aggregate in order."""
    return find_function(aggregate).keeps is GroupState.EXTREME


AGGREGATE_FUNCTIONS: dict[str, AggregateFunction] = {
    "COUNT": AggregateFunction(GroupState.COUNT),
    "SUM": AggregateFunction(GroupState.SUM),
    "AVG": AggregateFunction(GroupState.SUM, finish=_divide_by_counts, estimate=SampledJoin.estimate_mean),
    "MIN": AggregateFunction(GroupState.EXTREME),
    "MAX": AggregateFunction(GroupState.EXTREME, largest=True),
}


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """Number of columns of each sort that a measure takes: integers, their approximations, floats."""

    name: str
    ints: int
    approx: int
    pairs: int


#: Kinds of measures. The number of values always comes first; COUNT_ONLY has nothing else.
COUNT_ONLY = MeasureKind("count", 1, 0, 0)
INTEGER = MeasureKind("integer", 2, 1, 0)
DECIMAL = MeasureKind("decimal", 1 + _LIMBS, _LIMBS, 0)
FLOAT = MeasureKind("float", 4, 0, 1)


@dataclass(frozen=True, slots=True)
class Measure:
    """Argument of COUNT, SUM or AVG.

    `owner` is the input whose attributes it reads; None if it reads several inputs.
    """

    arg: Expr
    owner: int | None
    kind: MeasureKind
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class MeasureColumns:
    """Columns of numbers, one row each: integers, approximations, floats."""

    ints: Int64s
    approx: Float64s
    floats: Float64s


def measure_kind_of(type_: pa.DataType) -> MeasureKind:
    """Return the kind of measure that sums values of this type."""
    if pa.types.is_floating(type_):
        return FLOAT
    if pa.types.is_decimal(type_):
        return DECIMAL
    return INTEGER


def encode_measure(kind: MeasureKind, values: pa.Array[Any]) -> MeasureColumns:
    """Return the numbers that each value adds.

    >>> encode_measure(INTEGER, pa.array([5, None])).ints.tolist()
    [[1, 5], [0, 0]]
    """
    present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.int64)
    ints = np.zeros((present.size, kind.ints), np.int64)
    approx = np.zeros((present.size, kind.approx), np.float64)
    floats = np.zeros((present.size, kind.pairs), np.float64)
    ints[:, 0] = present
    if kind == INTEGER:
        ints[:, 1] = _to_integers(values)
        approx[:, 0] = ints[:, 1]
    elif kind == DECIMAL:
        ints[:, 1:] = _split_into_limbs(values)
        approx[:] = ints[:, 1:]
    elif kind == FLOAT:
        _encode_floats(values, ints, floats)
    return MeasureColumns(ints, approx, floats)


def multiply_by_weights(numbers: MeasureColumns, weights: Int64s) -> MeasureColumns:
    """Multiply each row by its weight; floats become pairs of doubles."""
    factors = weights.astype(np.float64)[:, None]
    pairs = np.zeros((weights.size, 2 * numbers.floats.shape[1]), np.float64)
    pairs[:, ::2] = numbers.floats * factors
    with np.errstate(over="ignore"):
        return MeasureColumns(numbers.ints * weights[:, None], numbers.approx * factors, pairs)


def decode_totals(measure: Measure, ints: Int64s, approx: Float64s, pairs: Float64s) -> pa.Array[Any]:
    """Return the sum of each group in the measure's type; null if it has no value.

    A sum that does not fit its type is the caller's error.
    """
    is_empty = ints[:, 0] == 0
    if measure.kind == FLOAT:
        return pa.array(_float_totals(ints, pairs), mask=is_empty)
    if measure.kind == DECIMAL:
        return _decimal_totals(measure, ints, approx, is_empty)
    if measure.kind == INTEGER:
        if np.any(_has_wrapped(ints[:, 1], approx[:, 0])):
            raise sum_overflow_error(measure, "integer")
        return pa.array(ints[:, 1], mask=is_empty).cast(measure.type)
    raise InternalError("a count has no sum")


def sum_overflow_error(measure: Measure, noun: str) -> QueryError:
    """Return the error for a sum that does not fit its type."""
    return QueryError(
        f"{noun} overflow in the sum of {expression_excerpt(_strip_cast(measure.arg))}", span=measure.arg.span
    )


def _strip_cast(arg: Expr) -> Expr:
    """Return the argument as the caller wrote it, without the widening cast of SUM."""
    from watersmeet.algebra.expressions import Cast

    return arg.arg if isinstance(arg, Cast) else arg


def _to_integers(values: pa.Array[Any]) -> Int64s:
    plain = values.view(pa.int64()) if pa.types.is_duration(values.type) else values
    return np.asarray(plain.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _split_into_limbs(values: pa.Array[Any]) -> Int64s:
    """Split unscaled decimals into limbs of 60 bits, the last one signed, directly from Arrow's 128 bits."""
    raw = values.fill_null(Decimal(0)) if values.null_count else values
    buffer = raw.buffers()[1]
    words = view_buffer(buffer, np.uint64)[2 * raw.offset : 2 * (raw.offset + len(raw))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1].view(np.int64)
    mask = np.uint64((1 << LIMB_BITS) - 1)
    first = low & mask
    second = ((low >> np.uint64(LIMB_BITS)) | (high.view(np.uint64) << np.uint64(64 - LIMB_BITS))) & mask
    third = high >> np.int64(2 * LIMB_BITS - 64)
    return np.stack([first.view(np.int64), second.view(np.int64), third], axis=1)


def _encode_floats(values: pa.Array[Any], ints: Int64s, floats: Float64s) -> None:
    numbers = np.array(values.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    finite = np.isfinite(numbers)
    ints[:, 1] = np.isnan(numbers)
    ints[:, 2] = numbers == np.inf
    ints[:, 3] = numbers == -np.inf
    floats[:, 0] = np.where(finite, numbers, 0.0)


def _float_totals(ints: Int64s, pairs: Float64s) -> Float64s:
    sums = pairs[:, 0] + pairs[:, 1]
    up, down = ints[:, 2] > 0, ints[:, 3] > 0
    sums = np.where(up, np.inf, np.where(down, -np.inf, sums))
    return np.where((ints[:, 1] > 0) | (up & down), np.nan, sums)


def _has_wrapped(wrapped: Int64s, approx: Float64s) -> NDArray[np.bool_]:
    return np.asarray(np.rint((approx - wrapped.astype(np.float64)) / 2.0**64) != 0)


def recover_exact_sum(wrapped: int, approx: float) -> int:
    """Return the integer that is `wrapped` modulo 2⁶⁴ and closest to `approx`.

    >>> recover_exact_sum(-(2**63), 9.3e18) == 2**63
    True
    """
    return wrapped + (round((approx - wrapped) / 2.0**64) << 64)


def _decimal_totals(measure: Measure, ints: Int64s, approx: Float64s, is_empty: NDArray[np.bool_]) -> pa.Array[Any]:
    kind = cast("pa.Decimal128Type[Any, Any]", measure.type)
    totals: list[Any] = []
    for row, is_null in enumerate(is_empty):
        limbs = [recover_exact_sum(int(ints[row, 1 + limb]), float(approx[row, limb])) for limb in range(_LIMBS)]
        unscaled = sum(limb << (LIMB_BITS * place) for place, limb in enumerate(limbs))
        if abs(unscaled) >= 10**kind.precision:
            raise sum_overflow_error(measure, "decimal")
        totals.append(None if is_null else _build_decimal(unscaled, kind.scale))
    return pa.array(totals, measure.type)


def _build_decimal(unscaled: int, scale: int) -> Decimal:
    sign, digits = int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((sign, digits, -scale))

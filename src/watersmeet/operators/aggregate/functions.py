"""The aggregate functions: what a group keeps for each, how the result follows, and how kept rows estimate it.

`sql.functions` has a row for each of them too: its types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Aggregate
from watersmeet.operators.expressions.casts import decimals_to_doubles
from watersmeet.operators.shed.estimates import Estimates, SampledJoin

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
    estimate: Callable[[SampledJoin, Floats, Bools], Estimates] = SampledJoin.estimate_sum
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

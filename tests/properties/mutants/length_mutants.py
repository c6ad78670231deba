"""Mutants of windows of length 0: each replaces the instant by one microsecond."""

from __future__ import annotations

from typing import Any

from tests.properties.mutants.mutant import Mutant, Original, Patch
from watersmeet.algebra import query
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import RangeWindow
from watersmeet.operators.aggregate import encoding


def _range_of_a_microsecond(own_length_us: Original) -> Original:
    return lambda window, every_us: own_length_us(_at_least_one(window), every_us)


def _valid_for_a_microsecond(ends_of: Original) -> Original:
    return lambda window, times, every_us: ends_of(_at_least_one(window), times, every_us)


def _at_least_one(window: Any) -> Any:
    return RangeWindow(1) if window == RangeWindow(0) else window


def _pairs_of_a_microsecond(given: Any) -> Any:
    """Replace 0 by 1 in both directions, for pairs that must share one instant."""

    def change(bound: BoundQuery) -> list[list[int]]:
        found: list[list[int]] = given.fget(bound)
        for i, row in enumerate(found):
            for j in range(i):
                if row[j] == found[j][i] == 0:
                    row[j] = found[j][i] = 1
        return found

    return property(change)


JOIN_LENGTH_MUTANTS = (
    Mutant("RANGE 0 holds a microsecond", (Patch(query, "_longest_validity_us", _range_of_a_microsecond),)),
    Mutant(
        "rows of equal times may be a microsecond apart",
        (Patch(BoundQuery, "given_bounds_us", _pairs_of_a_microsecond),),
    ),
)
AGGREGATION_LENGTH_MUTANTS = (
    Mutant("a row in RANGE 0 is valid for a microsecond", (Patch(encoding, "row_ends_us", _valid_for_a_microsecond),)),
)

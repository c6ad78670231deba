"""Partition of two inputs by ranges of a value, with overlap, for bands and inequalities.

The rows of one input are placed: a row goes to the range that holds its value. The rows of the other input are spread:
a row goes to every range that may hold a value within its bounds. So a pair that satisfies the conditions meets in
exactly one range, wherever the boundaries are. A narrow band copies only rows whose bounds lie across a boundary. An
inequality copies about half as many rows as a copy to every range.

The boundaries are quantiles of the placed values of the rows that are available before the first batch. They never
change: rows in state would have to move. So the grid is stored from batch 0 on, with its boundaries.

A pair that never meets raises no error. So conditions are used only if their predicates cannot raise on a pair. A
comparison of one value of each input, as written, cannot. A solved condition, such as one of `ABS(a.x - b.x) <= 5`, is
used if all rows are known and no sum of theirs can overflow.

References: DeWitt, Naughton, Schneider, "An Evaluation of Non-Equijoin Algorithms", 1991: partitioned band joins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import null_array
from watersmeet.algebra.expressions import Column, Expr, sources_of
from watersmeet.errors import InternalError
from watersmeet.operators.expressions import evaluate, evaluate_or_null
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.join_predicates import fill_with_zero
from watersmeet.operators.window_join.range_conditions import (
    HIGHEST,
    LOWEST,
    Extent,
    RangeCondition,
    encode_range,
    fits_sums,
    measure_extent,
    tighten_range,
)
from watersmeet.operators.window_join.tactics.sorted_ranges import list_range_conditions

Int64s = NDArray[np.int64]
ReadColumn = Callable[[Column], "pa.Array[Any]"]

#: Rows of each input that boundaries are chosen from.
SAMPLED_ROWS = 20_000
#: Most rows that a range may have, in even shares. With more, one bucket would do most of the work.
_MAX_SKEW = 1.5
#: Decimals with at most this many digits have codes of 64 bits, and so do sums of two of them.
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ValueRanges:
    """Ranges of the value `conditions[0].left` of input `placed`; rows of input `spread` have bounds on it.

    Range r contains the codes from `boundaries[r - 1]` up to, but not including, `boundaries[r]`.
    """

    placed: int
    spread: int
    conditions: tuple[RangeCondition, ...]
    boundaries: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        """Text that is the same for equal boundaries only."""
        return hashlib.sha256(np.array(self.boundaries, "<i8").tobytes()).hexdigest()[:16]

    def place(self, read: ReadColumn, rows: int) -> Int64s:
        """Return the range of each row of the placed input. A row without a value matches nothing."""
        return self._find(read_codes(self.conditions[0].left, read, rows)[0])

    def spread_over(self, read: ReadColumn, rows: int) -> tuple[Int64s, Int64s]:
        """Return the first and the last range of each row of the other input.

        A row without bounds matches nothing and has one range, where it is counted.
        """
        lows, highs = np.full(rows, LOWEST, np.int64), np.full(rows, HIGHEST, np.int64)
        valid = np.ones(rows, np.bool_)
        for each in self.conditions:
            codes, found = read_codes(each.right, read, rows)
            tighten_range(each, codes, lows, highs)
            valid &= found
        first, last = self._find(lows), self._find(highs)
        return first, np.where(valid & (lows <= highs), last, first)

    def _find(self, codes: Int64s) -> Int64s:
        return np.searchsorted(np.array(self.boundaries, np.int64), codes, side="right").astype(np.int64)


def read_codes(expr: Expr, read: ReadColumn, rows: int) -> tuple[Int64s, NDArray[np.bool_]]:
    """Return order-preserving codes of a value, and which rows have one. The others have the code of zero.

    A row on which the expression raises has no value: its bucket decides whether the error counts.
    """
    values, _ = evaluate_or_null(expr, read, rows)
    if pa.types.is_null(values.type):  # no row has a value
        return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    codes = encode_range(fill_with_zero(values))
    if codes is None:
        raise InternalError("a partition by values without codes of 64 bits")
    return codes, valid


def list_value_ranges(config: JoinConfig) -> list[ValueRanges]:
    """List the partitions by value that a query can have, without boundaries, for streams only.

    The list depends on the query alone, so a stored grid names a partition by its number.
    """
    conditions = [each for each in list_range_conditions(config) if _fits_64_bits(config, each)]
    found: list[ValueRanges] = []
    for placed, spread in permutations(config.stream_inputs, 2):
        by_value: dict[Expr, tuple[RangeCondition, ...]] = {}
        for each in conditions:
            oriented = each.orient_to(config.inputs[placed].alias)
            if oriented is not None and sources_of(oriented.right) == {config.inputs[spread].alias}:
                by_value[oriented.left] = (*by_value.get(oriented.left, ()), oriented)
        found += [ValueRanges(placed, spread, each) for each in by_value.values()]
    return found


def choose_boundaries(
    config: JoinConfig, ranges: ValueRanges, share: int, tables: Mapping[str, pa.Table], *, is_complete: bool
) -> SampledRanges | None:
    """Return a partition into `share` ranges and what it costs the sampled rows.

    There is none if an input has no rows or no condition may be used. Skewed values have none, too, if a range would
    have more than one and a half times its share of the rows.

    `is_complete` means that the tables have all rows.
    """
    sampled = [_sample(config, number, tables, is_complete=is_complete) for number in (ranges.placed, ranges.spread)]
    if any(table is None or not table.num_rows for table in sampled):
        return None
    placed, spread = ((_read_from(table), table.num_rows) for table in sampled if table is not None)
    usable = tuple(
        each for each in ranges.conditions if not each.is_solved or (is_complete and _fits(each, placed, spread))
    )
    if not usable:
        return None
    codes, valid = read_codes(usable[0].left, *placed)
    values = np.sort(codes[valid])
    if not values.size:
        return None
    boundaries = values[np.arange(1, share) * values.size // share]
    chosen = replace(ranges, conditions=usable, boundaries=tuple(boundaries.tolist()))
    counts = np.bincount(chosen.place(*placed), minlength=share)
    first, last = chosen.spread_over(*spread)
    edges = np.bincount(first, minlength=share + 1) - np.bincount(last + 1, minlength=share + 1)
    copied = np.cumsum(edges)[:share]
    copies = float(copied.sum() / spread[1])
    if counts.max() * share > _MAX_SKEW * placed[1] or copied.max() * share > _MAX_SKEW * copied.sum():
        return None
    return SampledRanges(chosen, copies)


@dataclass(frozen=True, slots=True)
class SampledRanges:
    """A partition, and the mean number of ranges that a row of the spread input goes to."""

    ranges: ValueRanges
    copies: float


def _sample(config: JoinConfig, number: int, tables: Mapping[str, pa.Table], *, is_complete: bool) -> pa.Table | None:
    """Return every n-th row of an input; all rows if they show which conditions may be used."""
    table = tables.get(config.inputs[number].name)
    if table is None or is_complete or table.num_rows <= SAMPLED_ROWS:
        return table
    return table.take(np.linspace(0, table.num_rows - 1, SAMPLED_ROWS).astype(np.int64))


def _read_from(table: pa.Table) -> ReadColumn:
    def read(column: Column) -> pa.Array[Any]:
        values = table.column(column.name).combine_chunks()
        return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values

    return read


def _fits_64_bits(config: JoinConfig, condition: RangeCondition) -> bool:
    kinds = [evaluate(expr, _no_rows(config), 0).type for expr in (condition.left, condition.right)]
    return all(not pa.types.is_decimal(kind) or kind.precision <= _MAX_DIGITS for kind in kinds)


def _fits(condition: RangeCondition, placed: tuple[ReadColumn, int], spread: tuple[ReadColumn, int]) -> bool:
    """Return whether no sum over the rows of both inputs can overflow."""
    extents = [
        _measure(expr, rows, is_float=condition.is_float)
        for expr, rows in ((condition.left, placed), (condition.right, spread))
    ]
    return fits_sums(condition, *extents)


def _measure(expr: Expr, rows: tuple[ReadColumn, int], *, is_float: bool) -> Extent:
    codes, valid = read_codes(expr, *rows)
    return measure_extent(codes[valid], is_float=is_float)


def _no_rows(config: JoinConfig) -> ReadColumn:
    fields = {each.alias: each.fields for each in config.inputs}

    def read(column: Column) -> pa.Array[Any]:
        if column.source is None:
            raise InternalError(f'column "{column.name}" was never bound')
        return null_array(0, fields[column.source].field(column.name).type)

    return read

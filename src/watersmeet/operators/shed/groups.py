"""Rows of estimated groups: keys, aggregates with standard errors or bounds, expressions over them, and HAVING."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import null_array
from watersmeet.algebra.expressions import Aggregate, Column, Expr
from watersmeet.errors import PlanError
from watersmeet.operators.aggregate.config import GROUP, GroupOutputs, aggregate_name, key_name
from watersmeet.operators.aggregate.functions import GroupState, find_function, is_extreme
from watersmeet.operators.expressions import evaluate, is_true
from watersmeet.operators.expressions.casts import convert
from watersmeet.operators.ordering import rank_values
from watersmeet.operators.shed.estimates import Estimates, SampledJoin

Int64s = NDArray[np.int64]
Key = tuple[Any, ...]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class EstimatedGroups:
    """Groups by key values: the value of each aggregate per group, and its standard error if it has one."""

    group_outputs: GroupOutputs
    types: dict[str, pa.DataType]  # of keys and aggregates, by their column
    keys: list[pa.Array[Any]]
    values: list[pa.Array[Any]]
    errors: list[pa.Array[Any] | None]
    size: int

    def rows(self) -> Iterator[tuple[Key, Row, bool]]:
        """Yield each group's key, its row, and whether HAVING accepts it."""
        holds = (
            np.ones(self.size, np.bool_)
            if self.group_outputs.having is None
            else is_true(self.group_outputs.having, self._column, self.size)
        )
        columns = [
            column.to_pylist() for output in self.group_outputs.outputs for column in self._output_columns(output.expr)
        ]
        identities = [[_to_hashable(value) for value in key.to_pylist()] for key in self.keys]
        for number in range(self.size):
            yield (
                tuple(each[number] for each in identities),
                tuple(each[number] for each in columns),
                bool(holds[number]),
            )

    def _output_columns(self, expr: Expr) -> list[pa.Array[Any]]:
        number = find_bare_aggregate(self.group_outputs, expr)
        if number is None:
            return [evaluate(expr, self._column, self.size)]
        error = self.errors[number]
        if error is not None:
            return [self.values[number], error]
        bound = find_function(self.group_outputs.aggregates[number]).bound
        return [self.values[number], pa.array([bound] * self.size)]

    def _column(self, reference: Column) -> pa.Array[Any]:
        """Return a column of the groups' rows, in the type the query was bound with.

        Expressions and HAVING treat estimates as values.
        """
        for number in range(len(self.keys)):
            if reference.name == key_name(number):
                return self.keys[number]
        number = next(n for n in range(len(self.values)) if reference.name == aggregate_name(n))
        return _round_to_type(self.values[number], self.types[reference.name])


def find_bare_aggregate(shown: GroupOutputs, expr: Expr) -> int | None:
    """Return the number of the aggregate that an output consists of; None if the output is any other expression."""
    if not isinstance(expr, Column) or expr.source != GROUP:
        return None
    return next((number for number in range(len(shown.aggregates)) if expr.name == aggregate_name(number)), None)


def build_result_fields(shown: GroupOutputs, types: dict[str, pa.DataType]) -> list[tuple[str, pa.DataType]]:
    """Return names and types of the outputs.

    An estimate is a floating-point number with `_stderr` next to it. An extreme has `_bound` next to it.
    """
    found: list[tuple[str, pa.DataType]] = []
    for output in shown.outputs:
        number = find_bare_aggregate(shown, output.expr)
        if number is None:
            kind = evaluate(output.expr, lambda column: null_array(0, _value_type(types[column.name])), 0).type
            found.append((output.name, kind))
        elif is_extreme(shown.aggregates[number]):
            found += [(output.name, _value_type(types[aggregate_name(number)])), (f"{output.name}_bound", pa.string())]
        else:
            found += [(output.name, pa.float64()), (f"{output.name}_stderr", pa.float64())]
    return found


def estimate_groups(
    shown: GroupOutputs, types: dict[str, pa.DataType], table: pa.Table, sampled_by: Any
) -> EstimatedGroups:
    """Group combinations and estimate their aggregates; `sampled_by` turns group numbers into a sampled join."""
    keys = [_combine_column(table, key_name(number)) for number in range(len(shown.keys))]
    group, first = number_groups(keys, table.num_rows)
    sampled: SampledJoin = sampled_by(group, first.size)
    found = [_estimate_aggregate(each, number, table, sampled) for number, each in enumerate(shown.aggregates)]
    own = [key.take(first) for key in keys]
    return EstimatedGroups(shown, types, own, [value for value, _ in found], [error for _, error in found], first.size)


def build_empty_groups(
    shown: GroupOutputs, types: dict[str, pa.DataType], keys: list[tuple[Any, ...]]
) -> EstimatedGroups:
    """Return groups that have no combinations left: COUNT 0, NULL for the rest."""
    size = len(keys)
    columns = [
        pa.array([key[number] for key in keys], _value_type(types[key_name(number)]))
        for number in range(len(shown.keys))
    ]
    values: list[pa.Array[Any]] = []
    errors: list[pa.Array[Any] | None] = []
    for number, each in enumerate(shown.aggregates):
        if is_extreme(each):
            values.append(null_array(size, _value_type(types[aggregate_name(number)])))
            errors.append(None)
        else:
            nothing = pa.array([0.0 if find_function(each).keeps is GroupState.COUNT else None] * size, pa.float64())
            values.append(nothing)
            errors.append(nothing)
    return EstimatedGroups(shown, types, columns, values, errors, size)


def number_groups(keys: list[pa.Array[Any]], rows: int) -> tuple[Int64s, Int64s]:
    """Return the group number of each row, and the first row of each group.

    NULLs form one group, and so do NaNs. Without keys there is one group.
    """
    if not keys:
        return np.zeros(rows, np.int64), np.zeros(1, np.int64)
    codes = np.stack([rank_values(key) for key in keys], axis=1)
    _, first, group = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return np.asarray(group.reshape(-1), np.int64), np.asarray(first, np.int64)


def _estimate_aggregate(
    aggregate: Aggregate, number: int, table: pa.Table, sampled: SampledJoin
) -> tuple[pa.Array[Any], pa.Array[Any] | None]:
    if aggregate.arg is None:
        return _to_arrays(sampled.estimate_count(), np.zeros(sampled.groups, np.bool_))
    values = _combine_column(table, aggregate_name(number))
    present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    function = find_function(aggregate)
    if function.keeps is GroupState.EXTREME:
        return _find_extremes(values, present, sampled.group, sampled.groups, largest=function.largest), None
    if function.keeps is GroupState.COUNT:
        estimates = function.estimate(sampled, np.ones(present.size), present)
        return _to_arrays(estimates, np.zeros(sampled.groups, np.bool_))
    missing = np.bincount(sampled.group, present, sampled.groups) == 0
    return _to_arrays(function.estimate(sampled, _to_floats(values), present), missing)


def _to_arrays(found: Estimates, missing: NDArray[np.bool_]) -> tuple[pa.Array[Any], pa.Array[Any]]:
    return pa.array(found.values, mask=missing), pa.array(found.stderrs, mask=missing)


def _find_extremes(
    values: pa.Array[Any], present: NDArray[np.bool_], group: Int64s, groups: int, *, largest: bool
) -> pa.Array[Any]:
    """Return the last, or first, value of each group in the order of values; null if it has none."""
    rows = np.flatnonzero(present)
    codes = rank_values(values)[rows] * (1 if largest else -1)
    order = np.lexsort([codes, group[rows]])
    chosen = np.full(groups, -1, np.int64)
    chosen[group[rows][order]] = rows[order]  # the last row written for a group wins
    return values.take(pa.array(chosen, pa.int64(), mask=chosen < 0))


def _to_floats(values: pa.Array[Any]) -> NDArray[np.float64]:
    if pa.types.is_duration(values.type):
        raise PlanError(
            "sums of intervals cannot be estimated", hint="sum a number of seconds instead, or drop nothing"
        )
    return np.asarray(convert(values, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)


def _round_to_type(values: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return estimates rounded to the type that the aggregate has without shedding."""
    if values.type == kind or not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return values.cast(kind)
    if pa.types.is_integer(kind):
        return pa.array([None if each is None else round(each) for each in values.to_pylist()], kind)
    places = decimal.Decimal(1).scaleb(-kind.scale)
    return pa.array(
        [None if each is None else decimal.Decimal(each).quantize(places) for each in values.to_pylist()], kind
    )


def _combine_column(table: pa.Table, name: str) -> pa.Array[Any]:
    column = table.column(name)
    found = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return found.cast(found.type.value_type) if pa.types.is_dictionary(found.type) else found


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _to_hashable(value: Any) -> Any:
    """Return a key value that equals itself even if it is NaN."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value

"""Encoding of input rows for the kernels: select rows, encode keys and attributes, convert arguments, set row ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import index_array
from watersmeet.algebra.expressions import Column, Expr, columns_of
from watersmeet.operators.aggregate.codes import Attributes, OrderCodes, ValueCodes
from watersmeet.operators.aggregate.config import AggregateConfig, MeasureLayout
from watersmeet.operators.aggregate.functions import encode_measure
from watersmeet.operators.aggregate.window_rows import OUTSIDE, WindowRows, row_ends_us
from watersmeet.operators.expressions import all_true, evaluate
from watersmeet.operators.window_join.admission import ReleasedRows
from watersmeet.operators.window_join.join_predicates import encode_ordered

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Evaluate = Callable[[Expr], "pa.Array[Any]"]


def encode_rows(
    config: AggregateConfig,
    layout: MeasureLayout,
    number: int,
    released: ReleasedRows,
    classes: list[ValueCodes],
    attributes: Attributes,
    orders: list[OrderCodes],
) -> WindowRows:
    """Encode the rows that can contribute to a result. A row with a NULL key or a NULL compared value matches nothing.

    Keys, arguments and group keys are evaluated on the rows that pass the source's own predicates, and on no others.
    """
    source = config.join.inputs[number]
    value, chosen = _select_rows(config, number, released)
    size = chosen.size
    words = np.zeros((size, len(classes)), np.int64)
    for key_class, key in source.keys:
        words[:, key_class] = classes[key_class].encode(value(key))
    first = len(config.join.classes.keys)
    ranges = np.zeros((size, sum(len(each.ranges) for each in config.join.inputs)), np.int64)
    for column, expr in source.ranges:
        ranges[:, column - first] = encode_ordered(value(expr))
    extremes, has_extreme = np.zeros((size, len(orders)), np.int64), np.zeros((size, len(orders)), np.bool_)
    for place, extreme in enumerate(config.extremes):
        if extreme.owner == number:
            found = value(extreme.arg)
            extremes[:, place] = orders[place].encode(found)
            has_extreme[:, place] = found.is_valid().to_numpy(zero_copy_only=False)
    ints, approx, floats = _encode_measures(config, layout, number, value, size)
    times = released.times[chosen]
    return WindowRows(
        times=times,
        ends=_row_ends_us(config, number, times) if released.ends is None else released.ends[chosen],
        seqs=np.zeros(size, np.int64) if released.seqs is None else released.seqs[chosen],
        words=words,
        carried=attributes.number_rows([value(each) for each in config.carried[number].attributes], size),
        ranges=ranges,
        extremes=extremes,
        has_extreme=has_extreme,
        ints=ints,
        approx=approx,
        floats=floats,
        entry=np.full(size, OUTSIDE, np.int64),
    )


def _row_ends_us(config: AggregateConfig, number: int, times: Int64s) -> Int64s:
    """Return the last instant at which each row is in its window, or is needed if it never leaves."""
    forget_after_us = config.forget_after_us[number]
    if forget_after_us is not None:
        return times + forget_after_us
    return row_ends_us(config.inputs[number].window, times, config.every_us)


def _select_rows(config: AggregateConfig, number: int, released: ReleasedRows) -> tuple[Evaluate, Int64s]:
    """Return an evaluator over the rows that can contribute to a result, and the numbers of those rows."""
    source = config.join.inputs[number]
    size = released.times.size
    chosen = np.arange(size)
    if source.selection is not None:
        chosen = np.flatnonzero(all_true(source.own_predicates, _column_getter(released.table), size))
    names = _list_columns_read(config, number)
    table = released.table if chosen.size == size or not names else released.table.select(names).take(chosen)
    value = _caching_evaluator(table, chosen.size)
    for operand in source.operands:
        value(operand)
    keep = np.ones(chosen.size, np.bool_)
    for expr in (*(key for _, key in source.keys), *(expr for _, expr in source.ranges)):
        found = value(expr)
        if found.null_count:
            keep &= np.asarray(found.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if released.ends is not None:
        keep &= released.ends[chosen] >= released.times[chosen]  # evicted by rows of the same instant: never visible
    if keep.all():
        return value, chosen
    kept = index_array(np.flatnonzero(keep))
    return lambda expr: value(expr).take(kept), chosen[keep]


def _list_columns_read(config: AggregateConfig, number: int) -> list[str]:
    source = config.join.inputs[number]
    exprs = [*(key for _, key in source.keys), *(expr for _, expr in source.ranges), *source.operands]
    read = [column.name for expr in exprs for column in columns_of(expr)]
    return list(dict.fromkeys([*source.columns, *read]))


def _column_getter(table: pa.Table) -> Callable[[Column], pa.Array[Any]]:
    def column(reference: Column) -> pa.Array[Any]:
        found = table.column(reference.name)
        # The stubs type a chunk as a ChunkedArray.
        return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()  # type: ignore[return-value]

    return column


def _caching_evaluator(table: pa.Table, size: int) -> Evaluate:
    """Return an evaluator over the table that evaluates each expression once."""
    found: dict[Expr, pa.Array[Any]] = {}
    columns = _column_getter(table)

    def value(expr: Expr) -> pa.Array[Any]:
        if expr not in found:
            found[expr] = evaluate(expr, columns, size)
        return found[expr]

    return value


def _encode_measures(
    config: AggregateConfig, layout: MeasureLayout, number: int, value: Evaluate, size: int
) -> tuple[Int64s, NDArray[np.float64], NDArray[np.float64]]:
    widths = layout.row_widths
    ints = np.zeros((size, widths.ints), np.int64)
    approx, floats = np.zeros((size, widths.approx), np.float64), np.zeros((size, widths.pairs), np.float64)
    for measure, at in zip(config.measures, layout.in_row, strict=True):
        if measure.owner == number:
            numbers = encode_measure(measure.kind, value(measure.arg))
            ints[:, at.ints : at.ints + measure.kind.ints] = numbers.ints
            approx[:, at.approx : at.approx + measure.kind.approx] = numbers.approx
            floats[:, at.pairs : at.pairs + measure.kind.pairs] = numbers.floats
    return ints, approx, floats

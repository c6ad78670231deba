"""Points in time, stretches of time, and the fields of a calendar. Everything is UTC; a time without a zone is taken as
UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import Arithmetic, Call
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.rows import (
    Array,
    Datum,
    Numbers,
    Rows,
    call,
    expression_words,
    int_values,
    null_rows,
    with_nulls,
)

TimeUnit = Literal["s", "ms", "us", "ns"]

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_CHECKED = {"+": "add_checked", "-": "subtract_checked"}
_MONTHS_TO_1970 = 1970 * 12


def is_temporal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


def temporal_arithmetic(node: Arithmetic, left: Datum, right: Datum) -> Datum:
    """Times and durations, both sides in one unit: `time ± duration` is a time, `time - time` a duration."""
    try:
        return call(_CHECKED[node.op], left, right)
    except pa.ArrowInvalid as error:
        raise QueryError(f"time out of range in {expression_words(node)}", span=node.span) from error


def rescaled(values: Array, unit: TimeUnit) -> Array:
    """Timestamps or durations in another unit, rounded down. Raises `pa.ArrowInvalid` when they do not fit.

    >>> rescaled(pa.array([-1, 1999], pa.timestamp("ns")), "us").cast(pa.int64()).to_pylist()
    [-1, 1]
    """
    old, new = _TICKS_PER_SECOND[values.type.unit], _TICKS_PER_SECOND[unit]
    kind = pa.duration(unit) if pa.types.is_duration(values.type) else pa.timestamp(unit, values.type.tz)
    if old <= new:
        return values.cast(kind)
    return with_nulls(int_values(values) // (old // new), null_rows(values), pa.int64()).view(kind)


def evaluate_year(node: Call, rows: Rows) -> Datum:
    return _calendar(node, rows, lambda months: months // 12)


def evaluate_month(node: Call, rows: Rows) -> Datum:
    return _calendar(node, rows, lambda months: months % 12 + 1)


def evaluate_day(node: Call, rows: Rows) -> Datum:
    times = _naive(rows.value(node.args[0]))
    days = int_values(times).view(f"datetime64[{times.type.unit}]").astype("datetime64[D]")
    of_month = (days - days.astype("datetime64[M]")).astype(np.int64) + 1
    return with_nulls(of_month, null_rows(times), pa.int64())


def evaluate_hour(node: Call, rows: Rows) -> Datum:
    return _clock(node, rows, lambda seconds: seconds // 3600 % 24)


def evaluate_minute(node: Call, rows: Rows) -> Datum:
    return _clock(node, rows, lambda seconds: seconds // 60 % 60)


def evaluate_second(node: Call, rows: Rows) -> Datum:
    return _clock(node, rows, lambda seconds: seconds % 60)


def _calendar(node: Call, rows: Rows, field: Callable[[Numbers], Numbers]) -> Array:
    """A field of the months since the year 0. Numpy's calendar, because Arrow's years wrap beyond 32767."""
    times = _naive(rows.value(node.args[0]))
    months = int_values(times).view(f"datetime64[{times.type.unit}]").astype("datetime64[M]").astype(np.int64)
    return with_nulls(field(months + _MONTHS_TO_1970), null_rows(times), pa.int64())


def _clock(node: Call, rows: Rows, field: Callable[[Numbers], Numbers]) -> Array:
    times = _naive(rows.value(node.args[0]))
    seconds = int_values(times) // _TICKS_PER_SECOND[times.type.unit]
    return with_nulls(field(seconds), null_rows(times), pa.int64())


def _naive(values: Array) -> Array:
    """Dates and zoned timestamps as timestamps without a zone, at the same instants."""
    if pa.types.is_timestamp(values.type):
        return values.view(pa.timestamp(values.type.unit))
    if pa.types.is_time(values.type):
        return values.cast(pa.time64("us")).view(pa.timestamp("us"))
    return values.cast(pa.timestamp("s"))

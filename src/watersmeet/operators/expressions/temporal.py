"""Times, durations and calendar fields. Everything is UTC; a time without a zone is UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from watersmeet.algebra.expressions import Arithmetic, Call
from watersmeet.algebra.expressions import Literal as Constant
from watersmeet.errors import QueryError
from watersmeet.operators.expressions.rows import (
    Array,
    Datum,
    EvaluationRows,
    RowNumbers,
    call_kernel,
    expression_excerpt,
    find_null_rows,
    to_arrow,
    to_int64,
)

TimeUnit = Literal["s", "ms", "us", "ns"]

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_CHECKED = {"+": "add_checked", "-": "subtract_checked"}
_MONTHS_TO_1970 = 1970 * 12
_SECONDS_PER_DAY = 86_400
_SECONDS_PER_UNIT = {
    "MICROSECOND": 1e-6,
    "MILLISECOND": 1e-3,
    "SECOND": 1,
    "MINUTE": 60,
    "HOUR": 3_600,
    "DAY": _SECONDS_PER_DAY,
    "WEEK": 7 * _SECONDS_PER_DAY,
}
_MONTHS_PER_UNIT = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def is_temporal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


def add_or_subtract_times(node: Arithmetic, left: Datum, right: Datum) -> Datum:
    """Add or subtract times and durations in one unit: `time ± duration` is a time, `time - time` a duration."""
    try:
        return call_kernel(_CHECKED[node.op], left, right)
    except pa.ArrowInvalid as error:
        raise QueryError(f"time out of range in {expression_excerpt(node)}", span=node.span) from error


def convert_unit(values: Array, unit: TimeUnit) -> Array:
    """Convert timestamps or durations to another unit, rounded down; raise `pa.ArrowInvalid` if they do not fit.

    >>> convert_unit(pa.array([-1, 1999], pa.timestamp("ns")), "us").cast(pa.int64()).to_pylist()
    [-1, 1]
    """
    old, new = _TICKS_PER_SECOND[values.type.unit], _TICKS_PER_SECOND[unit]
    kind = pa.duration(unit) if pa.types.is_duration(values.type) else pa.timestamp(unit, values.type.tz)
    if old <= new:
        return values.cast(kind)
    return to_arrow(to_int64(values) // (old // new), find_null_rows(values), pa.int64()).view(kind)


def evaluate_year(node: Call, rows: EvaluationRows) -> Datum:
    return _calendar_field(node, rows, lambda months: months // 12)


def evaluate_month(node: Call, rows: EvaluationRows) -> Datum:
    return _calendar_field(node, rows, lambda months: months % 12 + 1)


def evaluate_day(node: Call, rows: EvaluationRows) -> Datum:
    times = _drop_timezone(rows.evaluate_array(node.args[0]))
    days = to_int64(times).view(f"datetime64[{times.type.unit}]").astype("datetime64[D]")
    of_month = (days - days.astype("datetime64[M]")).astype(np.int64) + 1
    return to_arrow(of_month, find_null_rows(times), pa.int64())


def evaluate_hour(node: Call, rows: EvaluationRows) -> Datum:
    return _clock_field(node, rows, lambda seconds: seconds // 3600 % 24)


def evaluate_minute(node: Call, rows: EvaluationRows) -> Datum:
    return _clock_field(node, rows, lambda seconds: seconds // 60 % 60)


def evaluate_second(node: Call, rows: EvaluationRows) -> Datum:
    return _clock_field(node, rows, lambda seconds: seconds % 60)


def evaluate_date_trunc(node: Call, rows: EvaluationRows) -> Datum:
    """Truncate instants to the start of their second, hour, week or another unit."""
    unit = node.args[0]
    assert isinstance(unit, Constant)
    word = str(unit.value).upper()
    values = rows.evaluate_array(node.args[1])
    ticks = _TICKS_PER_SECOND[values.type.unit]
    if word in _SECONDS_PER_UNIT:
        width = int(_SECONDS_PER_UNIT[word] * ticks)
        # The epoch is a Thursday, so weeks that begin on Monday start three days before it.
        origin = -3 * _SECONDS_PER_DAY * ticks if word == "WEEK" else 0
        return _truncate(node, values, max(width, 1), origin)
    months = to_int64(values).view(f"datetime64[{values.type.unit}]").astype("datetime64[M]").astype(np.int64)
    starts = months // _MONTHS_PER_UNIT[word] * _MONTHS_PER_UNIT[word]
    truncated = starts.view("datetime64[M]").astype(f"datetime64[{values.type.unit}]").astype(np.int64)
    return to_arrow(truncated, find_null_rows(values), pa.int64()).view(values.type)


def evaluate_time_bucket(node: Call, rows: EvaluationRows) -> Datum:
    """Truncate instants or integers to multiples of a width, counted from the epoch as the tiles of TUMBLE are."""
    width = to_int64(rows.evaluate_array(node.args[0]))
    values = rows.evaluate_array(node.args[1])
    return _truncate(node, values, int(width[0]) if width.size else 1, 0)


def _truncate(node: Call, values: Array, width: int, origin: int) -> Array:
    numbers = to_int64(values)
    rest = (numbers % width - origin % width) % width
    if np.any(numbers < np.iinfo(np.int64).min + rest):
        raise QueryError(f"time out of range in {expression_excerpt(node)}", span=node.span)
    return to_arrow(numbers - rest, find_null_rows(values), pa.int64()).view(values.type)


def _calendar_field(node: Call, rows: EvaluationRows, field: Callable[[RowNumbers], RowNumbers]) -> Array:
    """Return a field of the months since the year 0, by numpy's calendar: Arrow's years wrap beyond 32767."""
    times = _drop_timezone(rows.evaluate_array(node.args[0]))
    months = to_int64(times).view(f"datetime64[{times.type.unit}]").astype("datetime64[M]").astype(np.int64)
    return to_arrow(field(months + _MONTHS_TO_1970), find_null_rows(times), pa.int64())


def _clock_field(node: Call, rows: EvaluationRows, field: Callable[[RowNumbers], RowNumbers]) -> Array:
    times = _drop_timezone(rows.evaluate_array(node.args[0]))
    seconds = to_int64(times) // _TICKS_PER_SECOND[times.type.unit]
    return to_arrow(field(seconds), find_null_rows(times), pa.int64())


def _drop_timezone(values: Array) -> Array:
    """Return dates and zoned timestamps as timestamps without a zone, at the same instants."""
    if pa.types.is_timestamp(values.type):
        return values.view(pa.timestamp(values.type.unit))
    if pa.types.is_time(values.type):
        return values.cast(pa.time64("us")).view(pa.timestamp("us"))
    return values.cast(pa.timestamp("s"))

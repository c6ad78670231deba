"""Event times, arrival times, and durations as callers write them.

An event time is one int64 count of microseconds per row, from any time type of a source. The rows of a stream without a
time column get the time at which their batch was read.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from numbers import Real
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.schema import TIME_UNITS_NS, check_time_type
from watersmeet.algebra.windows import MAX_LENGTH_US, MAX_TIME_US, UNITS_US
from watersmeet.errors import InputError, abbreviate, listing
from watersmeet.operators.expressions.casts import parse_instant_us
from watersmeet.operators.expressions.rows import map_unique

Times = npt.NDArray[np.int64]

_NS_PER_US = 1_000
_DAY_NS = 86_400_000_000_000

_UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
#: Times of real data lie between these instants, 1990 and 2100, in seconds since the epoch.
_LIKELY_S = (631_152_000, 4_102_444_800)
Duration = str | int | float | dt.timedelta

_UNIT_ABBREVIATIONS = {
    "us": "MICROSECOND",
    "µs": "MICROSECOND",
    "μs": "MICROSECOND",
    "ms": "MILLISECOND",
    "s": "SECOND",
    "sec": "SECOND",
    "secs": "SECOND",
    "m": "MINUTE",
    "min": "MINUTE",
    "mins": "MINUTE",
    "h": "HOUR",
    "hr": "HOUR",
    "hrs": "HOUR",
    "d": "DAY",
    "w": "WEEK",
}
_PART = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([a-zµμ]+)", re.ASCII | re.IGNORECASE)
_HINT = 'write it like "5 seconds", "100 ms" or "1h", as a number of seconds, or as a timedelta'
_MICROSECOND = dt.timedelta(microseconds=1)
#: Name of the column that holds the time of arrival.
ARRIVAL_COLUMN = "arrival_time"
ARRIVAL_FIELD = pa.field(ARRIVAL_COLUMN, pa.timestamp("us", "UTC"))
#: Expression by which Spark stamps the rows of a frame. A stream's replayed batch gets the same time again.
SPARK_STAMP = f"current_timestamp() AS {ARRIVAL_COLUMN}"


def extract_event_times_us(name: str, table: pa.Table, time: str, unit: str | None = None) -> Times:
    """Return the event time of every row in microseconds since the epoch; finer times are rounded down.

    `unit` is the unit of integer times, microseconds if it is None. Errors count rows from 1.

    >>> extract_event_times_us("bids", pa.table({"ts": pa.array([-1, 1999], pa.timestamp("ns"))}), "ts")
    array([-1,  1])
    >>> extract_event_times_us("bids", pa.table({"ts": [3]}), "ts", unit="s")
    array([3000000])
    """
    if time not in table.column_names:
        raise InputError(
            f'stream "{name}" has no time column "{time}"', hint=f"existing columns: {listing(table.column_names)}"
        )
    column = table.column(time)
    check_time_type(name, time, column.type)
    _refuse_nulls(name, time, column)
    if unit is None and pa.types.is_integer(column.type) and len(column):
        # The stubs take a struct for a list of dicts.
        oldest, newest = pc.min_max(column).as_py().values()  # type: ignore[attr-defined]
        if newest > MAX_TIME_US:  # nanoseconds of this century are out of range, so suggest the unit first
            refuse_undeclared_unit(name, time, table.schema, unit, oldest, newest)
    return _convert_to_us(name, time, column, unit or "us")


def refuse_undeclared_unit(
    name: str, time: str, fields: pa.Schema, unit: str | None, oldest_us: int, newest_us: int
) -> None:
    """Refuse integer times without a declared unit that are plausible in another unit, and not in microseconds.

    `oldest_us` and `newest_us` span the first batch of the stream that has rows. Later batches are not checked: a
    stream that starts at 0 and counts microseconds passes through numbers that would be seconds of this century.

    >>> times = pa.schema({"ts": pa.int64()})
    >>> refuse_undeclared_unit("a", "ts", times, None, 1_700_000_000, 1_700_000_060)  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
    watersmeet.errors.InputError: time column "ts" of stream "a" has integers that look like seconds:
    1700000000 to 1700000060
    declare the unit: unit="s" for seconds, unit="us" for microseconds
    """
    if unit is not None or not pa.types.is_integer(fields.field(time).type):
        return
    for likely, tick_ns in TIME_UNITS_NS.items():
        # Values that are likely in one unit are unlikely in every other, so microseconds need no test of their own.
        low, high = (edge_s * 1_000_000_000 // tick_ns for edge_s in _LIKELY_S)
        if likely != "us" and low <= oldest_us and newest_us <= high:
            raise InputError(
                f'time column "{time}" of stream "{name}" has integers that look like {_UNIT_WORDS[likely]}: '
                f"{oldest_us} to {newest_us}",
                hint=f'declare the unit: unit="{likely}" for {_UNIT_WORDS[likely]}, unit="us" for microseconds',
            )


def parse_time_column(where: str, table: pa.Table, time: str) -> pa.Table:
    """Return the table with its time column parsed from ISO 8601 text, if it is text, as in CSV and JSON.

    >>> parse_time_column("bids.csv", pa.table({"ts": ["2024-01-01T00:00:00Z"]}), "ts").column("ts").type
    TimestampType(timestamp[us, tz=UTC])
    """
    if time not in table.column_names:
        return table
    column = table.column(time)
    if pa.types.is_null(column.type):
        return table.set_column(table.column_names.index(time), time, column.cast(pa.timestamp("us")))
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return table
    texts = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    moments = map_unique(parse_instant_us, texts, pa.int64())
    _refuse_garbage(where, time, texts, moments)
    zone = "UTC" if any(_has_zone(text) for text in texts[:1].to_pylist()) else None
    return table.set_column(table.column_names.index(time), time, moments.view(pa.timestamp("us", zone)))


def _refuse_nulls(name: str, time: str, column: pa.ChunkedArray[Any]) -> None:
    if column.null_count:
        row = _first_true_row(column.is_null())
        raise InputError(
            f'row {row} of stream "{name}" has no time: column "{time}" is null',
            hint="every row of a stream needs its time",
        )


def _convert_to_us(name: str, time: str, column: pa.ChunkedArray[Any], unit: str) -> Times:
    kind = column.type
    if pa.types.is_date(kind):
        return _scale_to_us(name, time, _to_int64(column.cast(pa.date32()).cast(pa.int32())), "days", _DAY_NS)
    unit = kind.unit if isinstance(kind, pa.TimestampType) else unit
    return _scale_to_us(name, time, _to_int64(column), _UNIT_WORDS[unit], TIME_UNITS_NS[unit])


def _scale_to_us(name: str, time: str, ticks: Times, units: str, tick_ns: int) -> Times:
    """Convert ticks to microseconds, rounding down; refuse them before the product can overflow int64."""
    if tick_ns < _NS_PER_US:
        return _check_range(name, time, ticks // (_NS_PER_US // tick_ns), "microseconds", 1)
    return _check_range(name, time, ticks, units, tick_ns // _NS_PER_US)


def _check_range(name: str, time: str, ticks: Times, units: str, tick_us: int) -> Times:
    largest = MAX_TIME_US // tick_us
    if ticks.size and (ticks.max() > largest or ticks.min() < -largest):
        row = int(((ticks > largest) | (ticks < -largest)).argmax())
        raise InputError(
            f'row {row + 1} of stream "{name}" has a time out of range: "{time}" is {ticks[row]} {units} since 1970',
            hint="times reach about 36,000 years either way; "
            "integer times are microseconds unless the stream declares a unit",
        )
    return ticks if tick_us == 1 else ticks * tick_us


def _to_int64(column: pa.ChunkedArray[Any]) -> Times:
    ticks: Times = column.cast(pa.int64()).to_numpy()
    return ticks


def _refuse_garbage(where: str, time: str, texts: pa.Array[Any], moments: pa.Array[Any]) -> None:
    bad = pc.and_not(pc.is_null(moments), pc.is_null(texts))
    if pc.any(bad).as_py():
        row = _first_true_row(bad)
        shown = repr(texts[row - 1].as_py())[:80]
        raise InputError(
            f'{where}: row {row} has a time that cannot be read: column "{time}" is {shown}',
            hint="times are written like 2024-01-31T12:00:00Z or 2024-01-31 12:00:00",
        )


def _first_true_row(flags: Any) -> int:
    """Return the number of the first true row, counted from 1."""
    return int(pc.index(flags, pa.scalar(True)).as_py()) + 1


def _has_zone(text: str | None) -> bool:
    return text is not None and (text[-1:] in "Zz" or "+" in text[10:] or "-" in text[10:])


def parse_duration_us(value: Duration, what: str = "a duration") -> int:
    """Return a duration in microseconds from text with units, a number of seconds, or a timedelta; never negative.

    >>> parse_duration_us("5 seconds"), parse_duration_us("1h 30m")
    (5000000, 5400000000)
    >>> parse_duration_us(0.25), parse_duration_us(dt.timedelta(days=1))
    (250000, 86400000000)
    """
    length_us = _parse_length_us(value, what)
    if length_us < 0:
        raise InputError(f"{what} cannot be negative, got {_format_value(value)}", hint=_HINT)
    if length_us > MAX_LENGTH_US:
        raise InputError(f"{what} of {_format_value(value)} is too long", hint="the longest is about 18,000 years")
    return length_us


def _parse_length_us(value: Duration, what: str) -> int:
    match value:
        case bool():
            raise InputError(f"{what} cannot be {value}", hint=_HINT)
        case str():
            return _parse_text(value, what)
        case dt.timedelta():
            return value // _MICROSECOND
        case Real():
            if isinstance(value, float | np.floating) and not math.isfinite(value):
                raise InputError(f"{what} cannot be {value}", hint=_HINT)
            return round(Fraction(value) * 1_000_000)
        case _:
            raise InputError(f"{what} cannot be a {type(value).__name__}", hint=_HINT)


def _parse_text(text: str, what: str) -> int:
    if text.lstrip().startswith("-"):
        raise InputError(f"{what} cannot be negative, got {_format_value(text)}", hint=_HINT)
    total, position = Fraction(0), 0
    while position < len(text.rstrip()):
        part = _PART.match(text, position)
        if part is None:
            raise InputError(f"{_format_value(text)} is not {what}", hint=_HINT)
        total += Fraction(part[1]) * _lookup_unit_us(part[2], text, what)
        position = part.end()
    if not position or total.denominator != 1:
        raise InputError(f"{_format_value(text)} is not {what} in whole microseconds", hint=_HINT)
    return int(total)


def _lookup_unit_us(word: str, text: str, what: str) -> int:
    lowered = word.lower()
    unit = _UNIT_ABBREVIATIONS.get(lowered) or lowered.upper().removesuffix("S")
    if unit not in UNITS_US:
        raise InputError(f'{_format_value(text)} is not {what}: there is no unit "{word[:40]}"', hint=_HINT)
    return UNITS_US[unit]


def _format_value(value: object) -> str:
    try:
        return abbreviate(repr(value))
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return "a number of thousands of digits"


class ArrivalTime(Enum):
    """Type of `ARRIVAL`."""

    ARRIVAL = "ARRIVAL"


#: In place of a time column: rows are stamped on arrival.
ARRIVAL: Final = ArrivalTime.ARRIVAL


@dataclass
class ArrivalClock:
    """Clock of one stream, in microseconds since 1970. It never goes back, even if the machine's clock does."""

    latest_us: int = 0

    def read_us(self) -> int:
        self.latest_us = max(self.latest_us, time.time_ns() // 1_000)
        return self.latest_us


def add_arrival_field(schema: pa.Schema) -> pa.Schema:
    """Return the schema of stamped rows.

    >>> add_arrival_field(pa.schema({"item": pa.string()})).names
    ['item', 'arrival_time']
    """
    if ARRIVAL_COLUMN in schema.names:
        raise InputError(
            f'rows stamped on arrival get a column "{ARRIVAL_COLUMN}", but the source already has one',
            hint=f'rename the column, or use it as the event time: time="{ARRIVAL_COLUMN}"',
        )
    return schema.append(ARRIVAL_FIELD)


def stamp_rows(table: pa.Table, arrived_us: int) -> pa.Table:
    """Return the rows with the time at which they arrived.

    >>> stamp_rows(pa.table({"item": ["pen"]}), 1_000_000).column("arrival_time")[0].as_py().second
    1
    """
    schema = add_arrival_field(table.schema)
    stamp = pa.scalar(arrived_us, ARRIVAL_FIELD.type)
    return pa.table([*table.columns, pa.repeat(stamp, table.num_rows)], schema=schema)

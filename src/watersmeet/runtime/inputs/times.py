"""Event times: one int64 count of microseconds per row, out of whatever a source calls a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.algebra.schema import check_time_type
from watersmeet.algebra.windows import MAX_TIME_US
from watersmeet.errors import InputError, listing
from watersmeet.operators.expressions.parse import instant_us
from watersmeet.operators.expressions.uniques import map_unique

Times = npt.NDArray[np.int64]

_PER_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NS_PER_US = 1_000
_DAY_US = 86_400_000_000


def event_times_us(name: str, table: pa.Table, time: str) -> Times:
    """The event time of every row in microseconds since the epoch, finer ones rounded down. Rows are counted from 1 in errors.

    >>> event_times_us("bids", pa.table({"ts": pa.array([-1, 1999], pa.timestamp("ns"))}), "ts")
    array([-1,  1])
    """
    if time not in table.column_names:
        raise InputError(f'stream "{name}" has no time column "{time}"', hint=f"existing columns: {listing(table.column_names)}")
    column = table.column(time)
    check_time_type(name, time, column.type)
    _refuse_nulls(name, time, column)
    return _in_range_us(name, time, column)


def parsed_times(where: str, table: pa.Table, time: str) -> pa.Table:
    """The table with its time column read from ISO 8601 text, if text it is: CSV and JSON know no better.

    >>> parsed_times("bids.csv", pa.table({"ts": ["2024-01-01T00:00:00Z"]}), "ts").column("ts").type
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
    moments = map_unique(instant_us, texts, pa.int64())
    _refuse_garbage(where, time, texts, moments)
    zone = "UTC" if any(_has_zone(text) for text in texts[:1].to_pylist()) else None
    return table.set_column(table.column_names.index(time), time, moments.view(pa.timestamp("us", zone)))


def _refuse_nulls(name: str, time: str, column: pa.ChunkedArray[Any]) -> None:
    if column.null_count:
        row = _first(column.is_null())
        raise InputError(f'row {row} of stream "{name}" has no time: column "{time}" is null', hint="every row of a stream needs its time")


def _in_range_us(name: str, time: str, column: pa.ChunkedArray[Any]) -> Times:
    kind = column.type
    if pa.types.is_date(kind):
        return _checked(name, time, _ints(column.cast(pa.date32()).cast(pa.int32())), _DAY_US)
    if isinstance(kind, pa.TimestampType):
        ticks = _ints(column)
        return _checked(name, time, ticks // _NS_PER_US if kind.unit == "ns" else ticks, _PER_UNIT_US.get(kind.unit, 1))
    return _checked(name, time, _ints(column), 1)


def _checked(name: str, time: str, ticks: Times, tick_us: int) -> Times:
    """Ticks as microseconds; refused before the product can leave int64."""
    furthest = MAX_TIME_US // tick_us
    if ticks.size and (ticks.max() > furthest or ticks.min() < -furthest):
        row = int(((ticks > furthest) | (ticks < -furthest)).argmax())
        raise InputError(
            f'row {row + 1} of stream "{name}" has a time out of range: "{time}" is {ticks[row]} ticks of {tick_us} µs since 1970',
            hint="integer times count microseconds; times reach about 36,000 years either way",
        )
    return ticks if tick_us == 1 else ticks * tick_us


def _ints(column: pa.ChunkedArray[Any]) -> Times:
    found: Times = column.cast(pa.int64()).to_numpy()
    return found


def _refuse_garbage(where: str, time: str, texts: pa.Array[Any], moments: pa.Array[Any]) -> None:
    bad = pc.and_not(pc.is_null(moments), pc.is_null(texts))
    if pc.any(bad).as_py():
        row = _first(bad)
        shown = repr(texts[row - 1].as_py())[:80]
        raise InputError(
            f'{where}: row {row} has a time that cannot be read: column "{time}" is {shown}',
            hint="times are written like 2024-01-31T12:00:00Z or 2024-01-31 12:00:00",
        )


def _first(flags: Any) -> int:
    """The number, counted from 1, of the first true row."""
    return int(pc.index(flags, pa.scalar(True)).as_py()) + 1


def _has_zone(text: str | None) -> bool:
    return text is not None and (text[-1:] in "Zz" or "+" in text[10:] or "-" in text[10:])

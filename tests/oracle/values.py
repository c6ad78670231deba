"""Python values for Arrow values, and the total order of the semantics.

Values are those of `to_pylist`, except points in time: they become an `Instant`, which keeps nanoseconds and has no
zone.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from watersmeet.errors import InternalError

NS_PER_US = 1_000
NS_PER_DAY = 86_400_000_000_000
NS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1)


class Instant(NamedTuple):
    """A point in time, as nanoseconds since the epoch in UTC."""

    ns: int


class Duration(NamedTuple):
    """A length of time in nanoseconds."""

    ns: int


def column_values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """Return a column as Python values: None for null, `Instant` for timestamps.

    >>> column_values(pa.chunked_array([pa.array([1, None], pa.timestamp("ms"))]))
    [Instant(ns=1000000), None]
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind):
        return [
            None if count is None else Instant(count * NS_PER_UNIT[kind.unit])
            for count in column.cast(pa.int64()).to_pylist()
        ]
    if pa.types.is_duration(kind):
        return [
            None if count is None else Duration(count * NS_PER_UNIT[kind.unit])
            for count in column.cast(pa.int64()).to_pylist()
        ]
    values: list[Any] = column.to_pylist()
    return values


def literal_value(value: Any) -> Any:
    """Return the value of a literal in the oracle's representation."""
    if isinstance(value, dt.datetime):
        return instant_of(value)
    if isinstance(value, dt.timedelta):
        return Duration((value // dt.timedelta(microseconds=1)) * NS_PER_US)
    return value


def instant_of(moment: dt.datetime) -> Instant:
    """Return a datetime as an instant; without a zone, it is UTC."""
    since_epoch = moment - (EPOCH if moment.tzinfo is None else _EPOCH_UTC)
    return Instant((since_epoch // dt.timedelta(microseconds=1)) * NS_PER_US)


def datetime_of(instant: Instant) -> dt.datetime:
    """Return the calendar date and time of an instant, in UTC, with nanoseconds truncated downwards."""
    return EPOCH + dt.timedelta(microseconds=instant.ns // NS_PER_US)


def date_of(instant: Instant) -> dt.date:
    return _EPOCH_DAY + dt.timedelta(days=instant.ns // NS_PER_DAY)


def midnight_of(day: dt.date) -> Instant:
    return Instant((day - _EPOCH_DAY).days * NS_PER_DAY)


def event_times_us(column: pa.ChunkedArray[Any], unit: str | None = None) -> list[int]:
    """Return event times in microseconds, rounded down.

    Timestamps may have any unit and zone, dates count as midnight, and integers have the given unit. An integer without
    a unit counts microseconds.

    >>> event_times_us(pa.chunked_array([pa.array([-1], pa.timestamp("ns"))]))
    [-1]
    """
    return [_event_time_us(value, unit or "us") for value in column_values(column)]


def _event_time_us(value: Any, unit: str) -> int:
    match value:
        case Instant(ns):
            return ns // NS_PER_US
        case dt.date():
            return midnight_of(value).ns // NS_PER_US
        case int():
            return value * NS_PER_UNIT[unit] // NS_PER_US
        case _:
            raise InternalError(f"{value!r} is not an event time")


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1: the order of two values that are not null.

    NaN equals NaN and is above every number; -0.0 equals 0.0.

    >>> compare(float("nan"), float("inf")), compare(-0.0, 0.0), compare("Z", "a")
    (1, 0, -1)
    """
    if is_nan(left) or is_nan(right):
        return int(is_nan(left)) - int(is_nan(right))
    return int(left > right) - int(left < right)


def sort_key(value: Any) -> tuple[int, Any]:
    """Return a key that puts nulls first, then values in their order, then NaN.

    Lists and the entries of maps compare from left to right, and a list precedes the longer ones that start with it.
    Structs compare field by field.

    >>> sorted([float("nan"), 1.0, None, -1.0], key=sort_key)
    [None, -1.0, 1.0, nan]
    >>> sorted([[2], [1, 5], [1, None], [1], []], key=sort_key)
    [[], [1], [1, None], [1, 5], [2]]
    """
    if value is None:
        return (0, 0)
    if is_nan(value):
        return (2, 0)
    if isinstance(value, dict):
        return (1, tuple(sort_key(field) for field in value.values()))
    # A tuple is a map entry; instants and durations are named tuples.
    if isinstance(value, list) or type(value) is tuple:
        return (1, tuple(sort_key(element) for element in value))
    return (1, value)


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples of Python values."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(column_values(column) for column in table.columns), strict=True))


def as_multiset(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Return rows with their multiplicities; NaN equals NaN, -0.0 equals 0.0, and 1.0 differs from true.

    >>> as_multiset([(float("nan"),), (float("nan"),)]) == as_multiset([(float("nan"),)] * 2)
    True
    """
    return Counter(tuple(_normal(value) for value in row) for row in rows)


def _normal(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_nan(value):
        return "NaN"
    if isinstance(value, float) and value == 0.0:
        return 0.0
    if isinstance(value, Decimal):
        return value.normalize() if value else Decimal(0)
    return _normal_nested(value)


def _normal_nested(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _normal(field)) for name, field in value.items())
    return tuple(_normal(element) for element in value) if isinstance(value, list) or type(value) is tuple else value

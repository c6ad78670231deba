"""Windows at an instant, by the table in the semantics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.values import sort_key
from watersmeet.algebra.windows import LandmarkWindow, RangeWindow, RowsWindow, TumbleWindow, Window


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A row of a stream: its number in the input, its event time, and its columns by name."""

    number: int
    ts_us: int
    values: dict[str, Any]


def rows_in_window(window: Window | None, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Return the rows of a stream that are in its window at instant t; `rows` are in ≺ order.

    A stream without a window keeps everything.
    """
    so_far = [row for row in rows if row.ts_us <= t_us]
    match window:
        case RangeWindow(length_us):
            return [row for row in so_far if t_us - length_us <= row.ts_us]
        case TumbleWindow(length_us):
            start_us = t_us // length_us * length_us
            return [row for row in so_far if start_us <= row.ts_us]
        case RowsWindow(count, partition_by):
            return _last_rows_per_partition(so_far, count, partition_by)
        case LandmarkWindow() | None:
            return so_far


def rows_in_window_every(window: Window | None, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Return the rows in the window at an instant of EVERY.

    A tumbling window shows its finished tile, and starts the next one a microsecond later.
    """
    if not isinstance(window, TumbleWindow):
        return rows_in_window(window, rows, t_us)
    is_end_of_a_tile = t_us % window.length_us == 0
    start_us = t_us - window.length_us if is_end_of_a_tile else t_us // window.length_us * window.length_us
    return [
        row for row in rows if start_us <= row.ts_us and (row.ts_us < t_us if is_end_of_a_tile else row.ts_us <= t_us)
    ]


def sort_stream_rows(rows: Sequence[StreamRow], time: str, columns: Sequence[str]) -> list[StreamRow]:
    """Return rows in ≺ order: by event time, then by the remaining columns from left to right.

    Parts of the time column that the event time does not show (nanoseconds) decide last. Rows equal in every column are
    interchangeable.
    """
    remaining = [name for name in columns if name != time]

    def place(row: StreamRow) -> tuple[Any, ...]:
        return (row.ts_us, *(sort_key(row.values[name]) for name in remaining), row.values[time], row.number)

    return sorted(rows, key=place)


def _last_rows_per_partition(rows: Sequence[StreamRow], count: int, partition_by: Sequence[str]) -> list[StreamRow]:
    partitions: dict[tuple[Any, ...], list[StreamRow]] = {}
    for row in rows:
        partition = tuple(sort_key(row.values[name]) for name in partition_by)
        partitions.setdefault(partition, []).append(row)
    return [row for partition in partitions.values() for row in partition[-count:]]

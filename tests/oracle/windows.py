"""Windows at an instant, by the table in the semantics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.values import sort_key
from watersmeet.algebra.windows import LandmarkWindow, RangeWindow, RowsWindow, TumbleWindow, Window

Contents = Callable[[Any, Sequence["StreamRow"], int], list["StreamRow"]]


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A row of a stream: its number in the input, its event time, and its columns by name."""

    number: int
    ts_us: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """The semantics of a window kind.

    `contents` gives the rows in the window at an instant, out of those up to that instant, in ≺ order. With EVERY,
    `contents_every` gives them instead, out of all rows, and `last_instant_us` is the last instant of a finite input.
    """

    contents: Contents
    contents_every: Contents | None = None
    last_instant_us: Callable[[Any, int], int] = lambda window, largest_us: largest_us


def rows_in_window(window: Window | None, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Return the rows of a stream that are in its window at instant t; `rows` are in ≺ order.

    A stream without a window keeps everything.
    """
    so_far = [row for row in rows if row.ts_us <= t_us]
    return so_far if window is None else DEFINITIONS[type(window)].contents(window, so_far, t_us)


def rows_in_window_every(window: Window | None, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Return the rows in the window at an instant of EVERY."""
    contents_every = None if window is None else DEFINITIONS[type(window)].contents_every
    return rows_in_window(window, rows, t_us) if contents_every is None else contents_every(window, rows, t_us)


def last_instant_us(window: Window | None, largest_us: int) -> int:
    """Return the last instant of EVERY that a window asks for when a finite input ends."""
    return largest_us if window is None else DEFINITIONS[type(window)].last_instant_us(window, largest_us)


def sort_stream_rows(rows: Sequence[StreamRow], time: str, columns: Sequence[str]) -> list[StreamRow]:
    """Return rows in ≺ order: by event time, then by the remaining columns from left to right.

    Parts of the time column that the event time does not show (nanoseconds) decide last. Rows equal in every column are
    interchangeable.
    """
    remaining = [name for name in columns if name != time]

    def place(row: StreamRow) -> tuple[Any, ...]:
        return (row.ts_us, *(sort_key(row.values[name]) for name in remaining), row.values[time], row.number)

    return sorted(rows, key=place)


def _range_contents(window: RangeWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    return [row for row in rows if t_us - window.length_us <= row.ts_us]


def _rows_contents(window: RowsWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    partitions: dict[tuple[Any, ...], list[StreamRow]] = {}
    for row in rows:
        partition = tuple(sort_key(row.values[name]) for name in window.partition_by)
        partitions.setdefault(partition, []).append(row)
    return [row for partition in partitions.values() for row in partition[-window.count :]]


def _tile_contents(window: TumbleWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    start_us = t_us // window.length_us * window.length_us
    return [row for row in rows if start_us <= row.ts_us]


def _tile_contents_every(window: TumbleWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    """Show the finished tile at its end, and start the next one a microsecond later."""
    is_end_of_a_tile = t_us % window.length_us == 0
    start_us = t_us - window.length_us if is_end_of_a_tile else t_us // window.length_us * window.length_us
    return [
        row for row in rows if start_us <= row.ts_us and (row.ts_us < t_us if is_end_of_a_tile else row.ts_us <= t_us)
    ]


def _end_of_last_tile_us(window: TumbleWindow, largest_us: int) -> int:
    return largest_us - largest_us % window.length_us + window.length_us


def _landmark_contents(window: LandmarkWindow, rows: Sequence[StreamRow], t_us: int) -> list[StreamRow]:
    return list(rows)


DEFINITIONS: dict[type[Window], WindowDefinition] = {
    RangeWindow: WindowDefinition(_range_contents),
    RowsWindow: WindowDefinition(_rows_contents),
    TumbleWindow: WindowDefinition(_tile_contents, _tile_contents_every, _end_of_last_tile_us),
    LandmarkWindow: WindowDefinition(_landmark_contents),
}

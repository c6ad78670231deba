"""What the binder has to know of a source before any row is read."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.errors import InputError, listing


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """A stream: its columns and which of them carries the event time."""

    name: str
    fields: pa.Schema
    time: str

    def __post_init__(self) -> None:
        check_unique_names(self.name, self.fields)
        if self.time not in self.fields.names:
            raise InputError(
                f'stream "{self.name}" has no time column "{self.time}"',
                hint=f"existing columns: {listing(self.fields.names)}",
            )
        check_time_type(self.name, self.time, self.fields.field(self.time).type)

    @property
    def noun(self) -> str:
        return "stream"


@dataclass(frozen=True, slots=True)
class RelationSchema:
    """A static table: its rows are valid at every instant."""

    name: str
    fields: pa.Schema

    def __post_init__(self) -> None:
        check_unique_names(self.name, self.fields)

    @property
    def noun(self) -> str:
        return "relation"


SourceSchema = StreamSchema | RelationSchema


def check_unique_names(name: str, fields: pa.Schema) -> None:
    seen: set[str] = set()
    for column in fields.names:
        if column in seen:
            raise InputError(f'column "{column}" stands twice in "{name}"', hint="rename one of them")
        seen.add(column)


def check_time_type(name: str, column: str, kind: pa.DataType) -> None:
    """An event time is a timestamp, a date, or a whole number of microseconds since the epoch."""
    if not (pa.types.is_timestamp(kind) or pa.types.is_signed_integer(kind) or pa.types.is_date(kind)):
        raise InputError(
            f'time column "{column}" of stream "{name}" is {kind}, which is not a time',
            hint="a time column is a timestamp, a date, or an integer count of microseconds since 1970",
        )

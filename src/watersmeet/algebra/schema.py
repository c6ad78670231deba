"""Schemas of sources: what the binder needs to know before any row is read; names in SQL text and their quoting."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import InputError, listing

#: Nanoseconds in one tick of an integer event time, by the unit that the stream declares.
TIME_UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
# fmt: off
#: Keywords, and words that begin unsupported SQL: as names they need quotes, except after a dot.
RESERVED = frozenset(
    (
        "ALL", "AND", "ANTI", "AS", "ASOF", "BETWEEN", "CASE", "CROSS", "DISTINCT", "DWINDOW", "ELSE", "END",
        "EVERY", "EXCEPT", "FALSE", "FROM", "FULL", "HAVING", "IN", "INNER", "INTERSECT", "INTERVAL", "IS",
        "JOIN", "LATERAL", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NULL", "ON", "OR", "OUTER", "QUALIFY",
        "RIGHT", "SELECT", "SEMI", "TABLESAMPLE", "THEN", "TRUE", "UNION", "USING", "WHEN", "WHERE", "WINDOW",
        "WITH",
    )
)
# fmt: on

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """A stream: its columns, its event time column, and the unit of an integer time."""

    name: str
    fields: pa.Schema
    time: str
    unit: str | None = None

    def __post_init__(self) -> None:
        check_unique_names(self.name, self.fields)
        if self.time not in self.fields.names:
            raise InputError(
                f'stream "{self.name}" has no time column "{self.time}"',
                hint=f"existing columns: {listing(self.fields.names)}",
            )
        kind = self.fields.field(self.time).type
        check_time_type(self.name, self.time, kind)
        if self.unit is not None and not pa.types.is_integer(kind):
            raise InputError(
                f'time column "{self.time}" of stream "{self.name}" is {kind}, which has a unit of its own',
                hint=f'unit="{self.unit}" is for integer times; leave it out',
            )

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
            raise InputError(f'column "{column}" appears twice in "{name}"', hint="rename one of them")
        seen.add(column)


def check_time_type(name: str, column: str, kind: pa.DataType) -> None:
    """Refuse a column that is not a time: an event time is a timestamp, a date, or an integer count since the epoch."""
    if not (pa.types.is_timestamp(kind) or pa.types.is_signed_integer(kind) or pa.types.is_date(kind)):
        raise InputError(
            f'time column "{column}" of stream "{name}" is {kind}, which is not a time',
            hint="a time column is a timestamp, a date, or an integer count since 1970",
        )


def parse_time_unit(unit: Any) -> str | None:
    """Return the unit of integer times in its one spelling; None means that the caller declared none.

    >>> parse_time_unit("ms"), parse_time_unit("µs")
    ('ms', 'us')
    """
    spelled = {"\u00b5s": "us", "\u03bcs": "us"}.get(unit, unit) if isinstance(unit, str) else unit
    if spelled is not None and (not isinstance(spelled, str) or spelled not in TIME_UNITS_NS):
        raise InputError(
            f"{unit!r:.40} is not a unit of time", hint=f"units of integer times: {listing([*TIME_UNITS_NS])}"
        )
    return spelled


def quote_name(name: str) -> str:
    """Return the name, in double quotes if it could not be parsed without them.

    >>> print(quote_name("price"), quote_name("unit price"), quote_name("select"), quote_name('a"b'))
    price "unit price" "select" "a""b"
    """
    if _PLAIN.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'

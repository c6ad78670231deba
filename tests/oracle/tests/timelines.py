"""Short notations for timelines, and functions that join them with the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from tests.oracle import join_rows
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.schema import RelationSchema, SourceSchema, StreamSchema
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

Timeline: TypeAlias = "Sequence[int] | Mapping[str, Any] | pa.Table"


def join_timelines(text: str, relations: Sequence[str] = (), **timelines: Timeline) -> list[tuple[Any, ...]]:
    """Return the query's rows, sorted.

    A timeline is a list of times in microseconds, or columns of which `ts` is the time.
    """
    tables = {name: build_table(timeline) for name, timeline in timelines.items()}
    return sorted(join_rows(bind_query(text, tables, relations), tables), key=str)


def joined_times(window_a: str, window_b: str, a: Timeline, b: Timeline, rest: str = "") -> list[tuple[int, int]]:
    """Return the times of the rows of `a` and `b` that match under these windows."""
    return sorted(
        (left, right)
        for left, right in join_timelines(f"SELECT a.ts, b.ts FROM a {window_a}, b {window_b} {rest}", a=a, b=b)
    )


def bind_query(text: str, tables: Mapping[str, pa.Table], relations: Sequence[str] = ()) -> BoundQuery:
    schemas: dict[str, SourceSchema] = {
        name: RelationSchema(name, table.schema) if name in relations else StreamSchema(name, table.schema, "ts")
        for name, table in tables.items()
    }
    return bind(parse(text), schemas)


def build_table(timeline: Timeline) -> pa.Table:
    if isinstance(timeline, pa.Table):
        return timeline
    columns = timeline if isinstance(timeline, Mapping) else {"ts": list(timeline)}
    return pa.table(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values, _kind(values))
            for name, values in columns.items()
        }
    )


def _kind(values: Sequence[Any]) -> pa.DataType | None:
    return pa.int64() if all(type(value) is int for value in values) else None

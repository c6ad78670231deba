"""A second oracle: the case as one DuckDB query over finite input, written from its own pieces, without our parser.

The window of a row becomes the last instant at which the row is inside. A combination is a result if its largest time
is not beyond any of those instants. For ROWS windows, the C-th row after a row pushes it out: `lead(ts, C)` in ≺ order.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import duckdb
import pyarrow as pa

from tests.properties.generators.cases import FromItem, QueryCase, QueryPiece, SourceData

_FOREVER_US = 2**62
_UNITS_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 10**3,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "DAY": 86_400 * 10**6,
    "WEEK": 7 * 86_400 * 10**6,
}
_LENGTH = re.compile(r"(\d+) ([A-Z]+?)S?\b")
_PAIR = re.compile(r"(D?)WINDOW \((\w+), (\w+)\) = ")


def open_duckdb() -> duckdb.DuckDBPyConnection:
    """Open a connection with one thread, in UTC."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def make_portable(case: QueryCase) -> QueryCase:
    """Return the part of the case that DuckDB can express.

    It keeps predicates that DuckDB reads as we do, ids as outputs, and columns that DuckDB orders as we do.
    """
    tables = {
        name: table.drop_columns(["n"]) if "n" in table.column_names else table for name, table in case.tables.items()
    }
    return replace(
        case.with_tables(tables),
        predicates=tuple(piece for piece in case.predicates if piece.portable),
        select=tuple(QueryPiece(f"{item.alias}.id AS {item.alias}_id", (item.alias,)) for item in case.items),
        joined=False,
    )


def duckdb_rows(connection: duckdb.DuckDBPyConnection, case: QueryCase) -> Counter[tuple[int, ...]]:
    """Return the ids of the result rows of a portable case, with their multiplicities."""
    for source in case.sources:
        connection.register(source.name, _plain_table(source))
    return Counter(connection.execute(duckdb_text(case)).fetchall())


def duckdb_text(case: QueryCase) -> str:
    sources = {source.name: source for source in case.sources}
    views = ",\n".join(f"{item.alias} AS ({_view(item, sources[item.name])})" for item in case.items)
    streams = [item.alias for item in case.items if sources[item.name].time is not None]
    now = f"greatest({', '.join(f'{alias}.__ts' for alias in streams)})"
    conditions = [f"{now} <= {alias}.__end" for alias in streams]
    conditions += [condition for piece in case.constraints for condition in _constraint(piece, streams)]
    conditions += [f"({piece.text})" for piece in case.predicates]
    ids = ", ".join(f"{item.alias}.id" for item in case.items)
    return (
        f"WITH {views}\nSELECT {ids} FROM {', '.join(item.alias for item in case.items)} WHERE "
        f"{' AND '.join(conditions)}"
    )


def _plain_table(source: SourceData) -> pa.Table:
    """Return the table with the raw number of its time column, in types that DuckDB treats as we do.

    DuckDB orders dictionaries by code. Zoned nanoseconds compare with no other unit (keys have no fractions of a
    second), and half-precision floats are unknown.
    """
    table = source.table
    for i, field in enumerate(table.schema):
        kind = field.type if field.name == source.time else _plain_type(field.type)
        if kind != field.type:
            table = table.set_column(i, field.name, table.column(i).cast(kind, safe=False))
    if source.time is None:
        return table
    time = table.column(source.time)
    raw = time.cast(pa.int32()) if pa.types.is_date32(time.type) else time
    return table.append_column("__raw", raw.cast(pa.int64()))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        encoded: pa.DataType = kind.value_type
        return encoded
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", "UTC")
    return pa.float32() if pa.types.is_float16(kind) else kind


def _view(item: FromItem, source: SourceData) -> str:
    if source.time is None:
        return f"SELECT * FROM {item.name}"
    return (
        f"SELECT *, {_end(item.window, source)} AS __end FROM (SELECT *, {_time_us(source)} AS __ts FROM {item.name})"
    )


def _time_us(source: SourceData) -> str:
    kind = source.table.schema.field(source.time or "").type
    if pa.types.is_date32(kind):
        return "__raw * 86400000000"
    if pa.types.is_date64(kind):
        return "__raw * 1000"
    unit = kind.unit if pa.types.is_timestamp(kind) else source.unit or "us"
    return {"s": "__raw * 1000000", "ms": "__raw * 1000", "us": "__raw", "ns": f"({_floor('__raw', 1000)}) // 1000"}[
        unit
    ]


def _floor(value: str, step: int) -> str:
    """Return the largest multiple of the step at or below the value, also for negative values."""
    return f"{value} - ((({value}) % {step}) + {step}) % {step}"


def _end(window: str, source: SourceData) -> str:
    if window.startswith(("[RANGE", "[WINDOW")) and "UNTIL" not in window:
        return f"__ts + {_length_us(window)}"
    if window.startswith("[TUMBLE"):
        length_us = _length_us(window)
        return f"({_floor('__ts', length_us)}) + {length_us - 1}"
    rows = re.fullmatch(r"\[(?:PARTITION BY (.*) )?ROWS (\d+)\]", window)
    if rows is None:
        return str(_FOREVER_US)
    remaining = [name for name in source.table.column_names if name != source.time]
    order = ", ".join(f"{name} NULLS FIRST" for name in ("__ts", *remaining))
    partition = f"PARTITION BY {_keys(rows[1])} " if rows[1] else ""
    return f"lead(__ts, {rows[2]}, {_FOREVER_US}) OVER ({partition}ORDER BY {order}) - 1"


def _keys(columns: str) -> str:
    return ", ".join("x + 0.0" if name == "x" else name for name in columns.split(", "))


def _constraint(piece: QueryPiece, streams: list[str]) -> list[str]:
    length_us = _length_us(piece.text)
    pair = _PAIR.match(piece.text)
    if pair is None:
        return [f"abs({a}.__ts - {b}.__ts) <= {length_us}" for a in streams for b in streams if a < b]
    low = 0 if pair[1] else -length_us
    return [f"{pair[3]}.__ts - {pair[2]}.__ts BETWEEN {low} AND {length_us}"]


def _length_us(text: str) -> int:
    found = _LENGTH.search(text)
    assert found is not None, text
    return int(found[1]) * _UNITS_US[found[2]]

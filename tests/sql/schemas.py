"""Schemas that the SQL tests bind against, and shortcuts to parse, bind and fail."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.query import BoundQuery, Query, SelectItem
from watersmeet.algebra.schema import RelationSchema, SourceSchema, StreamSchema
from watersmeet.errors import QueryError
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse


def build_schema(columns: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema(columns)


SALES = build_schema(
    {"item": pa.int64(), "store": pa.string(), "price": pa.decimal128(10, 2), "ts": pa.timestamp("us")}
)
BIDS = build_schema({"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "ts": pa.timestamp("us")})
KINDS = build_schema(
    {
        "i8": pa.int8(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "u8": pa.uint8(),
        "u32": pa.uint32(),
        "u64": pa.uint64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "dec": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 4),
        "text": pa.string(),
        "large": pa.large_string(),
        "coded": pa.dictionary(pa.int32(), pa.string()),
        "flag": pa.bool_(),
        "raw": pa.binary(),
        "day": pa.date32(),
        "ts": pa.timestamp("us"),
        "ts_s": pa.timestamp("s"),
        "ts_paris": pa.timestamp("ns", "Europe/Paris"),
        "clock": pa.time64("us"),
        "span": pa.duration("ms"),
        "list": pa.list_(pa.int64()),
        "struct": pa.struct([("x", pa.int64())]),
        "nothing": pa.null(),
    }
)
STORES = build_schema({"id": pa.int64(), "Name": pa.string()})

SCHEMAS: dict[str, SourceSchema] = {
    "sales_a": StreamSchema("sales_a", SALES, "ts"),
    "sales_b": StreamSchema("sales_b", SALES, "ts"),
    "sales_c": StreamSchema("sales_c", SALES, "ts"),
    "bids": StreamSchema("bids", BIDS, "ts"),
    "kinds": StreamSchema("kinds", KINDS, "ts"),
    "stores": RelationSchema("stores", STORES),
}


def bind_text(text: str) -> BoundQuery:
    return bind(parse(text), SCHEMAS)


def parse_item(text: str) -> Expr:
    """Return the expression, as parsed in SELECT over a source `a`."""
    first = parse(f"SELECT {text} FROM s AS a").select[0]
    assert isinstance(first, SelectItem)
    return first.expr


def parse_condition(text: str) -> Expr:
    where = parse(f"SELECT * FROM s AS a WHERE {text}").where
    assert where is not None
    return where


def parse_error(text: str) -> QueryError:
    """Return the error that parsing raises."""
    with pytest.raises(QueryError) as failure:
        parse(text)
    return failure.value


def bind_error(text: str) -> QueryError:
    """Return the error that binding raises."""
    query: Query = parse(text)
    with pytest.raises(QueryError) as failure:
        bind(query, SCHEMAS)
    return failure.value


def underlined_text(error: QueryError) -> str:
    """Return the text that the error points at."""
    assert error.span is not None
    assert error.text is not None
    return error.text[error.span.start : error.span.end]

"""Statistics of the sources of a query: declared by the caller, else measured on available rows, else assumed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from watersmeet.algebra.expressions import (
    Aggregate,
    Call,
    Column,
    Comparison,
    Expr,
    In,
    Like,
    Literal,
    children,
    columns_of,
    walk,
)
from watersmeet.algebra.query import BoundQuery, Query, SelectItem
from watersmeet.algebra.schema import StreamSchema
from watersmeet.stats.stream_stats import StreamStats

_TEXT_FUNCTIONS = (
    "LOWER",
    "UPPER",
    "TRIM",
    "LTRIM",
    "RTRIM",
    "SUBSTRING",
    "REPLACE",
    "STARTS_WITH",
    "ENDS_WITH",
    "CONTAINS",
)


def fill_missing_stats(bound: BoundQuery, known: Mapping[str, StreamStats]) -> dict[str, StreamStats]:
    """Return statistics by source name, checked against the schemas, with missing values assumed and marked as such."""
    return {
        each.schema.name: known[each.schema.name].check_columns(each.schema).with_assumptions(each.schema)
        for each in bound.sources
    }


def list_columns_read(bound: BoundQuery, name: str) -> list[str]:
    """List the columns that predicates, PARTITION BY, GROUP BY and aggregates read.

    The statistics of other columns change no plan.
    """
    own = {each.alias: each for each in bound.sources if each.schema.name == name}
    exprs = [*([] if bound.where is None else [bound.where]), *bound.group_by]
    exprs += [
        node.arg
        for output in bound.outputs
        for node in walk(output.expr)
        if isinstance(node, Aggregate) and node.arg is not None
    ]
    read = [column.name for expr in exprs for column in columns_of(expr) if column.source in own]
    partition_columns = [column for each in own.values() if each.window is not None for column in each.window.columns]
    fields = next(iter(own.values())).schema.fields
    return [
        column
        for column in dict.fromkeys([*read, *partition_columns])
        if not pa.types.is_nested(fields.field(column).type)
    ]


def infer_schema_from_stats(query: Query, name: str, known: StreamStats) -> StreamSchema:
    """Infer the schema of a stream that has only declared statistics.

    Its columns are those mentioned in the statistics or in the query. A column is text where the query uses it as text,
    and a number elsewhere. The planner needs no more.
    """
    aliases = {source.alias for source in query.sources if source.name == name}
    is_only_source = len(query.sources) == 1
    exprs = [item.expr for item in query.select if isinstance(item, SelectItem)]
    exprs += [expr for expr in (query.where, query.having, *query.group_by) if expr is not None]
    own = [
        column
        for expr in exprs
        for column in columns_of(expr)
        if column.source in aliases or (column.source is None and is_only_source)
    ]
    partition_columns = [
        column
        for source in query.sources
        if source.name == name and source.window is not None
        for column in source.window.columns
    ]
    text = {column.name for expr in exprs for column in _find_text_columns(expr)}
    names = dict.fromkeys(["ts", *known.columns, *(column.name for column in own), *partition_columns])
    return StreamSchema(
        name, pa.schema([(each, pa.string() if each in text and each != "ts" else pa.int64()) for each in names]), "ts"
    )


def _find_text_columns(expr: Expr) -> list[Column]:
    """List columns that are compared with text or passed to a text function."""
    found: list[Column] = []
    for node in walk(expr):
        is_compared_with_text = isinstance(node, Comparison | In) and any(
            isinstance(child, Literal) and isinstance(child.value, str) for child in children(node)
        )
        if is_compared_with_text or isinstance(node, Like) or (isinstance(node, Call) and node.name in _TEXT_FUNCTIONS):
            found += [child for child in children(node) if isinstance(child, Column)]
    return found

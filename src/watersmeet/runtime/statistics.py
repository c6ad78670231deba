"""Statistics of the sources a query names: declared where the caller declares them, measured where the data is at hand, else assumed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from watersmeet.algebra.expressions import Aggregate, Call, Column, Comparison, Expr, In, Like, Literal, children, columns_of, walk
from watersmeet.algebra.query import BoundQuery, Query, SelectItem
from watersmeet.algebra.schema import StreamSchema
from watersmeet.runtime.inputs.feeds import PathFeed, TableFeed
from watersmeet.runtime.sources import Relation, Stream, event_times_us
from watersmeet.stats.sample import measured
from watersmeet.stats.stream_stats import StreamStats, stats

_TEXT_FUNCTIONS = ("LOWER", "UPPER", "TRIM", "LTRIM", "RTRIM", "SUBSTRING", "REPLACE", "STARTS_WITH", "ENDS_WITH", "CONTAINS")


def statistics_of(
    bound: BoundQuery, sources: Mapping[str, Stream | Relation | StreamStats], declared: Mapping[str, StreamStats]
) -> dict[str, StreamStats]:
    """Complete statistics by source name. A one-shot iterator is not touched: what it will bring is assumed."""
    found: dict[str, StreamStats] = {}
    for each in bound.sources:
        name = each.schema.name
        source = sources[name]
        known = declared.get(name) or (source if isinstance(source, StreamStats) else _measured(bound, name, source))
        found[name] = known.checked_against(each.schema).with_assumptions(each.schema)
    return found


def _measured(bound: BoundQuery, name: str, source: Stream | Relation) -> StreamStats:
    if not isinstance(source.feed, TableFeed | PathFeed):
        return stats()
    table = next(iter(source.batches()))
    times = event_times_us(name, table, source.time) if isinstance(source, Stream) else None
    return measured(table, times, _columns_asked(bound, name))


def _columns_asked(bound: BoundQuery, name: str) -> list[str]:
    """Columns that predicates, PARTITION BY, GROUP BY and aggregates read: the others' statistics change no plan."""
    aliases = {each.alias for each in bound.sources if each.schema.name == name}
    exprs = [*([] if bound.where is None else [bound.where]), *bound.group_by]
    exprs += [node.arg for output in bound.outputs for node in walk(output.expr) if isinstance(node, Aggregate) and node.arg is not None]
    read = [column.name for expr in exprs for column in columns_of(expr) if column.source in aliases]
    counted = [column for each in bound.sources if each.alias in aliases for column in getattr(each.window, "partition_by", ())]
    return list(dict.fromkeys([*read, *counted]))


def schema_of_stats(query: Query, name: str, known: StreamStats) -> StreamSchema:
    """A schema for a stream of which only statistics are declared: the columns they or the query name.

    A column is text where the query uses it as text and a number elsewhere; that is enough to plan.
    """
    aliases = {source.alias for source in query.sources if source.name == name}
    alone = len(query.sources) == 1
    exprs = [item.expr for item in query.select if isinstance(item, SelectItem)]
    exprs += [expr for expr in (query.where, query.having, *query.group_by) if expr is not None]
    mine = [column for expr in exprs for column in columns_of(expr) if column.source in aliases or (column.source is None and alone)]
    counted = [column for source in query.sources if source.name == name for column in getattr(source.window, "partition_by", ())]
    text = {column.name for expr in exprs for column in _text_columns(expr)}
    names = dict.fromkeys(["ts", *known.columns, *(column.name for column in mine), *counted])
    return StreamSchema(name, pa.schema([(each, pa.string() if each in text and each != "ts" else pa.int64()) for each in names]), "ts")


def _text_columns(expr: Expr) -> list[Column]:
    """Columns that stand beside text, or in a function of text."""
    found: list[Column] = []
    for node in walk(expr):
        beside_text = isinstance(node, Comparison | In) and any(
            isinstance(child, Literal) and isinstance(child.value, str) for child in children(node)
        )
        if beside_text or isinstance(node, Like) or (isinstance(node, Call) and node.name in _TEXT_FUNCTIONS):
            found += [child for child in children(node) if isinstance(child, Column)]
    return found

"""The select-project-join query, straight from the semantics: every combination of rows, one per source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import compress, product
from typing import Any

import pyarrow as pa

from tests.oracle.expressions import Row, evaluate
from tests.oracle.predicates import WherePredicates, find_admitted_rows, holds, split_where
from tests.oracle.values import column_values, event_times_us
from tests.oracle.windows import StreamRow, rows_in_window, rows_in_window_every, sort_stream_rows
from watersmeet.algebra.query import BoundQuery, BoundSource

Member = tuple[StreamRow, Row]
WindowAt = Callable[[int], frozenset[int]]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """One source of a query with its rows.

    The rows of a stream are in ≺ order; those of a relation are in their own order and have no time.
    """

    source: BoundSource
    members: tuple[Member, ...]

    def in_window(self, t_us: int) -> list[StreamRow]:
        rows = [row for row, _ in self.members]
        return rows_in_window(self.source.window, rows, t_us) if self.source.is_stream else rows

    def in_window_every(self, t_us: int) -> list[StreamRow]:
        """Return the rows in the window at an instant of EVERY."""
        rows = [row for row, _ in self.members]
        return rows_in_window_every(self.source.window, rows, t_us) if self.source.is_stream else rows


def join_rows(bound: BoundQuery, tables: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    """Return the result rows of a query over finite tables, with columns in the order of `bound.outputs`.

    Tables are given by stream or relation name.
    """
    return [tuple(evaluate(output.expr, row) for output in bound.outputs) for row in join_matches(bound, tables)]


def join_matches(bound: BoundQuery, tables: Mapping[str, pa.Table]) -> Iterator[Row]:
    """Yield the combinations that are results, each as one row with the columns of all sources."""
    feeds = [build_source_rows(source, tables[source.schema.name]) for source in bound.sources]
    where = split_where(bound)
    windows = [_cache_window_numbers(feed) for feed in feeds]
    streams = bound.stream_inputs
    for combination in product(*admitted_members(where, feeds)):
        rows = [row for row, _ in combination]
        t_us = max(rows[i].ts_us for i in streams)
        if (
            all(rows[i].number in windows[i](t_us) for i in streams)
            and pairs_hold(bound, rows)
            and holds(where.shared, row := merge_columns(combination))
        ):
            yield row


def build_source_rows(source: BoundSource, table: pa.Table) -> SourceRows:
    columns = {name: column_values(table.column(name)) for name in source.fields.names}
    times_us = event_times_us(table.column(source.time), source.unit) if source.is_stream else [0] * table.num_rows
    rows = [StreamRow(n, ts_us, {name: columns[name][n] for name in columns}) for n, ts_us in enumerate(times_us)]
    if source.is_stream:
        rows = sort_stream_rows(rows, source.time, source.fields.names)
    return SourceRows(
        source, tuple((row, {(source.alias, name): value for name, value in row.values.items()}) for row in rows)
    )


def pairs_hold(bound: BoundQuery, rows: list[StreamRow]) -> bool:
    """Return whether every pair constraint holds.

    The constraints are WINDOW = w between all streams, WINDOW (A, B) = w, and DWINDOW (A, B) = w.
    """
    at_us = {source.alias: row.ts_us for source, row in zip(bound.sources, rows, strict=True) if source.is_stream}
    if bound.query.all_pairs_us is not None and max(at_us.values()) - min(at_us.values()) > bound.query.all_pairs_us:
        return False
    for pair in bound.query.pairs:
        later_by_us = at_us[pair.second] - at_us[pair.first]
        if not (0 if pair.directed else -pair.length_us) <= later_by_us <= pair.length_us:
            return False
    return True


def admitted_members(where: WherePredicates, feeds: list[SourceRows]) -> list[list[Member]]:
    """Return, per source, the rows that can be part of a combination. Windows count the other rows too."""
    chosen = [find_admitted_rows(where, number, (row for _, row in feed.members)) for number, feed in enumerate(feeds)]
    return [list(compress(feed.members, keep)) for feed, keep in zip(feeds, chosen, strict=True)]


def merge_columns(combination: tuple[Member, ...]) -> Row:
    return {name: value for _, columns in combination for name, value in columns.items()}


def _cache_window_numbers(feed: SourceRows) -> WindowAt:
    """Return a cached function from an instant to the numbers of the rows in the window."""
    return cache(lambda t_us: frozenset(row.number for row in feed.in_window(t_us)))

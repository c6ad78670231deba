"""Queries as frozen values: as written (`Query`) and with known schemas (`BoundQuery`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.algebra.expressions import Expr, has_aggregate
from watersmeet.algebra.schema import RelationSchema, SourceSchema, StreamSchema
from watersmeet.algebra.time_bounds import DifferenceBounds, close_bounds
from watersmeet.algebra.windows import FOREVER_US, Window, check_every, check_length
from watersmeet.errors import InternalError, QueryError, Span, listing

if TYPE_CHECKING:
    from watersmeet.algebra.tree import Json


@dataclass(frozen=True, slots=True)
class Source:
    """One entry of FROM: a stream or relation under an alias, with its window."""

    name: str
    alias: str
    window: Window | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PairConstraint:
    """`WINDOW (first, second) = length`: rows are at most `length_us` apart.

    Directed (DWINDOW): the second row is at or after the first, at most `length_us` later. The planner also builds
    directed pairs whose second row is at least `least_us` later.
    """

    first: str
    second: str
    length_us: int
    directed: bool = False
    least_us: int = 0
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_length(self.length_us)
        if not 0 <= self.least_us <= (self.length_us if self.directed else 0):
            raise InternalError(f"a pair that is {self.least_us} µs to {self.length_us} µs apart")
        if self.first == self.second:
            raise QueryError(f'a window constraint between "{self.first}" and itself', span=self.span)


@dataclass(frozen=True, slots=True)
class SelectItem:
    """An output column: an expression, and its alias if the caller gave one."""

    expr: Expr
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Star:
    """`*`, or `a.*` when `source` is given."""

    source: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)


class EmitMode(StrEnum):
    """Rows that an evaluation of an aggregation emits.

    `CHANGES` emits the groups that changed, `SNAPSHOT` all groups, and `FINAL` each tumbling tile once, when it is
    complete.
    """

    CHANGES = "changes"
    SNAPSHOT = "snapshot"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Query:
    """A query as written: names not yet resolved, types unknown.

    `all_pairs_us` is `WINDOW = length`, one bound for all pairs. `pairs` are the constraints of single pairs, `DWINDOW`
    included. With `operations`, changes have a column that says whether to insert or replace a group, or to delete it.
    `text` is the caller's text, for error messages.
    """

    sources: tuple[Source, ...]
    select: tuple[SelectItem | Star, ...]
    where: Expr | None = None
    all_pairs_us: int | None = None
    pairs: tuple[PairConstraint, ...] = ()
    group_by: tuple[Expr, ...] = ()
    having: Expr | None = None
    every_us: int | None = None
    emit: EmitMode = EmitMode.CHANGES
    operations: bool = False
    text: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _check_sources(self.sources)
        _check_pairs(self.sources, self.pairs)
        if not self.select:
            raise QueryError("SELECT needs at least one item")
        if self.all_pairs_us is not None:
            check_length(self.all_pairs_us)
        if self.every_us is not None:
            check_every(self.every_us)
        if self.operations and self.emit is not EmitMode.CHANGES:
            raise QueryError(
                f"only changes have operations; {self.emit} emits whole results", hint="leave the operations out"
            )

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(source.alias for source in self.sources)

    def __str__(self) -> str:
        from watersmeet.algebra.render import format_query

        return format_query(self)

    def __repr__(self) -> str:
        return f"wm.sql({str(self)!r})"

    def _repr_html_(self) -> str:
        from watersmeet.algebra.render import html_code

        return html_code(str(self))

    def to_dict(self) -> dict[str, Json]:
        from watersmeet.algebra.render import query_to_dict

        return query_to_dict(self)

    def to_mermaid(self) -> str:
        from watersmeet.algebra.render import query_to_mermaid

        return query_to_mermaid(self)


@dataclass(frozen=True, slots=True)
class Output:
    """A named output column of a bound query."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class BoundSource:
    """A source whose schema is known."""

    alias: str
    schema: SourceSchema
    window: Window | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.window is not None and isinstance(self.schema, RelationSchema):
            raise QueryError(
                f'"{self.schema.name}" is a relation, so it cannot have a window',
                span=self.span,
                hint="leave the window out",
            )

    @property
    def is_stream(self) -> bool:
        return isinstance(self.schema, StreamSchema)

    @property
    def time(self) -> str:
        if not isinstance(self.schema, StreamSchema):
            raise InternalError(f'relation "{self.alias}" has no time')
        return self.schema.time

    @property
    def unit(self) -> str | None:
        """Unit of the integer times of a stream, None where it declares none."""
        return self.schema.unit if isinstance(self.schema, StreamSchema) else None

    @property
    def fields(self) -> pa.Schema:
        return self.schema.fields


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query whose columns are all qualified and whose coercions are all explicit.

    Queries that would need unbounded memory are refused. Bound expressions name columns as `Column(name,
    source=alias)`. `outputs` are the columns of SELECT, in order, with unique names.
    """

    query: Query
    sources: tuple[BoundSource, ...]
    outputs: tuple[Output, ...]
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    having: Expr | None = None

    def __post_init__(self) -> None:
        if len({output.name for output in self.outputs}) != len(self.outputs):
            raise InternalError("two outputs of one name")
        if not self.stream_inputs:
            raise QueryError("a continuous query needs at least one stream; every source here is a relation")
        self._refuse_unbounded()

    @property
    def stream_inputs(self) -> list[int]:
        """Numbers of the sources that are streams."""
        return [i for i, source in enumerate(self.sources) if source.is_stream]

    @property
    def is_aggregation(self) -> bool:
        return (
            bool(self.group_by) or self.having is not None or any(has_aggregate(output.expr) for output in self.outputs)
        )

    @property
    def waits_for_watermark(self) -> bool:
        """Whether rows wait for the watermark: a ROWS window counts its rows in time order."""
        return any(source.window is not None and source.window.row_limit is not None for source in self.sources)

    @property
    def given_bounds_us(self) -> list[list[int]]:
        """Bounds that the windows and constraints state directly for each pair, before any derivation."""
        number = {source.alias: i for i, source in enumerate(self.sources)}
        bound = [[FOREVER_US] * len(self.sources) for _ in self.sources]

        def tighten(i: int, j: int, length_us: int) -> None:
            if i != j:
                bound[i][j] = min(bound[i][j], length_us)

        streams = self.stream_inputs
        for i in streams:
            for j in streams:
                tighten(i, j, _longest_validity_us(self.sources[i].window, self.query.every_us))
                if self.query.all_pairs_us is not None:
                    tighten(i, j, self.query.all_pairs_us)
        for pair in self.query.pairs:
            first, second = number[pair.first], number[pair.second]
            tighten(first, second, pair.length_us)
            tighten(second, first, -pair.least_us if pair.directed else pair.length_us)
        return bound

    @property
    def bounds(self) -> DifferenceBounds:
        """The tightest bound of every pair: given ones, and derived ones as shortest paths."""
        return close_bounds(self.given_bounds_us)

    def forget_after_us(self, number: int) -> int | None:
        """Return how long after its time an aggregation needs a row of a stream without a window; None: forever.

        Its combinations stay in the aggregates. So a row can be forgotten when it can match no new row, and all rows
        that it has matched either have left their windows or never will. A ROWS window may keep a row forever.
        """
        streams = self.stream_inputs
        others = [self.sources[i].window for i in streams if i != number]
        retention_us = self.bounds.retention_us(number, streams)
        if not others or retention_us >= FOREVER_US:
            return None
        if any(window is not None and window.row_limit is not None for window in others):
            return None
        lengths_us = [_longest_validity_us(window, self.query.every_us) for window in others]
        return retention_us + max((length for length in lengths_us if length < FOREVER_US), default=0)

    def _refuse_unbounded(self) -> None:
        streams, bounds = self.stream_inputs, self.bounds
        for i in streams:
            source = self.sources[i]
            is_bounded = bounds.retention_us(i, streams) < FOREVER_US
            if self.is_aggregation and source.window is None:
                is_bounded = self.forget_after_us(i) is not None
            if source.window is None and not is_bounded:
                raise QueryError(
                    f'stream "{source.alias}" has no window, so its rows would have to be kept forever',
                    span=source.span,
                    text=self.query.text,
                    hint="give it one, like [RANGE 10 SECONDS] or [ROWS 1000]; [LANDMARK] keeps every row",
                )


def _longest_validity_us(window: Window | None, every_us: int | None) -> int:
    return FOREVER_US if window is None else window.longest_validity_us(every_us)


def _check_sources(sources: tuple[Source, ...]) -> None:
    if not sources:
        raise QueryError("FROM needs at least one source")
    seen: set[str] = set()
    for source in sources:
        if source.alias in seen:
            raise QueryError(
                f'two sources are called "{source.alias}"',
                span=source.span,
                hint="give one of them another alias with AS",
            )
        seen.add(source.alias)


def _check_pairs(sources: tuple[Source, ...], pairs: tuple[PairConstraint, ...]) -> None:
    aliases = [source.alias for source in sources]
    for pair in pairs:
        for name in (pair.first, pair.second):
            if name not in aliases:
                raise QueryError(
                    f'the window constraint names "{name}", which is not in FROM',
                    span=pair.span,
                    hint=f"sources: {listing(aliases)}",
                )


def reverse_path(query: Query) -> Query:
    """Return the query of the same path in the other direction: every directed constraint is reversed.

    A path join in both directions is the union of a query and its reverse. A result whose rows all have the same time
    is in both.

    References: Hammad, Aref, Elmagarmid, "Joining multiple data streams with window constraints", section 5.2.
    """
    if not any(pair.directed for pair in query.pairs):
        raise QueryError("only a path has a reverse, and this query has no DWINDOW")
    turned = tuple(
        replace(pair, first=pair.second, second=pair.first) if pair.directed else pair for pair in query.pairs
    )
    return replace(query, pairs=turned)

"""A generated case as a value, and the search for the smallest failing one.

A case has tables, and a query in pieces that can be removed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from tests.oracle.values import event_times_us
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.schema import RelationSchema, SourceSchema, StreamSchema
from watersmeet.errors import WatersmeetError
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse


@dataclass(frozen=True, slots=True)
class SourceData:
    """A stream (with its time column, and the unit of integer times) or a relation, and its rows."""

    name: str
    table: pa.Table
    time: str | None
    unit: str | None = None

    @property
    def schema(self) -> SourceSchema:
        if self.time is None:
            return RelationSchema(self.name, self.table.schema)
        return StreamSchema(self.name, self.table.schema, self.time, self.unit)

    @property
    def times_us(self) -> list[int]:
        """Event times of the rows of a stream."""
        return event_times_us(self.table.column(self.time or ""), self.unit)


@dataclass(frozen=True, slots=True)
class FromItem:
    """`name [window] AS alias`; the window is text with brackets, or empty."""

    name: str
    alias: str
    window: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.window, "AS", self.alias) if part)


@dataclass(frozen=True, slots=True)
class QueryPiece:
    """A piece of query text and the aliases it names; `portable` if DuckDB reads it with the same meaning."""

    text: str
    aliases: tuple[str, ...]
    portable: bool = True


@dataclass(frozen=True)
class QueryCase:
    """A query with its input. `joined` writes FROM with JOIN … ON instead of commas."""

    seed: int
    sources: tuple[SourceData, ...]
    items: tuple[FromItem, ...]
    select: tuple[QueryPiece, ...]
    predicates: tuple[QueryPiece, ...] = ()
    constraints: tuple[QueryPiece, ...] = ()
    joined: bool = False

    @cached_property
    def text(self) -> str:
        parts = ["SELECT " + ", ".join(item.text for item in self.select)]
        from_text, left_over = (
            self._joined_text() if self.joined else (", ".join(map(str, self.items)), self.predicates)
        )
        parts.append("FROM " + from_text)
        if self.constraints:
            parts.append(" AND ".join(constraint.text for constraint in self.constraints))
        if left_over:
            parts.append("WHERE " + " AND ".join(predicate.text for predicate in left_over))
        return "\n".join(parts)

    @cached_property
    def bound(self) -> BoundQuery:
        return bind(parse(self.text), self.schemas)

    @property
    def schemas(self) -> dict[str, SourceSchema]:
        return {source.name: source.schema for source in self.sources}

    @property
    def tables(self) -> dict[str, pa.Table]:
        return {source.name: source.table for source in self.sources}

    @property
    def streams(self) -> dict[str, SourceData]:
        return {source.name: source for source in self.sources if source.time is not None}

    def with_tables(self, tables: Mapping[str, pa.Table]) -> QueryCase:
        """Return the same query over other rows."""
        return replace(self, sources=tuple(replace(source, table=tables[source.name]) for source in self.sources))

    def _joined_text(self) -> tuple[str, tuple[QueryPiece, ...]]:
        """Return `a JOIN b ON … JOIN c ON …` and the predicates for WHERE.

        A predicate goes to the first join that knows all its sources; predicates of a single source go to WHERE.
        """
        pending = [predicate for predicate in self.predicates if len(predicate.aliases) > 1]
        text, known = str(self.items[0]), {self.items[0].alias}
        for item in self.items[1:]:
            known.add(item.alias)
            ready = [predicate for predicate in pending if known.issuperset(predicate.aliases)]
            pending = [predicate for predicate in pending if predicate not in ready]
            text += f" JOIN {item} ON " + (" AND ".join(predicate.text for predicate in ready) or "TRUE")
        return text, tuple(predicate for predicate in self.predicates if len(predicate.aliases) <= 1)

    def __str__(self) -> str:
        """Return a reproduction: the query, and every table as the Python that makes it."""
        lines = [f"seed {self.seed}", self.text]
        for source in self.sources:
            kind = "relation" if source.time is None else f"stream, time={source.time!r}, unit={source.unit!r}"
            lines.append(f"{source.name} ({kind}):")
            lines += [
                f"  {field.name}: {field.type} = {source.table.column(field.name).to_pylist()!r}"
                for field in source.table.schema
            ]
        return "\n".join(lines)


def smaller_cases(case: QueryCase) -> Iterator[QueryCase]:
    """Yield the case with one thing removed.

    It removes a source, a predicate, a constraint, an output, half of the rows, or a row.
    """
    yield from _drop_one_item(case)
    for field in ("predicates", "constraints", "select"):
        pieces = getattr(case, field)
        for i in range(len(pieces)):
            if len(pieces) > 1 or field != "select":
                yield replace(case, **{field: pieces[:i] + pieces[i + 1 :]})
    if case.joined:
        yield replace(case, joined=False)
    yield from _drop_some_rows(case)
    yield from _drop_one_column(case)


def _drop_one_item(case: QueryCase) -> Iterator[QueryCase]:
    for removed in case.items if len(case.items) > 1 else ():
        items = tuple(item for item in case.items if item is not removed)
        names = {item.name for item in items}
        select = tuple(piece for piece in case.select if removed.alias not in piece.aliases)
        yield replace(
            case,
            items=items,
            sources=tuple(source for source in case.sources if source.name in names),
            select=select or tuple(replace(piece, text="1 AS one", aliases=()) for piece in case.select[:1]),
            predicates=tuple(piece for piece in case.predicates if removed.alias not in piece.aliases),
            constraints=tuple(piece for piece in case.constraints if removed.alias not in piece.aliases),
        )


def _drop_some_rows(case: QueryCase) -> Iterator[QueryCase]:
    for source in case.sources:
        rows = source.table.num_rows
        for size in (rows // 2, 1):
            for start in range(0, rows, size) if 0 < size < max(rows, 2) else ():
                left = pa.concat_tables([source.table.slice(0, start), source.table.slice(start + size)])
                yield case.with_tables(case.tables | {source.name: left})


def _drop_one_column(case: QueryCase) -> Iterator[QueryCase]:
    for source in case.sources:
        for name in source.table.column_names:
            if name != source.time:
                yield case.with_tables(case.tables | {source.name: source.table.drop_columns([name])})


def shrink(case: QueryCase, fails: Callable[[QueryCase], bool], most_tries: int = 2_000) -> QueryCase:
    """Return the smallest failing case that greedy steps find.

    A case that is no longer a valid query does not count as failing. The number of tries is limited, not the time, so
    that every machine finds the same case.
    """
    tries = iter(range(most_tries))
    smaller: QueryCase | None = case
    while smaller is not None:
        case = smaller
        candidates = zip(smaller_cases(case), tries, strict=False)
        smaller = next((candidate for candidate, _ in candidates if _still_fails(candidate, fails)), None)
    return case


def _still_fails(case: QueryCase, fails: Callable[[QueryCase], bool]) -> bool:
    try:
        _ = case.bound
    except WatersmeetError:
        return False
    return fails(case)

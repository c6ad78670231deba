"""Scopes: the sources of a query, resolved against the declared schemas, and the names of sources and columns.

A name matches as written, or else regardless of case if only one name does. The text of a query uses the names of
sources before FROM declares them, so they are resolved when the whole text is parsed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from watersmeet.algebra.expressions import Column, Expr, rewrite
from watersmeet.algebra.query import BoundSource, Query, Source
from watersmeet.algebra.render import format_type
from watersmeet.algebra.schema import RelationSchema, SourceSchema
from watersmeet.algebra.windows import Window
from watersmeet.errors import QueryError, Span, errors_at, listing
from watersmeet.sql.types import Family, family_of, has_order


def match_names(name: str, existing: Iterable[str]) -> list[str]:
    """Return the matching names: none, one, or several where only the case differs.

    >>> match_names("Price", ["price", "ts"]), match_names("price", ["Price", "price"])
    (['price'], ['price'])
    >>> match_names("PRICE", ["Price", "price"])
    ['Price', 'price']
    """
    names = list(existing)
    if name in names:
        return [name]
    folded = name.casefold()
    return [candidate for candidate in names if candidate.casefold() == folded]


def out_of_scope_error(source: str, span: Span | None, in_scope: Sequence[str]) -> QueryError:
    """Build the error for a JOIN condition that names a source which FROM lists later."""
    return QueryError(
        f'source "{source}" is not in scope here: it is joined later',
        span=span,
        hint=f"sources in scope: {listing([*in_scope])}; put the condition into WHERE or into the ON of a later JOIN",
    )


class Scope:
    """The sources of a query and the types of their columns."""

    def __init__(self, sources: tuple[BoundSource, ...]):
        self.sources = sources
        self._types: dict[str, dict[str, pa.DataType]] = {
            source.alias: dict(zip(source.fields.names, source.fields.types, strict=True)) for source in sources
        }

    def columns(self, alias: str) -> list[Column]:
        return [Column(name, alias) for name in self._types[alias]]

    def type(self, column: Column) -> pa.DataType:
        assert column.source is not None
        return self._types[column.source][column.name]

    def resolve(self, column: Column) -> Column:
        """Return the column with its source and its name as declared."""
        if column.source is not None:
            alias = self.alias(column.source, column.span)
            return Column(self._resolve_in(alias, column), alias, span=column.span)
        aliases = list(self._types)
        found = self._owners(column.name, aliases[: column.visible])
        if len(found) == 1:
            return Column(found[0][1], found[0][0], span=column.span)
        if not found:
            later = self._owners(column.name, aliases)
            raise (
                out_of_scope_error(later[0][0], column.span, aliases[: column.visible])
                if later
                else self._missing_column_error(column)
            )
        owners = list(dict.fromkeys(alias for alias, _ in found))
        raise QueryError(
            f'column "{column.name}" is in {len(owners)} sources'
            if len(owners) > 1
            else f'"{column.name}" could be several columns',
            span=column.span,
            hint=f"say which: {listing([f'{alias}.{name}' for alias, name in found])}",
        )

    def has_one(self, name: str) -> bool:
        """Return whether exactly one source has a column of this name."""
        return len(self._owners(name, list(self._types))) == 1

    def _owners(self, name: str, aliases: list[str]) -> list[tuple[str, str]]:
        """Return the sources among `aliases` that have the column, with its name there.

        A name of the same case takes precedence.
        """
        found = [(alias, name) for alias in aliases if name in self._types[alias]]
        return found or [(alias, each) for alias in aliases for each in match_names(name, self._types[alias])]

    def alias(self, name: str, span: Span | None) -> str:
        found = match_names(name, self._types)
        if len(found) == 1:
            return found[0]
        problem = f'"{name}" could be {" or ".join(found)}' if found else f'there is no source "{name}" in FROM'
        raise QueryError(problem, span=span, hint=f"sources: {listing(list(self._types))}")

    def _resolve_in(self, alias: str, column: Column) -> str:
        types = self._types[alias]
        if column.name in types:
            return column.name
        found = match_names(column.name, types)
        if len(found) == 1:
            return found[0]
        source = next(source for source in self.sources if source.alias == alias)
        if found:
            raise QueryError(f'"{column.name}" could be {" or ".join(found)}', span=column.span)
        raise _no_column_error(column.name, source.schema, column.span)

    def _missing_column_error(self, column: Column) -> QueryError:
        if len(self.sources) == 1:
            return _no_column_error(column.name, self.sources[0].schema, column.span)
        names = list(dict.fromkeys(name for types in self._types.values() for name in types))
        return QueryError(
            f'no source has a column "{column.name}"', span=column.span, hint=f"existing columns: {listing(names)}"
        )


def resolve_sources(query: Query, schemas: Mapping[str, SourceSchema]) -> tuple[Query, tuple[BoundSource, ...]]:
    """Return the query with source and column names as declared, and its sources with their schemas."""
    sources: list[Source] = []
    bound: list[BoundSource] = []
    for source in query.sources:
        name = match_declared(source, schemas)
        window = _resolve_window(source, schemas[name])
        sources.append(replace(source, name=name, window=window))
        with errors_at(source.span):
            bound.append(BoundSource(source.alias, schemas[name], window, span=source.span))
    _check_pairs_have_time(query, bound)
    return replace(query, sources=tuple(sources)), tuple(bound)


def match_declared(source: Source, declared: Collection[str]) -> str:
    """Return the declared name of a source; refuse a source that is not declared."""
    found = match_names(source.name, declared)
    if len(found) == 1:
        return found[0]
    problem = (
        f'"{source.name}" could be {" or ".join(found)}' if found else f'there is no stream or relation "{source.name}"'
    )
    raise QueryError(problem, span=source.span, hint=f"declared: {listing(list(declared))}")


def _resolve_window(source: Source, schema: SourceSchema) -> Window | None:
    """Return the window with the columns of PARTITION BY as declared."""
    if source.window is None:
        return None
    if source.window.row_limit is not None:
        _check_rows_have_order(source, schema)
    with errors_at(source.span):
        return source.window.resolve_columns(lambda name: _resolve_partition_column(name, source, schema))


def _resolve_partition_column(name: str, source: Source, schema: SourceSchema) -> str:
    found = match_names(name, schema.fields.names)
    if len(found) > 1:
        raise QueryError(f'"{name}" could be {" or ".join(found)}', span=source.span)
    if not found:
        raise _no_column_error(name, schema, source.span)
    kind = schema.fields.field(found[0]).type
    if family_of(kind) is Family.OTHER:
        raise QueryError(
            f"PARTITION BY cannot take a {format_type(kind)}",
            span=source.span,
            hint="partition by columns of single values",
        )
    return found[0]


def _check_rows_have_order(source: Source, schema: SourceSchema) -> None:
    """Refuse a column whose values have no order: a ROWS window would break ties by it."""
    for field in schema.fields:
        if not has_order(field.type):
            raise QueryError(
                f'column "{field.name}" of "{schema.name}" is {field.type}, whose values have no order',
                span=source.span,
                hint="a ROWS window orders rows by all columns: leave this one out of the source",
            )


def _check_pairs_have_time(query: Query, sources: list[BoundSource]) -> None:
    relations = {source.alias for source in sources if isinstance(source.schema, RelationSchema)}
    for pair in query.pairs:
        for alias in (pair.first, pair.second):
            if alias in relations:
                raise QueryError(f'"{alias}" is a relation: it has no time, so no window to another', span=pair.span)


def _no_column_error(name: str, schema: SourceSchema, span: Span | None) -> QueryError:
    return QueryError(
        f'column "{name}" does not exist in {schema.noun} "{schema.name}"',
        span=span,
        hint=f"existing columns: {listing(schema.fields.names)}",
    )


@dataclass(frozen=True, slots=True)
class SourceName:
    """A name before a dot or in a window constraint, as written.

    In the condition of a JOIN, only the first `visible` sources of the query are in scope; None means all of them.
    """

    text: str
    span: Span
    visible: int | None = None

    def resolve(self, aliases: Sequence[str]) -> str:
        """Return the alias that the name refers to."""
        in_scope = aliases[: self.visible]
        found = match_names(self.text, in_scope)
        if len(found) == 1:
            return found[0]
        if not found and match_names(self.text, aliases):
            raise out_of_scope_error(self.text, self.span, in_scope)
        problem = (
            f'"{self.text}" could be {" or ".join(found)}' if found else f'there is no source "{self.text}" in FROM'
        )
        raise QueryError(problem, span=self.span, hint=f"sources: {listing([*aliases])}")


class SourceResolver:
    """Aliases of a query, for the names that its text uses.

    >>> names = SourceResolver([SourceName("A", Span(0, 1))], aliases=["a", "b"])
    >>> names.resolve_columns(Column("price", "A"))
    Column(name='price', source='a')
    """

    def __init__(self, names: Iterable[SourceName], aliases: Sequence[str]):
        self._aliases = {(name.text, name.visible): name.resolve(aliases) for name in names}

    def resolve(self, text: str, visible: int | None = None) -> str:
        return self._aliases[text, visible]

    def resolve_columns(self, expr: Expr) -> Expr:
        """Return the expression with every column under its source's alias."""
        return rewrite(expr, self._resolve_column)

    def _resolve_column(self, expr: Expr) -> Expr:
        if not isinstance(expr, Column) or expr.source is None:
            return expr
        return replace(expr, source=self.resolve(expr.source, expr.visible))

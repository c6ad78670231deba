"""Names of sources: every use of a name in a query, resolved to an alias in FROM.

A query's text uses the names before FROM declares them, so they are resolved when the whole text is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from watersmeet.algebra.expressions import Column, Expr, rewrite
from watersmeet.errors import QueryError, Span, listing
from watersmeet.sql.scope import match_names, out_of_scope_error


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

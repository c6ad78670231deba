"""Output columns and their names.

A column is called by its alias, else by its own name, else (an expression) by its text without the sources. Where that
gives one name twice, those without an alias say their source as well: `a_store`, `b_store`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from watersmeet.algebra.expressions import Column, Expr, rewrite
from watersmeet.algebra.query import Output, SelectItem, Star
from watersmeet.algebra.render import expression_text
from watersmeet.errors import QueryError, Span
from watersmeet.sql.scope import Scope


@dataclass(frozen=True, slots=True)
class _Candidate:
    expr: Expr
    alias: str | None
    short: str
    long: str
    span: Span | None


def named_outputs(
    select: tuple[SelectItem | Star, ...], scope: Scope, bind: Callable[[Expr], Expr]
) -> list[tuple[Output, Span | None]]:
    """The outputs in order, each with its place in the text; names are unique."""
    candidates = list(_candidates(select, scope, bind))
    wanted = Counter(candidate.alias or candidate.short for candidate in candidates)
    names = [c.alias or (c.short if wanted[c.short] == 1 else c.long) for c in candidates]
    _check_unique(candidates, names)
    return [(Output(name, candidate.expr), candidate.span) for name, candidate in zip(names, candidates, strict=True)]


def _candidates(
    select: tuple[SelectItem | Star, ...], scope: Scope, bind: Callable[[Expr], Expr]
) -> Iterator[_Candidate]:
    for item in select:
        if isinstance(item, SelectItem):
            yield _candidate(item, bind(item.expr))
            continue
        aliases = (
            [source.alias for source in scope.sources] if item.source is None else [scope.alias(item.source, item.span)]
        )
        for alias in aliases:
            for column in scope.columns(alias):
                yield _Candidate(column, None, column.name, f"{alias}_{column.name}", item.span)


def _candidate(item: SelectItem, bound: Expr) -> _Candidate:
    span = item.expr.span
    if isinstance(bound, Column):
        return _Candidate(bound, item.alias, bound.name, f"{bound.source}_{bound.name}", span)
    return _Candidate(
        bound, item.alias, expression_text(rewrite(item.expr, _without_source)), expression_text(item.expr), span
    )


def _without_source(expr: Expr) -> Expr:
    return Column(expr.name) if isinstance(expr, Column) else expr


def _check_unique(candidates: list[_Candidate], names: list[str]) -> None:
    seen: dict[str, _Candidate] = {}
    for candidate, name in zip(candidates, names, strict=True):
        if name in seen:
            both = candidate.alias is not None and seen[name].alias is not None
            raise QueryError(
                f'two output columns are called "{name}"',
                span=candidate.span,
                hint="give one of them another alias" if both else "give one of them an alias with AS",
            )
        seen[name] = candidate

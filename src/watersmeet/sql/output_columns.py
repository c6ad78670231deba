"""Output columns: their names, and references to them by position or alias in GROUP BY and HAVING.

An output column has the name of its alias, or else its own name. An expression without an alias has its text, without
the sources, as its name. Where two names clash, columns without an alias get their source as a prefix: `a_store`,
`b_store`.

GROUP BY takes a position, which counts from 1, or an alias. A column of a source takes precedence over an alias of the
same name in GROUP BY, as in SQL. HAVING is about groups: outside aggregates, only a grouped column takes precedence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from watersmeet.algebra.expressions import Aggregate, Column, Expr, Literal, rewrite
from watersmeet.algebra.query import Output, Query, SelectItem, Star
from watersmeet.algebra.render import format_expression
from watersmeet.errors import QueryError, Span, listing
from watersmeet.sql.scope import Scope, match_names


def find_grouped_output(key: Expr, query: Query, outputs: list[Output], scope: Scope) -> Output | None:
    """Return the output that a group key refers to by position or alias; None if the key is an expression."""
    if is_position(key):
        return _find_by_position(key, outputs)
    if not isinstance(key, Column) or key.source is not None or scope.has_one(key.name):
        return None
    alias = _match_alias(key.name, query)
    return None if alias is None else next(output for output in outputs if output.name == alias)


def is_position(key: Expr) -> bool:
    """Return whether a group key is a position: an integer constant."""
    return isinstance(key, Literal) and isinstance(key.value, int) and not isinstance(key.value, bool)


def replace_aliases(query: Query, group_by: tuple[Expr, ...], scope: Scope) -> Expr | None:
    """Return HAVING with the expressions of SELECT in place of their aliases."""
    if query.having is None:
        return None
    items = {item.alias: item.expr for item in query.select if isinstance(item, SelectItem) and item.alias is not None}

    def replace_name(column: Column) -> Expr:
        if column.source is not None:
            return column
        if scope.has_one(column.name) and scope.resolve(column) in group_by:
            return column
        alias = _match_alias(column.name, query)
        return column if alias is None else replace(items[alias], span=column.span)

    having: Expr = _replace_outside_aggregates(query.having, replace_name)
    return having


def _find_by_position(key: Expr, outputs: list[Output]) -> Output:
    assert isinstance(key, Literal)
    assert isinstance(key.value, int)
    if not 1 <= key.value <= len(outputs):
        columns = "one column" if len(outputs) == 1 else f"{len(outputs)} columns"
        raise QueryError(
            f"GROUP BY {key.value} is not a position in SELECT, which has {columns}",
            span=key.span,
            hint=f"positions count from 1: {listing([f'{i} is {each.name}' for i, each in enumerate(outputs, 1)])}",
        )
    return outputs[key.value - 1]


def _match_alias(name: str, query: Query) -> str | None:
    aliases = [item.alias for item in query.select if isinstance(item, SelectItem) and item.alias is not None]
    found = match_names(name, aliases)
    return found[0] if len(found) == 1 else None


def _replace_outside_aggregates(value: Any, replace_name: Callable[[Column], Expr]) -> Any:
    if isinstance(value, tuple):
        return tuple(_replace_outside_aggregates(part, replace_name) for part in value)
    if isinstance(value, Column):
        return replace_name(value)
    if not isinstance(value, Expr) or isinstance(value, Aggregate):
        return value
    parts = {each.name: getattr(value, each.name) for each in fields(value) if each.name != "span"}
    return replace(value, **{name: _replace_outside_aggregates(part, replace_name) for name, part in parts.items()})


@dataclass(frozen=True, slots=True)
class _Candidate:
    expr: Expr
    alias: str | None
    short: str
    long: str
    span: Span | None


def name_outputs(
    select: tuple[SelectItem | Star, ...], scope: Scope, bind: Callable[[Expr], Expr]
) -> list[tuple[Output, Span | None]]:
    """Return the outputs in order, each with its span in the text; names are unique."""
    candidates = list(_list_candidates(select, scope, bind))
    name_counts = Counter(candidate.alias or candidate.short for candidate in candidates)
    names = [c.alias or (c.short if name_counts[c.short] == 1 else c.long) for c in candidates]
    _check_unique(candidates, names)
    return [(Output(name, candidate.expr), candidate.span) for name, candidate in zip(names, candidates, strict=True)]


def _list_candidates(
    select: tuple[SelectItem | Star, ...], scope: Scope, bind: Callable[[Expr], Expr]
) -> Iterator[_Candidate]:
    for item in select:
        if isinstance(item, SelectItem):
            yield _make_candidate(item, bind(item.expr))
            continue
        aliases = (
            [source.alias for source in scope.sources] if item.source is None else [scope.alias(item.source, item.span)]
        )
        for alias in aliases:
            for column in scope.columns(alias):
                yield _Candidate(column, None, column.name, f"{alias}_{column.name}", item.span)


def _make_candidate(item: SelectItem, bound: Expr) -> _Candidate:
    span = item.expr.span
    if isinstance(bound, Column):
        return _Candidate(bound, item.alias, bound.name, f"{bound.source}_{bound.name}", span)
    return _Candidate(
        bound, item.alias, format_expression(rewrite(item.expr, _drop_source)), format_expression(item.expr), span
    )


def _drop_source(expr: Expr) -> Expr:
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

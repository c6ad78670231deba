"""Rules of aggregation: where aggregates are allowed, and which columns are allowed outside them."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.algebra.expressions import Aggregate, Column, Expr, Literal, children, has_aggregate, walk
from watersmeet.algebra.query import Output, Query
from watersmeet.algebra.render import format_expression, format_type
from watersmeet.errors import QueryError, Span
from watersmeet.sql.scope import Scope
from watersmeet.sql.types import Family, family_of


def check_group_keys(query: Query, group_by: tuple[Expr, ...], scope: Scope) -> None:
    """Check that group keys are expressions over the rows, of types that can be compared."""
    for written, key in zip(query.group_by, group_by, strict=True):
        _refuse_aggregates(key, "GROUP BY")
        if isinstance(written, Literal):
            raise QueryError(
                "GROUP BY takes columns and expressions, not constants", span=written.span, hint="name the column"
            )
        if isinstance(key, Column) and family_of(scope.type(key)) is Family.OTHER:
            raise QueryError(f"GROUP BY cannot take a {format_type(scope.type(key))}", span=written.span)


def check_aggregation(
    query: Query,
    where: Expr | None,
    group_by: tuple[Expr, ...],
    having: Expr | None,
    outputs: list[tuple[Output, Span | None]],
) -> None:
    """Check the positions of aggregates, and that all other columns are grouped."""
    if where is not None:
        _refuse_aggregates(where, "WHERE")
    results = [*(output.expr for output, _ in outputs), *([] if having is None else [having])]
    for expr in results:
        _refuse_nested(expr)
    if not group_by and not any(has_aggregate(expr) for expr in results):
        _refuse_without_aggregation(query)
        return
    keys = frozenset(group_by)
    for output, span in outputs:
        _check_grouped(output.expr, keys, span)
    if having is not None:
        _check_grouped(having, keys, having.span)


def _refuse_without_aggregation(query: Query) -> None:
    if query.having is not None:
        raise QueryError(
            "HAVING is for groups, and this query has no GROUP BY and no aggregate",
            span=query.having.span,
            hint="put the condition into WHERE",
        )
    if query.every_us is not None:
        raise QueryError(
            "EVERY is for aggregation queries; this query emits each result as soon as it is known",
            span=_find_every(query),
            hint="leave EVERY out, or aggregate with GROUP BY, COUNT, SUM, AVG, MIN or MAX",
        )


def _find_every(query: Query) -> Span | None:
    """Return the span of EVERY. The clause ends the text, so it is the last occurrence."""
    at = -1 if query.text is None else query.text.upper().rfind("EVERY")
    return None if at < 0 else Span(at, at + len("EVERY"))


def _refuse_aggregates(expr: Expr, clause: str) -> None:
    for node in walk(expr):
        if isinstance(node, Aggregate):
            hint = "put conditions on aggregates into HAVING" if clause == "WHERE" else None
            raise QueryError(f"an aggregate is not allowed in {clause}", span=node.span, hint=hint)


def _refuse_nested(expr: Expr) -> None:
    for node in walk(expr):
        if isinstance(node, Aggregate) and node.arg is not None and has_aggregate(node.arg):
            raise QueryError("an aggregate inside an aggregate is not supported", span=node.span)


def _check_grouped(expr: Expr, keys: frozenset[Expr], span: Span | None) -> None:
    """Check that every column outside the aggregates is a group key or part of one."""
    for column in _find_ungrouped(expr, keys):
        raise QueryError(
            f"{format_expression(column)} is neither grouped nor aggregated",
            span=column.span or span,
            hint=f"add it to GROUP BY, or aggregate it: MAX({format_expression(column)})",
        )


def _find_ungrouped(expr: Expr, keys: frozenset[Expr]) -> Iterable[Column]:
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Aggregate) or node in keys:
            continue
        if isinstance(node, Column):
            yield node
        pending.extend(reversed(children(node)))

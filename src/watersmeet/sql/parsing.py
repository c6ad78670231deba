"""Query text to `Query`: tokens, clauses, names of sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watersmeet.algebra.expressions import Expr, children, conjunction, conjuncts
from watersmeet.algebra.query import PairConstraint, Query, SelectItem, Star
from watersmeet.errors import QueryError, attach_text, errors_at
from watersmeet.sql.clauses import ParsedConstraint, ParsedQuery, QueryParser
from watersmeet.sql.scope import SourceResolver
from watersmeet.sql.tokens import tokenize

#: Depth of an expression: a chain of 99 additions is 100 deep. AND, OR and || chains count once, however long.
MAX_DEPTH = 100


def parse(text: str) -> Query:
    """Parse a query's text.

    Names keep their spelling, except that references to a source take the spelling of its alias in FROM. Every mistake
    raises a `QueryError` that marks its position in the text.

    >>> query = parse("SELECT a.item FROM sales [RANGE 1 HOUR] AS a, stock [ROWS 10] AS b WHERE a.item = B.item")
    >>> print(query)
    SELECT a.item
    FROM sales [RANGE 1 HOUR] AS a,
         stock [ROWS 10] AS b
    WHERE a.item = b.item
    """
    try:
        parsed = QueryParser(tokenize(text), text).parse_query()
        for expr in _list_expressions(parsed):
            check_depth(expr)
        return _build_query(parsed, text)
    except QueryError as error:
        attach_text(error, text if isinstance(text, str) else None)
        raise
    except RecursionError:
        raise QueryError("nested too deeply", text=text, hint="split the expression into smaller ones") from None


def parse_predicate(text: str, aliases: Sequence[str]) -> Expr:
    """Parse a condition over the sources of a query, as its WHERE could contain it.

    >>> parse_predicate("A.price > 10", ["a"]).left
    Column(name='price', source='a')
    """
    try:
        parser = QueryParser(tokenize(text), text)
        expr = parser.parse_condition()
        check_depth(expr)
        return SourceResolver(parser.source_names, aliases).resolve_columns(expr)
    except QueryError as error:
        attach_text(error, text)
        raise


def check_depth(expr: Expr) -> None:
    """Refuse an expression so deep that recursive functions over it could exhaust the stack."""
    pending = [(expr, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise QueryError(
                f"the expression is more than {MAX_DEPTH} levels deep",
                span=node.span,
                hint="split the expression into smaller ones",
            )
        pending.extend((child, depth + 1) for child in children(node))


def _list_expressions(parsed: ParsedQuery) -> Iterator[Expr]:
    yield from (item.expr for item in parsed.select if isinstance(item, SelectItem))
    yield from parsed.join_conditions
    yield from (each for each in (parsed.where, parsed.having) if each is not None)
    yield from parsed.group_by


def _build_query(parsed: ParsedQuery, text: str) -> Query:
    resolver = SourceResolver(parsed.source_names, [source.alias for source in parsed.sources])
    conditions = [*parsed.join_conditions, *([] if parsed.where is None else [parsed.where])]
    return Query(
        sources=parsed.sources,
        select=tuple(_resolve_item(item, resolver) for item in parsed.select),
        where=_combine_conditions([resolver.resolve_columns(each) for each in conditions]),
        all_pairs_us=_find_all_pairs_us(parsed.constraints),
        pairs=tuple(_build_pairs(parsed.constraints, resolver)),
        group_by=tuple(resolver.resolve_columns(key) for key in parsed.group_by),
        having=None if parsed.having is None else resolver.resolve_columns(parsed.having),
        every_us=parsed.every_us,
        emit=parsed.emit,
        operations=parsed.operations,
        text=text,
    )


def _resolve_item(item: SelectItem | Star, resolver: SourceResolver) -> SelectItem | Star:
    if isinstance(item, SelectItem):
        return SelectItem(resolver.resolve_columns(item.expr), item.alias)
    return item if item.source is None else Star(resolver.resolve(item.source), span=item.span)


def _combine_conditions(conditions: list[Expr]) -> Expr | None:
    """Combine the conditions of JOINs and WHERE with AND. A single one stays as it is written."""
    if len(conditions) == 1:
        return conditions[0]
    return conjunction(tuple(part for condition in conditions for part in conjuncts(condition)))


def _find_all_pairs_us(constraints: tuple[ParsedConstraint, ...]) -> int | None:
    unnamed = [constraint for constraint in constraints if constraint.names is None]
    if len(unnamed) > 1:
        raise QueryError("WINDOW = … for all pairs is given twice", span=unnamed[1].span)
    return unnamed[0].length_us if unnamed else None


def _build_pairs(constraints: tuple[ParsedConstraint, ...], resolver: SourceResolver) -> Iterator[PairConstraint]:
    for constraint in constraints:
        if constraint.names is not None:
            first, second = (resolver.resolve(name) for name in constraint.names)
            with errors_at(constraint.span):
                yield PairConstraint(first, second, constraint.length_us, constraint.directed, span=constraint.span)

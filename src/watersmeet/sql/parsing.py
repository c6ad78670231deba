"""Query text to `Query`."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.algebra.expressions import Expr, conjunction, conjuncts
from watersmeet.algebra.query import PairConstraint, Query, SelectItem, Source, Star
from watersmeet.errors import QueryError
from watersmeet.sql.clauses import ParsedConstraint
from watersmeet.sql.spans import attach_text, errors_at, node_span
from watersmeet.sql.tokens import WatersmeetDialect, tokenize
from watersmeet.sql.translate import Translator

MAX_SOURCES = 32


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
        return _build_query(_parse_select(text), text)
    except QueryError as error:
        attach_text(error, text if isinstance(text, str) else None)
        raise
    except RecursionError:
        raise QueryError("nested too deeply", text=text, hint="split the expression into smaller ones") from None


def _parse_select(text: str) -> exp.Select:
    (statement,) = WatersmeetDialect().parser().parse(tokenize(text), text)
    assert isinstance(statement, exp.Select)
    return statement


def _build_query(select: exp.Select, text: str) -> Query:
    joins = select.args["joins"]
    tables = [select.args["from_"], *(join.this for join in joins)]
    if len(tables) > MAX_SOURCES:
        raise QueryError(f"a query joins at most {MAX_SOURCES} sources", span=node_span(tables[MAX_SOURCES]))
    sources = tuple(_build_source(table) for table in tables)
    translator = Translator([source.alias for source in sources])
    constraints: list[ParsedConstraint] = select.args.get("pairs") or []
    return Query(
        sources=sources,
        select=tuple(_build_item(item, translator) for item in select.expressions),
        where=_build_where([join.args.get("on") for join in joins], select.args.get("where"), translator),
        all_pairs_us=_find_all_pairs_us(constraints),
        pairs=tuple(_build_pair(pair, translator) for pair in constraints if pair.names is not None),
        group_by=tuple(translator.translate(key) for key in select.args.get("group") or ()),
        having=_translate_optional(select.args.get("having"), translator),
        every_us=select.args.get("every"),
        text=text,
    )


def _build_source(table: exp.Table) -> Source:
    name, alias = table.this, table.args["alias"]
    return Source(name.name, (alias or name).name, table.args["window"], span=node_span(table))


def _build_item(item: exp.Expr, translator: Translator) -> SelectItem | Star:
    if isinstance(item, exp.Star):
        return Star(span=node_span(item))
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return Star(translator.resolve_source(item.args["table"]), span=node_span(item))
    if isinstance(item, exp.Alias):
        return SelectItem(translator.translate(item.this), item.args["alias"].name)
    return SelectItem(translator.translate(item))


def _build_where(conditions: list[exp.Expr | None], where: exp.Expr | None, translator: Translator) -> Expr | None:
    """Combine the conditions of JOINs and WHERE with AND.

    The condition of a JOIN sees its own source and those before it.
    """
    translated = [
        translator.translate_join_condition(each, visible)
        for visible, each in enumerate(conditions, start=2)
        if each is not None
    ]
    if where is not None:
        translated.append(translator.translate(where))
    if len(translated) <= 1:
        return translated[0] if translated else None
    return conjunction(tuple(part for condition in translated for part in conjuncts(condition)))


def _find_all_pairs_us(constraints: list[ParsedConstraint]) -> int | None:
    unnamed = [constraint for constraint in constraints if constraint.names is None]
    if len(unnamed) > 1:
        raise QueryError("WINDOW = … for all pairs is given twice", span=unnamed[1].span)
    return unnamed[0].length_us if unnamed else None


def _build_pair(pair: ParsedConstraint, translator: Translator) -> PairConstraint:
    assert pair.names is not None
    first, second = (translator.resolve_source(name) for name in pair.names)
    with errors_at(pair.span):
        return PairConstraint(first, second, pair.length_us, pair.directed, span=pair.span)


def _translate_optional(condition: exp.Expr | None, translator: Translator) -> Expr | None:
    return None if condition is None else translator.translate(condition)

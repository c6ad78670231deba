"""The span of a node is exactly its text: read on its own, it is the same node."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings

from tests.algebra.random_queries import queries
from watersmeet.algebra.expressions import Expr, Not, walk
from watersmeet.algebra.query import Query, SelectItem
from watersmeet.sql.grammar import ExpressionParser
from watersmeet.sql.parsing import parse
from watersmeet.sql.tokens import tokenize


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(queries())
def test_the_text_of_a_node_is_the_node(query: Query) -> None:
    text = str(query)
    for node in list_nodes(parse(text)):
        assert node.span is not None
        piece = text[node.span.start : node.span.end]
        read = ExpressionParser(tokenize(piece), piece).parse_expression()
        assert read in (node, Not(node))  # `a NOT IN (1)` is the text of the IN as well


def test_parentheses_around_an_operand_belong_to_the_operator() -> None:
    text = "SELECT (a.x + 1) * (2) AS n FROM s AS a"
    product, total, *_ = list_nodes(parse(text))
    assert [text[node.span.start : node.span.end] for node in (product, total) if node.span is not None] == [
        "(a.x + 1) * (2)",
        "a.x + 1",
    ]


def list_nodes(query: Query) -> Iterator[Expr]:
    items = [item.expr for item in query.select if isinstance(item, SelectItem)]
    conditions = [condition for condition in (query.where, query.having) if condition is not None]
    for expr in (*items, *conditions, *query.group_by):
        yield from walk(expr)

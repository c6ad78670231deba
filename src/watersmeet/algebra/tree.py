"""Queries and expressions as a neutral tree, from which text, JSON and diagrams are printed.

A node has a `kind`, `facts` (plain JSON values) and `parts`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from watersmeet.algebra.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Value,
)
from watersmeet.algebra.query import EmitMode, PairConstraint, Query, SelectItem, Source, Star
from watersmeet.algebra.windows import format_sql_duration

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of the neutral tree."""

    kind: str
    facts: dict[str, Json] = field(default_factory=dict)
    parts: tuple[TreeNode, ...] = ()


def build_query_tree(query: Query) -> TreeNode:
    """Build the tree of the query's clauses, in order, without those it does not have."""
    clauses = [
        TreeNode("select", parts=tuple(_item(item) for item in query.select)),
        TreeNode("from", parts=tuple(_source(source) for source in query.sources)),
        TreeNode("window", parts=_constraints(query)),
        TreeNode("where", parts=_optional(query.where)),
        TreeNode("group by", parts=tuple(build_expression_tree(expr) for expr in query.group_by)),
        TreeNode("having", parts=_optional(query.having)),
    ]
    if query.every_us is not None:
        clauses.append(TreeNode("every", {"length_us": query.every_us}))
    if query.operations or query.emit is not EmitMode.CHANGES:
        clauses.append(TreeNode("emit", {"mode": str(query.emit), "operations": query.operations}))
    return TreeNode("query", parts=tuple(clause for clause in clauses if clause.parts or clause.facts))


def build_expression_tree(expr: Expr) -> TreeNode:
    return _EXPRESSIONS[type(expr)](expr)


_TYPE_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.binary(): "BINARY",
}


def format_type(kind: pa.DataType) -> str:
    """Return a type's name in CAST, or Arrow's name if SQL has none.

    >>> format_type(pa.decimal128(10, 2)), format_type(pa.timestamp("ns", "UTC"))
    ('DECIMAL(10, 2)', 'timestamp[ns, tz=UTC]')
    """
    if isinstance(kind, pa.Decimal128Type):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _TYPE_NAMES.get(kind) or str(kind)


def _optional(expr: Expr | None) -> tuple[TreeNode, ...]:
    return () if expr is None else (build_expression_tree(expr),)


def _item(item: SelectItem | Star) -> TreeNode:
    if isinstance(item, Star):
        return TreeNode("star", {"source": item.source})
    return TreeNode("item", {"alias": item.alias}, (build_expression_tree(item.expr),))


def _source(source: Source) -> TreeNode:
    window = None if source.window is None else source.window.to_dict()
    return TreeNode("source", {"name": source.name, "alias": source.alias, "window": window})


def _constraints(query: Query) -> tuple[TreeNode, ...]:
    everywhere = () if query.all_pairs_us is None else (TreeNode("all pairs", {"length_us": query.all_pairs_us}),)
    return (*everywhere, *(_pair(pair) for pair in query.pairs))


def _pair(pair: PairConstraint) -> TreeNode:
    return TreeNode(
        "pair", {"first": pair.first, "second": pair.second, "length_us": pair.length_us, "directed": pair.directed}
    )


def _literal(literal: Literal) -> TreeNode:
    return TreeNode("literal", {"value": _to_json(literal.value), "type": format_type(literal.type)})


def _to_json(value: Value) -> Json:
    """Return JSON values unchanged, everything else as text."""
    show = _AS_TEXT.get(type(value))
    return cast("Json", value) if show is None else show(value)


_AS_TEXT: dict[type, Callable[[Any], Json]] = {
    float: lambda value: value if math.isfinite(value) else str(value),
    bytes: bytes.hex,
    Decimal: lambda value: format(value, "f"),
    dt.date: dt.date.isoformat,
    dt.datetime: lambda value: value.isoformat(sep=" "),
    dt.time: dt.time.isoformat,
    dt.timedelta: lambda value: format_sql_duration(value // dt.timedelta(microseconds=1)),
}


def _case(case: Case) -> TreeNode:
    branches = (
        TreeNode("when", parts=(build_expression_tree(condition), build_expression_tree(value)))
        for condition, value in case.branches
    )
    default = () if case.default is None else (TreeNode("else", parts=(build_expression_tree(case.default),)),)
    return TreeNode("case", parts=(*branches, *default))


def _aggregate(aggregate: Aggregate) -> TreeNode:
    where = aggregate.where
    condition = () if where is None else (TreeNode("filter", parts=(build_expression_tree(where),)),)
    return TreeNode("aggregate", {"function": aggregate.function}, (*_optional(aggregate.arg), *condition))


def _all(exprs: tuple[Expr, ...]) -> tuple[TreeNode, ...]:
    return tuple(build_expression_tree(expr) for expr in exprs)


_EXPRESSIONS: dict[type[Expr], Callable[[Any], TreeNode]] = {
    Column: lambda e: TreeNode("column", {"name": e.name, "source": e.source}),
    Literal: _literal,
    Comparison: lambda e: TreeNode("comparison", {"op": e.op}, _all((e.left, e.right))),
    Arithmetic: lambda e: TreeNode("arithmetic", {"op": e.op}, _all((e.left, e.right))),
    Negate: lambda e: TreeNode("negate", parts=_all((e.arg,))),
    And: lambda e: TreeNode("and", parts=_all(e.args)),
    Or: lambda e: TreeNode("or", parts=_all(e.args)),
    Not: lambda e: TreeNode("not", parts=_all((e.arg,))),
    In: lambda e: TreeNode("in", parts=_all((e.arg, *e.options))),
    Between: lambda e: TreeNode("between", parts=_all((e.arg, e.low, e.high))),
    Like: lambda e: TreeNode("like", {"pattern": e.pattern}, _all((e.arg,))),
    IsNull: lambda e: TreeNode("is null", parts=_all((e.arg,))),
    Case: _case,
    Call: lambda e: TreeNode("call", {"name": e.name}, _all(e.args)),
    Cast: lambda e: TreeNode("cast", {"type": format_type(e.type)}, _all((e.arg,))),
    Aggregate: _aggregate,
}

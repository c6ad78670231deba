"""Binding: resolve the names of a query, check its types and its aggregation, and make every coercion a `Cast`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

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
    children,
    has_aggregate,
    walk,
)
from watersmeet.algebra.query import BoundQuery, BoundSource, EmitMode, Output, Query
from watersmeet.algebra.render import format_expression, format_type
from watersmeet.algebra.schema import SourceSchema
from watersmeet.algebra.windows import format_sql_duration
from watersmeet.errors import InternalError, QueryError, Span, attach_text
from watersmeet.sql.coercion import check_cast, coerce_to_common_type, convert_to
from watersmeet.sql.functions import FUNCTIONS, resolve_aggregate_signature
from watersmeet.sql.output_columns import find_grouped_output, is_position, name_outputs, replace_aliases
from watersmeet.sql.parsing import parse_predicate
from watersmeet.sql.scope import Scope, match_declared, resolve_sources
from watersmeet.sql.type_inference import build_typed_arithmetic
from watersmeet.sql.types import NUMBERS, UINT64_AS_DECIMAL, Family, TypedExpr, family_of, plain_type


def bind(query: Query, schemas: Mapping[str, SourceSchema]) -> BoundQuery:
    """Bind the query to schemas, keyed by the names that FROM uses.

    A name that does not resolve or an expression that does not type is a `QueryError` that points into the query's
    text.

    >>> from watersmeet.algebra.render import format_expression
    >>> from watersmeet.algebra.schema import StreamSchema
    >>> from watersmeet.sql.parsing import parse
    >>> bids = StreamSchema("bids", pa.schema({"price": pa.int32(), "ts": pa.timestamp("us")}), time="ts")
    >>> bound = bind(parse("SELECT price * 2 AS double FROM bids [ROWS 5]"), {"bids": bids})
    >>> print(format_expression(bound.outputs[0].expr))
    CAST(bids.price AS BIGINT) * 2
    """
    try:
        return _bind_query(query, schemas)
    except QueryError as error:
        attach_text(error, query.text)
        raise


def bind_predicate(text: str, bound: BoundQuery) -> Expr:
    """Parse a condition over the sources of a bound query and bind it to their schemas."""
    expr = parse_predicate(text, [source.alias for source in bound.sources])
    try:
        return Binder(Scope(bound.sources)).bind_condition(expr, "a predicate")
    except QueryError as error:
        attach_text(error, text)
        raise


def refuse_undeclared_sources(query: Query, declared: Collection[str]) -> None:
    """Refuse a query over a source that is not declared. Its columns need not be known yet."""
    try:
        for source in query.sources:
            match_declared(source, declared)
    except QueryError as error:
        attach_text(error, query.text)
        raise


def _bind_query(query: Query, schemas: Mapping[str, SourceSchema]) -> BoundQuery:
    declared, sources = resolve_sources(query, schemas)
    binder = Binder(Scope(sources))
    where = _bind_condition(query.where, "WHERE", binder)
    outputs = name_outputs(query.select, binder.scope, lambda expr: binder.bind(expr).expr)
    group_by = tuple(_bind_group_key(key, query, outputs, binder) for key in query.group_by)
    having = _bind_condition(replace_aliases(query, group_by, binder.scope), "HAVING", binder)
    check_group_keys(query, group_by, binder.scope)
    check_aggregation(query, where, group_by, having, outputs)
    if query.emit is EmitMode.FINAL:
        declared = replace(declared, every_us=_find_tile_us(query, sources))
    return BoundQuery(declared, sources, tuple(output for output, _ in outputs), where, group_by, having)


def _bind_group_key(key: Expr, query: Query, outputs: list[tuple[Output, Span | None]], binder: Binder) -> Expr:
    """Bind a group key: an expression, the position of an output, or the alias of one."""
    output = find_grouped_output(key, query, [output for output, _ in outputs], binder.scope)
    if output is None:
        return binder.bind(key).expr
    if has_aggregate(output.expr):
        raise QueryError(
            f'"{output.name}" is an aggregate, and an aggregate is not allowed in GROUP BY',
            span=key.span,
            hint="group by the other columns of SELECT",
        )
    return output.expr


def _find_tile_us(query: Query, sources: tuple[BoundSource, ...]) -> int:
    """Return the length of the tiles that EMIT FINAL emits; every stream has tiles of this length."""
    tiles_us = {None if source.window is None else source.window.tile_us for source in sources if source.is_stream}
    (tile_us,) = tiles_us if len(tiles_us) == 1 else (None,)
    if tile_us is None:
        raise QueryError(
            "EMIT FINAL emits each complete tile, so every stream needs a TUMBLE window of the same length",
            span=_find_word(query, "EMIT"),
            hint="write [TUMBLE 1 MINUTE] after each stream, or EMIT SNAPSHOT",
        )
    if query.every_us is not None and tile_us % query.every_us:
        raise QueryError(
            f"EMIT FINAL is evaluated at the end of each tile, and a tile of {format_sql_duration(tile_us)} does not "
            f"end at a multiple of {format_sql_duration(query.every_us)}",
            span=_find_word(query, "EVERY"),
            hint="leave EVERY out",
        )
    return tile_us


def _bind_condition(expr: Expr | None, clause: str, binder: Binder) -> Expr | None:
    return None if expr is None else binder.bind_condition(expr, clause)


class Binder:
    """Binds expressions over a scope, each with its type."""

    def __init__(self, scope: Scope):
        self.scope = scope

    def bind(self, expr: Expr) -> TypedExpr:
        bind = _BINDERS.get(type(expr))
        if bind is None:
            raise InternalError(f"no rule binds a {type(expr).__name__}")
        return bind(self, expr)

    def bind_condition(self, expr: Expr, where: str) -> Expr:
        bound = self.bind(expr)
        if bound.family not in {Family.BOOLEAN, Family.NULL}:
            raise QueryError(f"{where} takes a condition, not a {format_type(bound.type)}", span=expr.span)
        return convert_to(bound, pa.bool_())

    def bind_column(self, expr: Column) -> TypedExpr:
        column = self.scope.resolve(expr)
        return TypedExpr(column, self.scope.type(column))

    def bind_literal(self, expr: Literal) -> TypedExpr:
        return TypedExpr(expr, expr.type)

    def bind_comparison(self, expr: Comparison) -> TypedExpr:
        left, right = self._coerce_operands((expr.left, expr.right), expr.op)
        return _boolean(Comparison(expr.op, left, right, span=expr.span))

    def bind_arithmetic(self, expr: Arithmetic) -> TypedExpr:
        result = build_typed_arithmetic(expr.op, self.bind(expr.left), self.bind(expr.right))
        made = result.expr
        assert isinstance(made, Arithmetic)
        return TypedExpr(Arithmetic(made.op, made.left, made.right, span=expr.span), result.type)

    def bind_negation(self, expr: Negate) -> TypedExpr:
        arg = self.bind(expr.arg)
        if arg.family not in {*NUMBERS, Family.NULL}:
            raise QueryError(f"minus takes a number, not a {format_type(arg.type)}", span=expr.span)
        kind = plain_type(arg.type)
        match arg.family:
            case Family.INTEGER:
                kind = UINT64_AS_DECIMAL if kind == pa.uint64() else pa.int64()
            case Family.FLOAT:
                kind = pa.float64()
            case Family.NULL:
                kind = pa.int64()
        return TypedExpr(Negate(convert_to(arg, kind), span=expr.span), kind)

    def bind_chain(self, expr: And | Or) -> TypedExpr:
        word = "AND" if isinstance(expr, And) else "OR"
        return _boolean(type(expr)(tuple(self.bind_condition(arg, word) for arg in expr.args), span=expr.span))

    def bind_inversion(self, expr: Not) -> TypedExpr:
        return _boolean(Not(self.bind_condition(expr.arg, "NOT"), span=expr.span))

    def bind_membership(self, expr: In) -> TypedExpr:
        arg, *options = self._coerce_operands((expr.arg, *expr.options), "IN")
        return _boolean(In(arg, tuple(options), span=expr.span))

    def bind_between(self, expr: Between) -> TypedExpr:
        arg, low, high = self._coerce_operands((expr.arg, expr.low, expr.high), "BETWEEN")
        return _boolean(Between(arg, low, high, span=expr.span))

    def bind_like(self, expr: Like) -> TypedExpr:
        arg = self.bind(expr.arg)
        if arg.family not in {Family.STRING, Family.NULL}:
            raise QueryError(
                f"LIKE takes a string, not a {format_type(arg.type)}",
                span=arg.span,
                hint="use CAST(… AS VARCHAR)",
            )
        return _boolean(Like(convert_to(arg, pa.string()), expr.pattern, span=expr.span))

    def bind_null_test(self, expr: IsNull) -> TypedExpr:
        return _boolean(IsNull(self.bind(expr.arg).expr, span=expr.span))

    def bind_case(self, expr: Case) -> TypedExpr:
        conditions = [self.bind_condition(condition, "WHEN") for condition, _ in expr.branches]
        values = [value for _, value in expr.branches] + ([] if expr.default is None else [expr.default])
        results, kind = coerce_to_common_type([self.bind(value) for value in values], "CASE")
        default = None if expr.default is None else results.pop()
        return TypedExpr(Case(tuple(zip(conditions, results, strict=True)), default, span=expr.span), kind)

    def bind_call(self, expr: Call) -> TypedExpr:
        function = FUNCTIONS.get(expr.name)
        if function is None:
            raise InternalError(f"{expr.name} is not in the table of functions")
        function.check_count(len(expr.args), expr.span)
        args, kind = function.resolve_signature(expr.name, [self.bind(arg) for arg in expr.args])
        return TypedExpr(Call(expr.name, tuple(args), span=expr.span), kind)

    def bind_cast(self, expr: Cast) -> TypedExpr:
        arg = check_cast(self.bind(expr.arg), expr.type)
        return TypedExpr(replace(arg.expr, span=expr.span), expr.type)

    def bind_aggregate(self, expr: Aggregate) -> TypedExpr:
        if expr.where is not None:
            return self.bind_aggregate(self._move_filter_inside(expr, expr.where))
        bound = None if expr.arg is None else self.bind(expr.arg)
        arg, kind = resolve_aggregate_signature(expr.function, bound, expr.span)
        return TypedExpr(Aggregate(expr.function, arg, span=expr.span), kind)

    def _move_filter_inside(self, expr: Aggregate, condition: Expr) -> Aggregate:
        """Return the aggregate of an argument that is NULL where FILTER is not true; aggregates ignore NULL."""
        _refuse_aggregates(condition, "FILTER")
        self.bind_condition(condition, "FILTER")
        argument = Literal(1, pa.int64()) if expr.arg is None else expr.arg
        return Aggregate(expr.function, Case(((condition, argument),), span=argument.span or expr.span), span=expr.span)

    def _coerce_operands(self, parts: tuple[Expr, ...], what: str) -> list[Expr]:
        """Bind the operands and coerce them to one type; if all are NULL, to a type that compares."""
        operands = [self.bind(part) for part in parts]
        exprs, kind = coerce_to_common_type(operands, what)
        return [convert_to(operand, pa.bool_()) for operand in operands] if kind == pa.null() else exprs


def _boolean(expr: Expr) -> TypedExpr:
    return TypedExpr(expr, pa.bool_())


_BINDERS: dict[type[Expr], Callable[[Binder, Any], TypedExpr]] = {
    Column: Binder.bind_column,
    Literal: Binder.bind_literal,
    Comparison: Binder.bind_comparison,
    Arithmetic: Binder.bind_arithmetic,
    Negate: Binder.bind_negation,
    And: Binder.bind_chain,
    Or: Binder.bind_chain,
    Not: Binder.bind_inversion,
    In: Binder.bind_membership,
    Between: Binder.bind_between,
    Like: Binder.bind_like,
    IsNull: Binder.bind_null_test,
    Case: Binder.bind_case,
    Call: Binder.bind_call,
    Cast: Binder.bind_cast,
    Aggregate: Binder.bind_aggregate,
}


def check_group_keys(query: Query, group_by: tuple[Expr, ...], scope: Scope) -> None:
    """Check that group keys are expressions over the rows, of types that can be compared."""
    for written, key in zip(query.group_by, group_by, strict=True):
        _refuse_aggregates(key, "GROUP BY")
        if isinstance(written, Literal) and not is_position(written):
            raise QueryError(
                "GROUP BY takes columns, expressions and positions, not other constants",
                span=written.span,
                hint="name the column",
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
            span=_find_word(query, "EVERY"),
            hint="leave EVERY out, or aggregate with GROUP BY, COUNT, SUM, AVG, MIN or MAX",
        )
    if query.operations or query.emit is not EmitMode.CHANGES:
        raise QueryError(
            "EMIT is for aggregation queries; this query emits each result once, when it is known",
            span=_find_word(query, "EMIT"),
            hint="leave it out, or aggregate with GROUP BY, COUNT, SUM, AVG, MIN or MAX",
        )


def _find_word(query: Query, word: str) -> Span | None:
    """Return the span of EVERY or EMIT. These clauses end the text, so it is the last occurrence."""
    at = -1 if query.text is None else query.text.upper().rfind(word)
    return None if at < 0 else Span(at, at + len(word))


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

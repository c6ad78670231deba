"""Translation of sqlglot's tree into the algebra's.

Only the node classes listed here pass, and of those only the arguments that are read. Every construct that sqlglot
parsed is either translated or refused by name, never dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from sqlglot import exp

from watersmeet.algebra.expressions import (
    AGGREGATES,
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
    walk,
)
from watersmeet.errors import InternalError, QueryError, Span, listing
from watersmeet.sql import literals
from watersmeet.sql.functions import FUNCTIONS, SYNONYMS
from watersmeet.sql.scope import match_names, out_of_scope_error
from watersmeet.sql.spans import node_span

#: Depth of an expression: a chain of 99 additions is 100 deep. AND, OR and || chains count once, however long.
MAX_DEPTH = 100
#: Nodes that `CASE x WHEN …` may add by copying x into each branch.
MAX_COPIED = 20_000

_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


class Translator:
    """Translates expressions over the given sources, and limits their depth."""

    def __init__(self, aliases: list[str]):
        self._aliases = aliases
        self._visible: int | None = None
        self._depth = 0
        self._copied = 0

    def translate_join_condition(self, node: exp.Expr, visible: int) -> Expr:
        """Translate the condition of a JOIN, which sees the first `visible` sources only."""
        self._visible = visible
        condition = self.translate(node)
        self._visible = None
        return condition

    def translate(self, node: exp.Expr) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise QueryError(
                f"the expression is more than {MAX_DEPTH} levels deep",
                span=node_span(node),
                hint="split the expression into smaller ones",
            )
        method = _NODES.get(type(node))
        if method is None:
            raise QueryError(f"{_describe_node(node)} is not supported", span=node_span(node))
        translated = method(self, node)
        self._depth -= 1
        return translated

    def resolve_source(self, name: exp.Expr) -> str:
        """Return the alias that a name before a dot or in a constraint refers to."""
        in_scope = self._aliases[: self._visible]
        found = match_names(name.name, in_scope)
        if len(found) == 1:
            return found[0]
        if not found and match_names(name.name, self._aliases):
            raise out_of_scope_error(name.name, node_span(name), in_scope)
        problem = (
            f'"{name.name}" could be {" or ".join(found)}' if found else f'there is no source "{name.name}" in FROM'
        )
        raise QueryError(problem, span=node_span(name), hint=f"sources: {listing(self._aliases)}")

    # --- one method a construct

    def translate_column(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "table")
        if isinstance(node.this, exp.Star):
            raise QueryError("a star is allowed only in SELECT and in COUNT(*)", span=node_span(node))
        table = node.args.get("table")
        return Column(
            node.name,
            None if table is None else self.resolve_source(table),
            span=node_span(node),
            visible=self._visible,
        )

    def translate_literal(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "is_string")
        span = node_span(node)
        return Literal(node.this, pa.string(), span=span) if node.is_string else literals.parse_number(node.this, span)

    def translate_comparison(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "expression")
        return Comparison(_COMPARISONS[type(node)], *self._pair(node), span=node_span(node))  # type: ignore[index]

    def translate_arithmetic(self, node: exp.Expr) -> Expr:
        _check_arguments(
            node, "this", "expression", "typed", "safe"
        )  # the last two are settings of sqlglot's generator, not text
        return Arithmetic(_ARITHMETIC[type(node)], *self._pair(node), span=node_span(node))  # type: ignore[index]

    def translate_chain(self, node: exp.Expr) -> Expr:
        """Translate `a AND b AND c` as one node, without a level of recursion per operand."""
        args = tuple(self.translate(part) for part in _chain_operands(node))
        return (And if isinstance(node, exp.And) else Or)(args, span=node_span(node))

    def translate_concatenation(self, node: exp.Expr) -> Expr:
        return Call("CONCAT", tuple(self.translate(part) for part in _chain_operands(node)), span=node_span(node))

    def translate_negation(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this")
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return literals.negate(literals.parse_number(node.this.this, node_span(node)), node_span(node))
        return Negate(self.translate(node.this), span=node_span(node))

    def translate_inversion(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this")
        return Not(self.translate(node.this), span=node_span(node))

    def translate_parenthesis(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this")
        return self.translate(node.this)

    def translate_membership(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "expressions")
        options = tuple(self.translate(option) for option in node.expressions)
        return In(self.translate(node.this), options, span=node_span(node))

    def translate_between(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "low", "high")
        arg, low, high = (self.translate(node.args[part]) for part in ("this", "low", "high"))
        return Between(arg, low, high, span=node_span(node))

    def translate_like(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "expression", "negate")
        pattern: str = node.expression.this
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
            raise QueryError("the pattern ends in a backslash that escapes nothing", span=node_span(node.expression))
        like = Like(self.translate(node.this), pattern, span=node_span(node))
        return Not(like, span=node_span(node)) if node.args.get("negate") else like

    def translate_null_test(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "expression")
        if node_span(node.expression) is None:  # sqlglot's own, made of `x NOT NULL`
            raise QueryError("NOT NULL is not a condition", span=node_span(node), hint="write IS NOT NULL")
        return IsNull(self.translate(node.this), span=node_span(node))

    def translate_case(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "ifs", "default")
        subject = None if node.this is None or node.this == "" else self.translate(node.this)
        branches = tuple(self._branch(subject, branch) for branch in node.args["ifs"])
        if subject is not None:
            self._count_copies(subject, len(branches) - 1, node_span(node))
        default = node.args.get("default")
        return Case(branches, None if default is None else self.translate(default), span=node_span(node))

    def translate_cast(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "to")
        to, span = node.args["to"], node_span(node)
        if to == "DATE":
            return literals.parse_date(node.this.this, span)
        if to == "TIMESTAMP":
            return literals.parse_timestamp(node.this.this, span)
        return Cast(self.translate(node.this), to, span=span)

    def translate_interval(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this")
        return literals.interval_literal(node.args["this"], node_span(node))

    def translate_call(self, node: exp.Expr) -> Expr:
        _check_arguments(node, "this", "expressions")
        name, span = SYNONYMS.get(node.this, node.this), node_span(node)
        if name in AGGREGATES:
            return self._aggregate(name, node.expressions, span)
        args = tuple(self._argument(name, arg) for arg in node.expressions)
        if name == "IF":
            _check_count(name, args, 3, span)
            return Case(((args[0], args[1]),), args[2], span=span)
        if name == "MOD":
            _check_count(name, args, 2, span)
            return Arithmetic("%", args[0], args[1], span=span)
        FUNCTIONS[name].check_count(len(args), span)
        return Call(name, args, span=span)

    # --- parts

    def _pair(self, node: exp.Expr) -> tuple[Expr, Expr]:
        return self.translate(node.this), self.translate(node.expression)

    def _branch(self, subject: Expr | None, branch: exp.Expr) -> tuple[Expr, Expr]:
        _check_arguments(branch, "this", "true")
        condition = self.translate(branch.this)
        if subject is not None:
            condition = Comparison("=", subject, condition, span=condition.span)
        return condition, self.translate(branch.args["true"])

    def _count_copies(self, subject: Expr, copies: int, span: Span | None) -> None:
        self._copied += copies * sum(1 for _ in walk(subject))
        if self._copied > MAX_COPIED:
            raise QueryError(
                "CASE would copy a value this large into too many branches", span=span, hint="write CASE WHEN … instead"
            )

    def _aggregate(self, name: str, args: list[exp.Expr], span: Span | None) -> Expr:
        if len(args) != 1:
            raise QueryError(f"{name} takes one argument, not {len(args)}", span=span)
        if name == "COUNT" and isinstance(args[0], exp.Column) and isinstance(args[0].this, exp.Star):
            self.resolve_source(
                args[0].args["table"]
            )  # every row of a join has a row of each source, so COUNT(a.*) counts them all
            return Aggregate(name, span=span)
        if not isinstance(args[0], exp.Star):
            return Aggregate(name, self.translate(args[0]), span=span)
        if name != "COUNT":
            raise QueryError(f"{name} takes a value, not a star", span=node_span(args[0]))
        return Aggregate(name, span=span)

    def _argument(self, name: str, arg: exp.Expr) -> Expr:
        if isinstance(arg, exp.Star):
            raise QueryError(f"{name} takes a value, not a star", span=node_span(arg))
        return self.translate(arg)


_NODES: dict[type[exp.Expr], Callable[[Translator, Any], Expr]] = {
    exp.Column: Translator.translate_column,
    exp.Literal: Translator.translate_literal,
    exp.Null: lambda _, node: Literal(None, pa.null(), span=node_span(node)),
    exp.Boolean: lambda _, node: Literal(node.this, pa.bool_(), span=node_span(node)),
    **dict.fromkeys(_COMPARISONS, Translator.translate_comparison),
    **dict.fromkeys(_ARITHMETIC, Translator.translate_arithmetic),
    exp.And: Translator.translate_chain,
    exp.Or: Translator.translate_chain,
    exp.DPipe: Translator.translate_concatenation,
    exp.Neg: Translator.translate_negation,
    exp.Not: Translator.translate_inversion,
    exp.Paren: Translator.translate_parenthesis,
    exp.In: Translator.translate_membership,
    exp.Between: Translator.translate_between,
    exp.Like: Translator.translate_like,
    exp.Is: Translator.translate_null_test,
    exp.Case: Translator.translate_case,
    exp.Cast: Translator.translate_cast,
    exp.Interval: Translator.translate_interval,
    exp.Anonymous: Translator.translate_call,
}


def _chain_operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a left-leaning chain of one operator, from left to right."""
    kind, operands = type(node), []
    while type(node) is kind:
        _check_arguments(node, "this", "expression", "safe")
        operands.append(node.expression)
        node = node.this
    return [node, *reversed(operands)]


def _check_arguments(node: exp.Expr, *read: str) -> None:
    """Check that the translation reads every argument that sqlglot set on the node."""
    for key, value in node.args.items():
        if key not in read and value not in (None, [], False):
            raise InternalError(f'sqlglot\'s {type(node).__name__} carries "{key}", which nothing reads')


def _check_count(name: str, args: tuple[Expr, ...], count: int, span: Span | None) -> None:
    if len(args) != count:
        raise QueryError(f"{name} takes {count} arguments, not {len(args)}", span=span)


def _describe_node(node: exp.Expr) -> str:
    return _SIGNS.get(type(node).__name__, type(node).__name__)


_SIGNS = {"BitwiseLeftShift": "<<", "BitwiseRightShift": ">>"}

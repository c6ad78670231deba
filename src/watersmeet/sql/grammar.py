"""Grammar of expressions: tokens to the algebra's expressions, with the names of sources as written.

Operators are parsed by their binding strength. From loose to tight: OR, AND, NOT, tests, ||, + and -, *, / and %, and
the sign. Tests are comparisons, IS NULL, IN, BETWEEN and LIKE. They apply from left to right, as in Spark SQL:
`a = b IS NULL` is `(a = b) IS NULL`. Each node gets the span of its text.

References: Pratt, "Top Down Operator Precedence", POPL 1973.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import TypeVar

import pyarrow as pa

from watersmeet.algebra.expressions import (
    ARITHMETIC,
    COMPARISONS,
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
from watersmeet.errors import QueryError, Span
from watersmeet.sql import literals
from watersmeet.sql.functions import (
    AGGREGATES,
    EXTRACTED_UNITS,
    FUNCTIONS,
    SYNONYMS,
    list_callable_names,
    unknown_function_error,
)
from watersmeet.sql.scope import SourceName
from watersmeet.sql.token_reader import CALL_SUFFIXES, OUTER_JOINS, TokenReader
from watersmeet.sql.tokens import Token, TokenKind
from watersmeet.sql.types import parse_type_name

#: Largest depth of nested parentheses, calls, CASE, NOT and minus signs. A level costs the parser up to twenty of
#: Python's thousand frames.
MAX_NESTING = 32
#: Nodes that `CASE x WHEN …` may add by copying x into each branch.
MAX_COPIED = 20_000

Parsed = TypeVar("Parsed")


class Binding(IntEnum):
    """Binding strength of operators, from loose to tight."""

    OR = auto()
    AND = auto()
    NOT = auto()
    TEST = auto()
    CONCATENATION = auto()
    SUM = auto()
    PRODUCT = auto()
    SIGN = auto()

    @property
    def tighter(self) -> Binding:
        return Binding(self + 1)


class ExpressionParser(TokenReader):
    """Parser of expressions. It also collects the uses of sources' names, which FROM resolves later."""

    def __init__(self, tokens: list[Token], text: str):
        super().__init__(tokens, text)
        self.source_names: list[SourceName] = []
        self._visible: int | None = None
        self._nesting = 0
        self._copied = 0

    def parse_expression(self) -> Expr:
        return self._parse_operation(Binding.OR)

    def _parse_operation(self, loosest: Binding) -> Expr:
        """Parse an operand and the operators after it that bind at least as tightly as `loosest`."""
        start = self._current.start
        expr = self._parse_operand()
        tightest = Binding.SIGN
        while (operator := self._find_operator()) is not None and loosest <= operator.binding <= tightest:
            expr = operator.parse(self, expr, start)
            tightest = operator.binding  # so `a LIKE 'b' || 'c'` is not `(a LIKE 'b') || 'c'`
        return expr

    def _find_operator(self) -> OperatorSyntax | None:
        token = self._current
        if token.kind is not TokenKind.SYMBOL:
            self._refuse_time_zone()
            return None
        if token.text == "NOT":
            return _NEGATED if self._next.is_symbol(*_NEGATABLE) else None
        return _OPERATORS.get(token.text)

    def _refuse_time_zone(self) -> None:
        token = self._current
        if self._accept_words("AT", "TIME", "ZONE"):
            raise QueryError("AT TIME ZONE is not supported", span=token.span, hint="times are in UTC")

    # --- operators

    def _parse_chain(self, first: Expr, start: int) -> Expr:
        """Parse `a AND b AND c`, `a OR b OR c` or `a || b || c` as one node."""
        symbol = self._current.text
        args = [first]
        while self._accept(symbol):
            args.append(self._parse_operation(_OPERATORS[symbol].binding.tighter))
        if symbol == "||":
            return Call("CONCAT", tuple(args), span=self._span_from(start))
        return (And if symbol == "AND" else Or)(tuple(args), span=self._span_from(start))

    def _parse_comparison(self, left: Expr, start: int) -> Expr:
        symbol = self._advance().text
        right = self._parse_operation(Binding.TEST.tighter)
        return Comparison("<>" if symbol == "!=" else symbol, left, right, span=self._span_from(start))

    def _parse_arithmetic(self, left: Expr, start: int) -> Expr:
        symbol = self._advance().text
        right = self._parse_operation(_OPERATORS[symbol].binding.tighter)
        return Arithmetic(symbol, left, right, span=self._span_from(start))

    def _parse_negated_test(self, arg: Expr, start: int) -> Expr:
        self._advance()
        if self._accept("NULL"):
            raise QueryError("NOT NULL is not a condition", span=self._span_from(start), hint="write IS NOT NULL")
        test = _OPERATORS[self._current.text].parse(self, arg, start)
        return Not(test, span=self._span_from(start))

    def _parse_null_test(self, arg: Expr, start: int) -> Expr:
        self._advance()
        negated = self._accept("NOT")
        self._expect("NULL", "IS NULL or IS NOT NULL")
        test = IsNull(arg, span=self._span_from(start))
        return Not(test, span=self._span_from(start)) if negated else test

    def _parse_membership(self, arg: Expr, start: int) -> Expr:
        self._advance()
        self._expect("(", 'a list in parentheses after "IN"')
        options = self._parse_nested(lambda: self._parse_list(self.parse_expression))
        self._expect(")", '")"')
        return In(arg, tuple(options), span=self._span_from(start))

    def _parse_between(self, arg: Expr, start: int) -> Expr:
        self._advance()
        low = self._parse_operation(Binding.TEST.tighter)
        self._expect("AND", "AND, as in BETWEEN 1 AND 5")
        high = self._parse_operation(Binding.TEST.tighter)
        return Between(arg, low, high, span=self._span_from(start))

    def _parse_like(self, arg: Expr, start: int) -> Expr:
        self._advance()
        pattern = self._expect_kind(TokenKind.STRING, "a pattern in quotes after LIKE, as in LIKE 'a%'")
        if (len(pattern.text) - len(pattern.text.rstrip("\\"))) % 2:
            raise QueryError("the pattern ends in a backslash that escapes nothing", span=pattern.span)
        following = self._current.span
        if self._accept_words("ESCAPE"):
            raise QueryError(
                "LIKE … ESCAPE is not supported", span=following, hint="a backslash escapes the next character"
            )
        return Like(arg, pattern.text, span=self._span_from(start))

    # --- operands

    def _parse_operand(self) -> Expr:
        token = self._current
        if token.is_name:
            return self._parse_named()
        if token.kind is TokenKind.NUMBER:
            return literals.parse_number(self._advance().text, token.span)
        if token.kind is TokenKind.STRING:
            return Literal(self._advance().text, pa.string(), span=token.span)
        parse = _OPERANDS.get(token.text) if token.kind is TokenKind.SYMBOL else None
        if parse is None:
            raise self._no_operand_error()
        self._advance()
        return parse(self, token)

    def _no_operand_error(self) -> QueryError:
        token, expected = self._current, "a value, a column or an expression"
        if not token.is_symbol(*OUTER_JOINS):
            return self._unexpected_token_error(expected)
        if self._next.is_symbol("("):
            return unknown_function_error(self._text_of(token), token.span)
        return self._mismatch_error(expected, hint=self._quoting_hint(token))

    def _parse_named(self) -> Expr:
        """Parse an operand that begins with a name: a call, DATE '…', TIMESTAMP '…', or a column."""
        first = self._advance()
        if self._is_at("("):
            return self._parse_call(first)
        if self._current.kind is TokenKind.STRING and first.kind is TokenKind.NAME:
            parse_constant = literals.DATE_OR_TIMESTAMP.get(first.text.upper())
            if parse_constant is not None:
                return parse_constant(self._advance().text, self._span_from(first.start))
        if not self._accept("."):
            return Column(first.text, span=first.span, visible=self._visible)
        if self._accept("*"):
            raise QueryError("a star is allowed only in SELECT and in COUNT(*)", span=self._span_from(first.start))
        second = self._expect_name('a column after the "."')
        span = self._span_from(first.start)
        if self._is_at("."):
            raise QueryError("a column's name has at most two parts, source and column", span=span)
        return Column(second.text, self._use_source(first), span=span, visible=self._visible)

    def _use_source(self, token: Token) -> str:
        self.source_names.append(SourceName(token.text, token.span, self._visible))
        return token.text

    def _parse_point(self, token: Token) -> Expr:
        raise self._unexpected_token_error("digits after the point")

    def _parse_parenthesis(self, token: Token) -> Expr:
        inner = self._parse_nested(self.parse_expression)
        if self._is_at(","):
            raise QueryError("several values in parentheses are allowed only after IN", span=self._current.span)
        self._expect(")", '")"')
        return inner

    def _parse_not(self, token: Token) -> Expr:
        arg = self._parse_nested(lambda: self._parse_operation(Binding.NOT.tighter))
        return Not(arg, span=self._span_from(token.start))

    def _parse_minus(self, token: Token) -> Expr:
        """Parse a minus sign, which belongs to the number that directly follows it."""
        if self._current.kind is TokenKind.NUMBER:
            number = self._advance().text
            span = self._span_from(token.start)
            return literals.negate(literals.parse_number(number, span), span)
        return Negate(self._parse_nested(self._parse_operand), span=self._span_from(token.start))

    def _parse_case(self, token: Token) -> Expr:
        subject = None if self._is_at("WHEN") else self._parse_nested(self.parse_expression)
        branches: list[tuple[Expr, Expr]] = []
        while self._accept("WHEN"):
            condition = self._parse_nested(self.parse_expression)
            if subject is not None:
                condition = Comparison("=", subject, condition, span=condition.span)
            self._expect("THEN", "THEN")
            branches.append((condition, self._parse_nested(self.parse_expression)))
        if not branches:
            raise self._unexpected_token_error("WHEN")
        default = self._parse_nested(self.parse_expression) if self._accept("ELSE") else None
        self._expect("END", "WHEN, ELSE or the END of this CASE")
        span = self._span_from(token.start)
        if subject is not None:
            self._count_copies(subject, len(branches) - 1, span)
        return Case(tuple(branches), default, span=span)

    def _count_copies(self, subject: Expr, copies: int, span: Span) -> None:
        self._copied += copies * sum(1 for _ in walk(subject))
        if self._copied > MAX_COPIED:
            raise QueryError(
                "CASE would copy a value this large into too many branches", span=span, hint="write CASE WHEN … instead"
            )

    def _parse_interval(self, token: Token) -> Expr:
        length_us = self._parse_duration("a length, as in INTERVAL 5 SECONDS")
        return literals.interval_literal(length_us, self._span_from(token.start))

    def _parse_duration(self, expected: str) -> int:
        """Parse a number and a unit, and return microseconds."""
        start = self._current.start
        sign = -1 if self._accept("-") else 1
        if self._current.kind not in (TokenKind.NUMBER, TokenKind.STRING):
            raise self._unexpected_token_error(expected)
        number = self._advance()
        span = self._span_from(start)
        unit = self._expect_kind(TokenKind.NAME, "a unit, like SECONDS")
        return sign * literals.parse_length_us(number.text, unit.text, number=span, unit_span=unit.span)

    # --- calls

    def _parse_call(self, function: Token) -> Expr:
        if self._next.is_symbol("SELECT"):
            self._advance()
            raise self._unexpected_token_error()
        name = function.text.upper()
        if function.kind is TokenKind.QUOTED_NAME or name not in list_callable_names():
            raise unknown_function_error(function.text, function.span)
        self._advance()
        plain = ExpressionParser._parse_aggregate if name in AGGREGATES else ExpressionParser._parse_plain_call
        parse = _SPECIAL_CALLS.get(name, plain)
        return self._parse_nested(lambda: parse(self, function))

    def _parse_plain_call(self, function: Token) -> Expr:
        name = function.text.upper()
        if self._is_at("*"):
            raise QueryError(f"{name} takes a value, not a star", span=self._current.span)
        args = () if self._is_at(")") else tuple(self._parse_list(self.parse_expression))
        return _build_call(SYNONYMS.get(name, name), args, self._close_call(function))

    def _parse_aggregate(self, function: Token) -> Expr:
        """Parse an aggregate. A row of a join has a row of each source, so COUNT(a.*) is COUNT(*)."""
        name = function.text.upper()
        if AGGREGATES[name].counts_rows and (self._accept("*") or self._accept_qualified_star() is not None):
            return self._parse_filter(Aggregate(name, span=self._close_call(function)), function.start)
        call = self._parse_plain_call(function)
        assert isinstance(call, Aggregate)
        return self._parse_filter(call, function.start)

    def _parse_filter(self, aggregate: Aggregate, start: int) -> Aggregate:
        """Parse `FILTER (WHERE condition)`, if it follows an aggregate."""
        if not self._is_at_filter():
            return aggregate
        self._advance()
        self._expect("(", 'the "(" of FILTER (WHERE …)')
        self._expect("WHERE", "WHERE and a condition, as in FILTER (WHERE a.x > 0)")
        condition = self.parse_expression()
        self._expect(")", 'the ")" that closes FILTER')
        return replace(aggregate, where=condition, span=self._span_from(start))

    def _is_at_filter(self) -> bool:
        token = self._current
        return token.kind is TokenKind.NAME and token.text.upper() == "FILTER" and self._next.is_symbol("(")

    def _accept_qualified_star(self) -> str | None:
        """Skip `a.*` if it comes next, and return its source."""
        after = self._tokens[self._index + 1 : self._index + 3]
        if not (self._current.is_name and after[0].is_symbol(".") and after[1].is_symbol("*")):
            return None
        source = self._use_source(self._current)
        self._index += 3
        return source

    def _parse_cast(self, function: Token) -> Expr:
        arg = self.parse_expression()
        self._expect("AS", "AS and a type, as in CAST(x AS BIGINT)")
        kind = self._parse_type()
        return Cast(arg, kind, span=self._close_call(function))

    def _parse_type(self) -> pa.DataType:
        name = self._expect_kind(TokenKind.NAME, "a type")
        sizes: list[str] = []
        if self._accept("("):
            sizes = self._parse_list(lambda: self._expect_kind(TokenKind.NUMBER, "a number of digits").text)
            self._expect(")", '")"')
        return parse_type_name(name.text, sizes, self._span_from(name.start))

    def _parse_extraction(self, function: Token) -> Expr:
        unit = self._expect_kind(TokenKind.NAME, "a unit, as in EXTRACT(HOUR FROM a.ts)")
        if unit.text.upper() not in EXTRACTED_UNITS:
            raise QueryError(
                f'"{unit.text}" cannot be extracted', span=unit.span, hint=f"units: {', '.join(EXTRACTED_UNITS)}"
            )
        self._expect("FROM", "FROM, as in EXTRACT(HOUR FROM a.ts)")
        arg = self.parse_expression()
        return Call(unit.text.upper(), (arg,), span=self._close_call(function))

    def _close_call(self, function: Token) -> Span:
        """Skip the parenthesis that closes a call, and return the span of the call."""
        name = function.text.upper()
        self._expect(")", f'"," or the ")" that closes {name}')
        word = self._current.text.upper() if self._current.kind is TokenKind.NAME else ""
        if word in CALL_SUFFIXES and not (name in AGGREGATES and self._is_at_filter()):
            raise QueryError(f"{name}(…) {word} is not supported", span=self._current.span, hint=CALL_SUFFIXES[word])
        return self._span_from(function.start)

    def _parse_nested(self, parse: Callable[[], Parsed]) -> Parsed:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise QueryError(
                f"nested more than {MAX_NESTING} deep",
                span=self._current.span,
                hint="split the expression into smaller ones",
            )
        inner = parse()
        self._nesting -= 1
        return inner


def _build_call(name: str, args: tuple[Expr, ...], span: Span) -> Expr:
    if name in AGGREGATES:
        _check_count(name, args, "one argument", 1, span)
        return Aggregate(name, args[0], span=span)
    if name == "IF":
        _check_count(name, args, "3 arguments", 3, span)
        return Case(((args[0], args[1]),), args[2], span=span)
    if name == "MOD":
        _check_count(name, args, "2 arguments", 2, span)
        return Arithmetic("%", args[0], args[1], span=span)
    FUNCTIONS[name].check_count(len(args), span)
    return Call(name, args, span=span)


def _check_count(name: str, args: tuple[Expr, ...], expected: str, count: int, span: Span) -> None:
    if len(args) != count:
        raise QueryError(f"{name} takes {expected}, not {len(args)}", span=span)


@dataclass(frozen=True, slots=True)
class OperatorSyntax:
    """An operator after its first operand: `parse` gets that operand and the start of its text."""

    binding: Binding
    parse: Callable[[ExpressionParser, Expr, int], Expr]


_OPERATORS: dict[str, OperatorSyntax] = {
    "OR": OperatorSyntax(Binding.OR, ExpressionParser._parse_chain),
    "AND": OperatorSyntax(Binding.AND, ExpressionParser._parse_chain),
    "IS": OperatorSyntax(Binding.TEST, ExpressionParser._parse_null_test),
    **dict.fromkeys((*COMPARISONS, "!="), OperatorSyntax(Binding.TEST, ExpressionParser._parse_comparison)),
    "IN": OperatorSyntax(Binding.TEST, ExpressionParser._parse_membership),
    "BETWEEN": OperatorSyntax(Binding.TEST, ExpressionParser._parse_between),
    "LIKE": OperatorSyntax(Binding.TEST, ExpressionParser._parse_like),
    "||": OperatorSyntax(Binding.CONCATENATION, ExpressionParser._parse_chain),
    **{
        sign: OperatorSyntax(Binding.SUM if sign in "+-" else Binding.PRODUCT, ExpressionParser._parse_arithmetic)
        for sign in ARITHMETIC
    },
}
_NEGATABLE = ("IN", "BETWEEN", "LIKE", "NULL")
_NEGATED = OperatorSyntax(Binding.TEST, ExpressionParser._parse_negated_test)

_OPERANDS: dict[str, Callable[[ExpressionParser, Token], Expr]] = {
    "NULL": lambda _, token: Literal(None, pa.null(), span=token.span),
    "TRUE": lambda _, token: Literal(True, pa.bool_(), span=token.span),
    "FALSE": lambda _, token: Literal(False, pa.bool_(), span=token.span),
    "NOT": ExpressionParser._parse_not,
    "-": ExpressionParser._parse_minus,
    "(": ExpressionParser._parse_parenthesis,
    "CASE": ExpressionParser._parse_case,
    "INTERVAL": ExpressionParser._parse_interval,
    ".": ExpressionParser._parse_point,
}

#: Calls whose arguments have a grammar of their own.
_SPECIAL_CALLS: dict[str, Callable[[ExpressionParser, Token], Expr]] = {
    "CAST": ExpressionParser._parse_cast,
    "EXTRACT": ExpressionParser._parse_extraction,
}

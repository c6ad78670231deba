"""The expression grammar: sqlglot's operators and their precedence, over operands parsed here.

sqlglot reads the union of thirty dialects and forgives much: a missing AND in BETWEEN, an extra comma, a stray bracket.
So every table of constructs is cut down to those we support, and our own code parses every operand and reports what it
expected where. Each node gets the span of its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.algebra.names import RESERVED
from watersmeet.errors import QueryError, Span
from watersmeet.sql.functions import CALLABLE, EXTRACTED_UNITS, unknown_function_error
from watersmeet.sql.literals import DATE_OR_TIMESTAMP, parse_length_us
from watersmeet.sql.spans import token_span
from watersmeet.sql.types import parse_type_name

#: Largest depth of nested parentheses, CASE, NOT and minus signs. A level costs the parser up to sixteen of Python's
#: thousand frames.
MAX_NESTING = 32

Node = TypeVar("Node", bound=exp.Expr)
Item = TypeVar("Item")


class ExpressionGrammar(Parser):
    """Grammar of expressions: sqlglot's parser with smaller tables and its own operands."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {}
    ASSIGNMENT: ClassVar[dict[TokenType, type[exp.Expr]]] = {}
    EQUALITY: ClassVar[dict[TokenType, type[exp.Binary]]] = {TokenType.EQ: exp.EQ, TokenType.NEQ: exp.NEQ}
    BITWISE: ClassVar[dict[TokenType, type[exp.Binary]]] = {}
    TERM: ClassVar[dict[TokenType, type[exp.Binary]]] = {TokenType.DASH: exp.Sub, TokenType.PLUS: exp.Add}
    FACTOR: ClassVar[dict[TokenType, type[exp.Binary]]] = {
        TokenType.MOD: exp.Mod,
        TokenType.SLASH: exp.Div,
        TokenType.STAR: exp.Mul,
    }
    UNARY_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        TokenType.NOT: lambda self: self._parse_prefix(exp.Not, self._parse_equality),
        TokenType.DASH: lambda self: self._parse_prefix(exp.Neg, self._parse_unary),
    }
    RANGE_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        TokenType.BETWEEN: lambda self, this: self._parse_between(this),
        TokenType.IN: lambda self, this: self._parse_in(this),
        TokenType.IS: lambda self, this: self._parse_is(this),
        TokenType.LIKE: lambda self, this: self._parse_like(this),
    }
    PRIMARY_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        TokenType.STRING: lambda self, token: self.expression(exp.Literal(this=token.text, is_string=True), token),
        TokenType.NUMBER: lambda self, token: self.expression(exp.Literal(this=token.text, is_string=False), token),
        TokenType.NULL: lambda self, token: self.expression(exp.Null(), token),
        TokenType.TRUE: lambda self, token: self.expression(exp.Boolean(this=True), token),
        TokenType.FALSE: lambda self, token: self.expression(exp.Boolean(this=False), token),
        TokenType.DOT: lambda self, token: self._parse_fraction(token),
        TokenType.L_PAREN: lambda self, token: self._parse_parenthesis(token),
        TokenType.CASE: lambda self, token: self._parse_branches(token),
        TokenType.INTERVAL: lambda self, token: self._parse_interval_literal(token),
    }

    def reset(self) -> None:
        super().reset()
        self._nesting = 0

    # --- what sqlglot calls

    def expression(self, instance: Node, token: Token | None = None, comments: list[str] | None = None) -> Node:
        """Set the node's span: the token's, or from its first operand to the last token read."""
        if token is not None:
            return instance.update_positions(token)
        first = instance.args.get("this")
        start = first.meta_get("start") if isinstance(first, exp.Expr) else None
        return self._set_span(instance, self._prev.start if start is None else start)

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise sqlglot's own errors. With the tables above, only a missing closing parenthesis remains."""
        raise self._unexpected_token_error('")"' if message == "Expecting )" else None)

    def _parse_disjunction(self) -> exp.Expr | None:
        """Parse an expression. Besides the prefix operators, this is the only way that expressions nest."""
        return self._parse_nested(super()._parse_disjunction)

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        if self._match_text_seq("AT", "TIME", "ZONE", advance=False):
            raise QueryError("AT TIME ZONE is not supported", span=self._current_span(), hint="times are in UTC")
        return this

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        token = self._curr
        if token.token_type in self.IDENTIFIER_TOKENS:
            return self._parse_named(token)
        parser = self.PRIMARY_PARSERS.get(token.token_type)
        if parser is None:
            raise self._unexpected_token_error("a value, a column or an expression")
        self._advance()
        operand: exp.Expr = parser(self, token)
        return operand

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        self._expect(TokenType.AND, "AND, as in BETWEEN 1 AND 5")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        self._expect(TokenType.L_PAREN, 'a list in parentheses after "IN"')
        options = self._parse_list(self._parse_disjunction)
        self._expect(TokenType.R_PAREN, '")"')
        return self.expression(exp.In(this=this, expressions=options))

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        negated = self._match(TokenType.NOT)
        null = self._expect(TokenType.NULL, "IS NULL or IS NOT NULL")
        test: exp.Expr = self.expression(exp.Is(this=this, expression=exp.Null().update_positions(null)))
        return self.expression(exp.Not(this=test)) if negated else test

    # --- operands

    def _parse_like(self, this: exp.Expr | None) -> exp.Like:
        pattern = self._curr
        if pattern.token_type != TokenType.STRING:
            raise self._unexpected_token_error("a pattern in quotes after LIKE, as in LIKE 'a%'")
        self._advance()
        if self._curr.text.upper() == "ESCAPE" and self._at(TokenType.VAR):
            raise QueryError(
                "LIKE … ESCAPE is not supported",
                span=self._current_span(),
                hint="a backslash escapes the next character",
            )
        return self.expression(
            exp.Like(this=this, expression=exp.Literal.string(pattern.text).update_positions(pattern))
        )

    def _parse_named(self, token: Token) -> exp.Expr:
        """Parse an operand that begins with a name: a function call, DATE '…', TIMESTAMP '…', or a column."""
        following = self._next.token_type
        if following == TokenType.L_PAREN:
            return self._parse_call(token)
        if (
            following == TokenType.STRING
            and token.token_type == TokenType.VAR
            and token.text.upper() in DATE_OR_TIMESTAMP
        ):
            self._advance(2)
            text = exp.Literal.string(self._prev.text).update_positions(self._prev)
            return self._set_span(exp.Cast(this=text, to=token.text.upper()), token.start)
        first = self._name("a column")
        if not self._match(TokenType.DOT):
            return self.expression(exp.Column(this=first))
        if self._match(TokenType.STAR):
            return self._set_span(exp.Column(this=exp.Star(), table=first), token.start)
        second = self._name('a column after the "."')
        if self._at(TokenType.DOT):
            raise QueryError(
                "a column's name has at most two parts, source and column", span=Span(token.start, self._prev.end + 1)
            )
        return self._set_span(exp.Column(this=second, table=first), token.start)

    def _parse_call(self, token: Token) -> exp.Expr:
        name = token.text.upper()
        if token.token_type == TokenType.IDENTIFIER or name not in CALLABLE:
            raise unknown_function_error(token.text, token_span(token))
        self._advance(2)
        if name == "CAST":
            call = self._parse_cast_arguments()
        elif name == "EXTRACT":
            call = self._parse_extract_arguments()
        else:
            call = exp.Anonymous(this=name, expressions=self._parse_arguments())
        self._expect(TokenType.R_PAREN, f'"," or the ")" that closes {name}')
        self._refuse_call_suffix(name)
        return self._set_span(call, token.start)

    def _parse_arguments(self) -> list[exp.Expr]:
        if self._at(TokenType.R_PAREN):
            return []
        if self._match(TokenType.STAR):
            return [exp.Star().update_positions(self._prev)]
        return self._parse_list(self._parse_disjunction)

    def _parse_cast_arguments(self) -> exp.Expr:
        operand = self._parse_disjunction()
        self._expect(TokenType.ALIAS, "AS and a type, as in CAST(x AS BIGINT)")
        return exp.Cast(this=operand, to=self._parse_type_name())

    def _parse_type_name(self) -> Any:
        """Parse a type name into an Arrow type, which sqlglot's nodes carry unchanged."""
        token = self._curr
        if token.token_type != TokenType.VAR:
            raise self._unexpected_token_error("a type")
        self._advance()
        sizes: list[str] = []
        if self._match(TokenType.L_PAREN):
            sizes = self._parse_list(lambda: self._expect(TokenType.NUMBER, "a number of digits").text)
            self._expect(TokenType.R_PAREN, '")"')
        return parse_type_name(token.text, sizes, Span(token.start, self._prev.end + 1))

    def _parse_extract_arguments(self) -> exp.Expr:
        unit = self._expect(TokenType.VAR, "a unit, as in EXTRACT(HOUR FROM a.ts)")
        if unit.text.upper() not in EXTRACTED_UNITS:
            raise QueryError(
                f'"{unit.text}" cannot be extracted', span=token_span(unit), hint=f"units: {', '.join(EXTRACTED_UNITS)}"
            )
        self._expect(TokenType.FROM, "FROM, as in EXTRACT(HOUR FROM a.ts)")
        return exp.Anonymous(this=unit.text.upper(), expressions=[self._parse_disjunction()])

    def _refuse_call_suffix(self, name: str) -> None:
        word = self._curr.text.upper() if self._at(TokenType.VAR) else ""
        if word in _CALL_SUFFIXES:
            raise QueryError(f"{name}(…) {word} is not supported", span=self._current_span(), hint=_CALL_SUFFIXES[word])

    def _parse_fraction(self, token: Token) -> exp.Expr:
        """Parse `.5`, which the tokenizer splits into a point and a number."""
        digits = self._curr.text
        if not self._at(TokenType.NUMBER) or not self._is_connected() or "." in digits:
            raise self._unexpected_token_error("digits after the point")
        self._advance()
        return self._set_span(exp.Literal(this=f"0.{digits}", is_string=False), token.start)

    def _parse_parenthesis(self, token: Token) -> exp.Expr:
        inner = self._parse_disjunction()
        if self._at(TokenType.COMMA):
            raise QueryError("several values in parentheses are allowed only after IN", span=self._current_span())
        self._expect(TokenType.R_PAREN, '")"')
        return self._set_span(exp.Paren(this=inner), token.start)

    def _parse_branches(self, token: Token) -> exp.Expr:
        subject = None if self._at(TokenType.WHEN) else self._parse_disjunction()
        branches = []
        while self._match(TokenType.WHEN):
            condition = self._parse_disjunction()
            self._expect(TokenType.THEN, "THEN")
            branches.append(exp.If(this=condition, true=self._parse_disjunction()))
        if not branches:
            raise self._unexpected_token_error("WHEN")
        default = self._parse_disjunction() if self._match(TokenType.ELSE) else None
        self._expect(TokenType.END, "WHEN, ELSE or the END of this CASE")
        return self._set_span(exp.Case(this=subject, ifs=branches, default=default), token.start)

    def _parse_interval_literal(self, token: Token) -> exp.Expr:
        length_us = self._parse_duration("a length, as in INTERVAL 5 SECONDS")
        return self._set_span(exp.Interval(this=length_us), token.start)

    def _parse_duration(self, expected: str) -> int:
        """Parse a number and a unit, and return microseconds; `self._prev` is the unit afterwards."""
        start = self._curr
        sign = -1 if self._match(TokenType.DASH) else 1
        if not self._at(TokenType.NUMBER, TokenType.STRING):
            raise self._unexpected_token_error(expected)
        number = self._curr
        self._advance()
        unit = self._curr
        if unit.token_type != TokenType.VAR:
            raise self._unexpected_token_error("a unit, like SECONDS")
        self._advance()
        return sign * parse_length_us(
            number.text, unit.text, number=Span(start.start, number.end + 1), unit_span=token_span(unit)
        )

    # --- reading

    def _name(self, expected: str) -> exp.Identifier:
        token = self._curr
        if token.token_type not in self.IDENTIFIER_TOKENS:
            error = self._unexpected_token_error(expected)
            if token.text.upper() in RESERVED:
                error.hint = f'quote a reserved word to use it as a name: "{token.text}"'
            raise error
        self._advance()
        return exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER).update_positions(token)

    def _parse_list(self, parse: Callable[[], Item | None]) -> list[Item]:
        """Parse one or more items with commas between; unlike in sqlglot, an item must follow each comma."""
        items = [parse()]
        while self._match(TokenType.COMMA):
            items.append(parse())
        return [item for item in items if item is not None]

    def _at(self, *kinds: TokenType) -> bool:
        return self._curr.token_type in kinds

    def _expect(self, kind: TokenType, expected: str) -> Token:
        token = self._curr
        if token.token_type != kind:
            raise self._unexpected_token_error(expected)
        self._advance()
        return token

    def _unexpected_token_error(self, expected: str | None = None) -> QueryError:
        """Build the error for a next token that the grammar does not allow here."""
        expectation = f"; expected {expected}" if expected else ""
        if not self._curr:
            return QueryError(f"the query ends too early{expectation}", span=self._current_span())
        span = token_span(self._curr)
        shown = self.sql[span.start : min(span.end, span.start + 40)]
        hint = (
            "equality is a single ="
            if shown == "=" and self._prev.token_type == TokenType.EQ
            else _HINTS.get(shown.upper())
        )
        return QueryError(f"did not expect {shown} here{expectation}", span=span, hint=hint)

    def _current_span(self) -> Span:
        """Return the span of the next token, or the place after the last one."""
        return token_span(self._curr) if self._curr else Span(self._prev.end + 1, self._prev.end + 1)

    def _parse_prefix(self, kind: type[exp.Expr], parse: Callable[[], exp.Expr | None]) -> exp.Expr:
        start = self._prev.start
        return self._set_span(kind(this=self._parse_nested(parse)), start)

    def _parse_nested(self, parse: Callable[[], exp.Expr | None]) -> exp.Expr | None:
        self._nesting += 1
        if self._nesting > MAX_NESTING + 1:  # the outermost expression is not nested
            raise QueryError(
                f"nested more than {MAX_NESTING} deep",
                span=self._current_span(),
                hint="split the expression into smaller ones",
            )
        inner = parse()
        self._nesting -= 1
        return inner

    def _set_span(self, node: Node, start: int) -> Node:
        meta = node.meta
        meta["start"], meta["end"] = start, self._prev.end
        return node


_CALL_SUFFIXES = {
    "FILTER": "put the condition inside: SUM(CASE WHEN … THEN … END)",
    "OVER": "there are no window functions; windows follow the sources in FROM",
    "WITHIN": None,
}
_HINTS = {
    "ILIKE": "ILIKE is not supported; compare LOWER(x) LIKE 'a%'",
    "RLIKE": "regular expressions are not supported; LIKE, STARTS_WITH, ENDS_WITH and CONTAINS are",
    "REGEXP": "regular expressions are not supported; LIKE, STARTS_WITH, ENDS_WITH and CONTAINS are",
    "WINDOW": "WINDOW constraints belong between FROM and WHERE",
    "DWINDOW": "DWINDOW constraints belong between FROM and WHERE",
    "DIV": "write FLOOR(a / b)",
}

"""Grammar of the clauses: select items, sources with their windows, window constraints, EVERY.

The result is sqlglot's `Select`. Windows and lengths need nothing but the text, so they are already values of the
algebra.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from watersmeet.algebra.windows import (
    LandmarkWindow,
    RangeWindow,
    RowsWindow,
    TumbleWindow,
    Window,
    check_every,
    check_length,
)
from watersmeet.errors import QueryError, Span
from watersmeet.sql.grammar import ExpressionGrammar
from watersmeet.sql.spans import errors_at, node_span

#: sqlglot has no token for EVERY. SETTINGS ends a query in another dialect and has no use in this one.
EVERY_TOKEN = TokenType.SETTINGS

_WINDOWS = "a window: RANGE, WINDOW, ROWS, PARTITION BY … ROWS, TUMBLE or LANDMARK"
_LENGTH = "a length, like 10 SECONDS"


@dataclass(frozen=True, slots=True)
class ParsedConstraint:
    """`WINDOW (first, second) = length`, or `WINDOW = length` if `names` is None; names as written."""

    names: tuple[exp.Identifier, exp.Identifier] | None
    length_us: int
    directed: bool
    span: Span


class QueryGrammar(ExpressionGrammar):
    """Grammar of a whole query."""

    def _parse_statement(self) -> exp.Expr | None:
        """Parse a query up to the end of the text.

        SELECT … FROM … [WINDOW …] [WHERE …] [WINDOW …] [GROUP BY …] [HAVING …] [EVERY …]
        """
        self._expect(TokenType.SELECT, "SELECT")
        query = exp.Select(expressions=self._parse_list(self._parse_select_item))
        self._expect(TokenType.FROM, '"," or FROM')
        query.set("from_", self._parse_source())
        query.set("joins", self._parse_from_rest())
        pairs = self._parse_constraints()
        query.set("where", self._parse_condition_after(TokenType.WHERE))
        query.set("pairs", pairs or self._parse_constraints())
        query.set("group", self._parse_list(self._parse_disjunction) if self._match(TokenType.GROUP_BY) else None)
        query.set("having", self._parse_condition_after(TokenType.HAVING))
        query.set("every", self._parse_every())
        self._expect_end()
        return query

    # --- SELECT and FROM

    def _parse_select_item(self) -> exp.Expr | None:
        if self._match(TokenType.STAR):
            return exp.Star().update_positions(self._prev)
        item = self._parse_disjunction()
        if self._match(TokenType.ALIAS):
            return self.expression(exp.Alias(this=item, alias=self._name("a name after AS")))
        if self._at(*self.IDENTIFIER_TOKENS):
            return self.expression(exp.Alias(this=item, alias=self._name("a name")))
        return item

    def _parse_source(self) -> exp.Table:
        start = self._curr
        name = self._parse_source_name()
        window = self._parse_window_brackets()
        alias = None
        if self._match(TokenType.ALIAS):
            alias = self._name("a name after AS")
        elif self._at(*self.IDENTIFIER_TOKENS):
            alias = self._name("a name")
            if self._at(TokenType.L_PAREN):
                raise QueryError(f"{alias.name} (…) is not supported in FROM", span=node_span(alias))
        if self._at(TokenType.L_BRACKET):
            if window is not None:
                raise QueryError("a source has one window", span=self._current_span())
            window = self._parse_window_brackets()
        return self._set_span(exp.Table(this=name, alias=alias, window=window), start.start)

    def _parse_source_name(self) -> exp.Identifier:
        if self._at(TokenType.L_PAREN):
            raise QueryError("FROM takes streams and relations by name, not in parentheses", span=self._current_span())
        name = self._name("the name of a stream or relation")
        if self._at(TokenType.DOT):
            raise QueryError(
                "a source's name has one part",
                span=self._current_span(),
                hint='quote a name that contains a dot: "a.b"',
            )
        if self._at(TokenType.L_PAREN):
            raise QueryError("FROM takes streams and relations by name, not functions", span=node_span(name))
        return name

    def _parse_from_rest(self) -> list[exp.Join]:
        joins: list[exp.Join] = []
        while True:
            if self._match(TokenType.COMMA):
                joins.append(exp.Join(this=self._parse_source()))
            elif self._match(TokenType.CROSS):
                self._expect(TokenType.JOIN, "JOIN")
                joins.append(exp.Join(this=self._parse_source()))
                if self._at(TokenType.ON):
                    raise QueryError(
                        "CROSS JOIN has no ON",
                        span=self._current_span(),
                        hint="leave CROSS out, or put the condition into WHERE",
                    )
            elif self._at(TokenType.INNER, TokenType.JOIN):
                joins.append(self._parse_inner_join())
            else:
                return joins

    def _parse_inner_join(self) -> exp.Join:
        self._match(TokenType.INNER)
        self._expect(TokenType.JOIN, "JOIN")
        source = self._parse_source()
        self._expect(TokenType.ON, "ON and the join's condition (CROSS JOIN has none)")
        return exp.Join(this=source, on=self._parse_disjunction())

    # --- windows

    def _parse_window_brackets(self) -> Window | None:
        if not self._match(TokenType.L_BRACKET):
            return None
        window = self._parse_window_inside()
        self._expect(TokenType.R_BRACKET, 'the "]" that closes the window')
        return window

    def _parse_window_inside(self) -> Window:
        if self._match_words("WINDOW", "UNTIL", "NOW") or self._match_words("LANDMARK"):
            return LandmarkWindow()
        if self._match_words("RANGE") or self._match_words("WINDOW"):
            return self._parse_time_window(RangeWindow)
        if self._match_words("TUMBLE"):
            return self._parse_time_window(TumbleWindow)
        columns: list[str] = []
        if self._match_words("PARTITION", "BY"):
            columns = self._parse_list(lambda: self._name("a column").name)
        if self._match_words("ROWS"):
            return self._parse_rows_window(tuple(columns))
        raise self._unexpected_token_error("ROWS, as in PARTITION BY a, b ROWS 10" if columns else _WINDOWS)

    def _parse_time_window(self, kind: type[RangeWindow] | type[TumbleWindow]) -> RangeWindow | TumbleWindow:
        start = self._curr.start
        length_us = self._parse_duration(_LENGTH)
        with errors_at(Span(start, self._prev.end + 1)):
            return kind(length_us)

    def _parse_rows_window(self, partition_by: tuple[str, ...]) -> RowsWindow:
        start = self._curr.start
        sign = -1 if self._match(TokenType.DASH) else 1
        count = self._expect(TokenType.NUMBER, "a number of rows")
        span = Span(start, count.end + 1)
        if not count.text.isdecimal():
            raise QueryError(f"a number of rows is an integer, not {count.text}", span=span)
        with errors_at(span):
            return RowsWindow(sign * int(count.text), partition_by)

    def _match_words(self, *words: str) -> bool:
        """Match words that are keywords only inside window brackets; elsewhere they are names."""
        tokens = self._tokens[self._index : self._index + len(words)]
        upper = tuple(token.text.upper() for token in tokens if token.token_type in {TokenType.VAR, TokenType.WINDOW})
        if upper != words:
            return False
        self._advance(len(words))
        return True

    # --- constraints and EVERY

    def _parse_constraints(self) -> list[ParsedConstraint]:
        if not self._at(TokenType.WINDOW):
            return []
        pairs = [self._parse_window_constraint()]
        while self._match(TokenType.AND):
            if not self._at(TokenType.WINDOW):
                raise self._unexpected_token_error(
                    "another WINDOW or DWINDOW constraint (conditions belong after WHERE)"
                )
            pairs.append(self._parse_window_constraint())
        return pairs

    def _parse_window_constraint(self) -> ParsedConstraint:
        start = self._expect(TokenType.WINDOW, "WINDOW or DWINDOW")
        directed = start.text.upper() == "DWINDOW"
        names = self._parse_pair() if directed or self._at(TokenType.L_PAREN) else None
        self._expect(TokenType.EQ, '"=" and a length, as in WINDOW (a, b) = 10 SECONDS')
        length_start = self._curr.start
        length_us = self._parse_duration(_LENGTH)
        with errors_at(Span(length_start, self._prev.end + 1)):
            check_length(length_us)
        return ParsedConstraint(names, length_us, directed, Span(start.start, self._prev.end + 1))

    def _parse_pair(self) -> tuple[exp.Identifier, exp.Identifier]:
        example = "two sources in parentheses, as in (a, b)"
        self._expect(TokenType.L_PAREN, example)
        first = self._name(example)
        self._expect(TokenType.COMMA, example)
        second = self._name(example)
        self._expect(TokenType.R_PAREN, 'the ")" after two sources')
        return first, second

    def _parse_every(self) -> int | None:
        if not self._match(EVERY_TOKEN):
            return None
        start = self._curr.start
        length_us = self._parse_duration(_LENGTH)
        with errors_at(Span(start, self._prev.end + 1)):
            check_every(length_us)
        return length_us

    # --- conditions

    def _parse_condition_after(self, keyword: TokenType) -> exp.Expr | None:
        return self._parse_disjunction() if self._match(keyword) else None

    def _expect_end(self) -> None:
        if not self._curr:
            return
        if self._at(*_CLAUSES):
            raise QueryError(
                f"{self._curr.text.upper()} is in the wrong place or repeated",
                span=self._current_span(),
                hint="the order is SELECT … FROM … WINDOW … WHERE … GROUP BY … HAVING … EVERY …",
            )
        raise self._unexpected_token_error()


_CLAUSES = {
    TokenType.FROM,
    TokenType.WINDOW,
    TokenType.WHERE,
    TokenType.GROUP_BY,
    TokenType.HAVING,
    EVERY_TOKEN,
    TokenType.JOIN,
}

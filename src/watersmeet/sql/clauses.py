"""Grammar of the clauses: select items, sources, windows, window constraints, EVERY, EMIT.

`WINDOW_RULES` has a row for each way to write a window. Windows and lengths need nothing but the text, so they are
already values of the algebra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.query import EmitMode, SelectItem, Source, Star
from watersmeet.algebra.windows import (
    LandmarkWindow,
    RangeWindow,
    RowsWindow,
    TumbleWindow,
    Window,
    check_every,
    check_length,
)
from watersmeet.errors import QueryError, Span, errors_at
from watersmeet.sql.grammar import ExpressionParser
from watersmeet.sql.scope import SourceName
from watersmeet.sql.token_reader import OUTER_JOINS, find_refusal, outer_join_error
from watersmeet.sql.tokens import TokenKind

MAX_SOURCES = 32

_CLAUSES = ("FROM", "WINDOW", "DWINDOW", "WHERE", "GROUP BY", "HAVING", "EVERY", "JOIN")


class WindowParser(ExpressionParser):
    """Parser of windows and of the parts that they are made of."""

    def parse_window(self) -> Window | None:
        """Parse a window in brackets, if one comes next."""
        if not self._accept("["):
            return None
        window = self._parse_by_rule()
        self._expect("]", 'the "]" that closes the window')
        return window

    def parse_length(self) -> int:
        """Parse a length in time, and return microseconds."""
        return self._parse_duration("a length, like 10 SECONDS")

    def parse_row_count(self) -> int:
        start = self._current.start
        sign = -1 if self._accept("-") else 1
        count = self._expect_kind(TokenKind.NUMBER, "a number of rows")
        if not count.text.isdecimal():
            raise QueryError(f"a number of rows is an integer, not {count.text}", span=self._span_from(start))
        return sign * int(count.text)

    def parse_column_names(self) -> tuple[str, ...]:
        return tuple(self._parse_list(lambda: self._expect_name("a column").text))

    def expect_words(self, words: str, example: str) -> None:
        """Skip words that must come next."""
        if not self._accept_words(*words.split()):
            raise self._unexpected_token_error(f"{words}, as in {example}")

    def _parse_by_rule(self) -> Window:
        by_length = sorted(WINDOW_RULES, key=lambda words: -len(words.split()))
        words = next((each for each in by_length if self._accept_words(*each.split())), None)
        if words is None:
            *others, last = WINDOW_RULES
            raise self._unexpected_token_error(f"a window: {', '.join(others)} or {last}")
        start = self._current.start
        try:
            return WINDOW_RULES[words](self)
        except QueryError as error:
            error.span = error.span or self._span_from(start)
            raise


def _parse_partitioned_rows(parser: WindowParser) -> Window:
    columns = parser.parse_column_names()
    parser.expect_words("ROWS", "PARTITION BY a, b ROWS 10")
    return RowsWindow(parser.parse_row_count(), columns)


#: Window kinds by the words that they begin with. A rule parses the rest, up to the bracket. The longest words that fit
#: decide. Errors list the words in this order.
WINDOW_RULES: dict[str, Callable[[WindowParser], Window]] = {
    "RANGE": lambda parser: RangeWindow(parser.parse_length()),
    "WINDOW": lambda parser: RangeWindow(parser.parse_length()),
    "ROWS": lambda parser: RowsWindow(parser.parse_row_count()),
    "PARTITION BY": _parse_partitioned_rows,
    "TUMBLE": lambda parser: TumbleWindow(parser.parse_length()),
    "LANDMARK": lambda parser: LandmarkWindow(),
    "WINDOW UNTIL NOW": lambda parser: LandmarkWindow(),
}


@dataclass(frozen=True, slots=True)
class ParsedConstraint:
    """`WINDOW (first, second) = length`, or `WINDOW = length` if `names` is None."""

    names: tuple[str, str] | None
    length_us: int
    directed: bool
    span: Span


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """The clauses of a query, with the names of sources as written.

    `source_names` lists every use of such a name, in the order of the text.
    """

    select: tuple[SelectItem | Star, ...]
    sources: tuple[Source, ...]
    join_conditions: tuple[Expr, ...]
    constraints: tuple[ParsedConstraint, ...]
    where: Expr | None
    group_by: tuple[Expr, ...]
    having: Expr | None
    every_us: int | None
    emit: EmitMode
    operations: bool
    source_names: tuple[SourceName, ...]


class QueryParser(WindowParser):
    """Parser of a whole query."""

    def parse_query(self) -> ParsedQuery:
        """Parse a query up to the end of the text.

        SELECT … FROM … [WINDOW …] [WHERE …] [WINDOW …] [GROUP BY …] [HAVING …] [EVERY …] [EMIT …]
        """
        self._expect_select()
        select = self._parse_list(self._parse_select_item)
        self._expect("FROM", '"," or FROM')
        sources, join_conditions = self._parse_from()
        constraints = self._parse_constraints()
        where = self._parse_condition_after("WHERE")
        constraints = constraints or self._parse_constraints()
        group_by = self._parse_list(self.parse_expression) if self._accept("GROUP BY") else []
        having = self._parse_condition_after("HAVING")
        every_us = self._parse_every()
        emit, operations = self._parse_emission()
        self._expect_end()
        return ParsedQuery(
            select=tuple(select),
            sources=tuple(sources),
            join_conditions=tuple(join_conditions),
            constraints=tuple(constraints),
            where=where,
            group_by=tuple(group_by),
            having=having,
            every_us=every_us,
            emit=emit,
            operations=operations,
            source_names=tuple(self.source_names),
        )

    def parse_condition(self) -> Expr:
        """Parse an expression up to the end of the text."""
        expr = self.parse_expression()
        self._expect_end()
        return expr

    def _expect_select(self) -> None:
        first = self._current
        if self._accept("SELECT"):
            return
        if first.kind is TokenKind.END or first.is_symbol(";"):
            raise QueryError("the query is empty", hint="begin with SELECT")
        hint = "only SELECT statements are supported" if first.kind is TokenKind.NAME else None
        refusal = find_refusal(first, first) if first.text[:1].isalpha() else None
        raise refusal or QueryError(
            f"a query begins with SELECT, not with {self._text_of(first)}", span=first.span, hint=hint
        )

    def _expect_end(self) -> None:
        token = self._current
        if token.is_symbol(*_CLAUSES):
            raise QueryError(
                f"{token.text} is in the wrong place or repeated",
                span=token.span,
                hint="the order is SELECT … FROM … WINDOW … WHERE … GROUP BY … HAVING … EVERY … EMIT …",
            )
        while self._accept(";"):
            pass
        if self._current.kind is TokenKind.END:
            return
        if self._previous.is_symbol(";"):
            raise QueryError(
                "one query at a time",
                span=self._current.span,
                hint="the text after the semicolon is a second statement",
            )
        raise self._unexpected_token_error()

    # --- SELECT and FROM

    def _parse_select_item(self) -> SelectItem | Star:
        start = self._current.start
        if self._accept("*"):
            return Star(span=self._span_from(start))
        source = self._accept_qualified_star()
        if source is not None:
            return Star(source, span=self._span_from(start))
        expr = self.parse_expression()
        return SelectItem(expr, self._parse_alias())

    def _parse_alias(self) -> str | None:
        if self._accept("AS"):
            return self._expect_name("a name after AS").text
        return self._advance().text if self._current.is_name else None

    def _parse_from(self) -> tuple[list[Source], list[Expr]]:
        """Parse the sources and the conditions of JOINs, each of which sees its own source and those before it."""
        sources, conditions = [self._parse_source()], []
        while self._is_at(",", "CROSS", "INNER", "JOIN", *OUTER_JOINS):
            kind = self._advance()
            if kind.is_symbol(*OUTER_JOINS):
                raise outer_join_error(kind)
            if kind.is_symbol("CROSS", "INNER"):
                self._expect("JOIN", "JOIN")
            sources.append(self._parse_source())
            if len(sources) > MAX_SOURCES:
                raise QueryError(f"a query joins at most {MAX_SOURCES} sources", span=sources[-1].span)
            if kind.is_symbol("INNER", "JOIN"):
                conditions.append(self._parse_join_condition(visible=len(sources)))
            elif kind.is_symbol("CROSS") and self._is_at("ON"):
                raise QueryError(
                    "CROSS JOIN has no ON",
                    span=self._current.span,
                    hint="leave CROSS out, or put the condition into WHERE",
                )
        return sources, conditions

    def _parse_join_condition(self, *, visible: int) -> Expr:
        self._expect("ON", "ON and the join's condition (CROSS JOIN has none)")
        self._visible = visible
        condition = self.parse_expression()
        self._visible = None
        return condition

    def _parse_source(self) -> Source:
        start = self._current.start
        name = self._parse_source_name()
        window = self.parse_window()
        alias = self._parse_source_alias() or name
        if self._is_at("["):
            if window is not None:
                raise QueryError("a source has one window", span=self._current.span)
            window = self.parse_window()
        return Source(name, alias, window, span=self._span_from(start))

    def _parse_source_name(self) -> str:
        if self._is_at("(") and not self._next.is_symbol("SELECT"):
            raise QueryError("FROM takes streams and relations by name, not in parentheses", span=self._current.span)
        self._accept("(")  # the error is the query after it
        name = self._expect_name("the name of a stream or relation")
        if self._is_at("."):
            raise QueryError(
                "a source's name has one part",
                span=self._current.span,
                hint='quote a name that contains a dot: "a.b"',
            )
        if self._is_at("("):
            raise QueryError("FROM takes streams and relations by name, not functions", span=name.span)
        return name.text

    def _parse_source_alias(self) -> str | None:
        if self._current.text.upper() == "EMIT" and self._next.is_name:  # no name follows an alias
            return None
        alias = self._parse_alias()
        if alias is not None and self._is_at("("):
            raise QueryError(f"{alias} (…) is not supported in FROM", span=self._previous.span)
        return alias

    # --- constraints, conditions and EVERY

    def _parse_constraints(self) -> list[ParsedConstraint]:
        if not self._is_at("WINDOW", "DWINDOW"):
            return []
        constraints = [self._parse_constraint()]
        while self._accept("AND"):
            if not self._is_at("WINDOW", "DWINDOW"):
                raise self._unexpected_token_error(
                    "another WINDOW or DWINDOW constraint (conditions belong after WHERE)"
                )
            constraints.append(self._parse_constraint())
        return constraints

    def _parse_constraint(self) -> ParsedConstraint:
        start = self._advance()
        directed = start.is_symbol("DWINDOW")
        names = self._parse_pair() if directed or self._is_at("(") else None
        self._expect("=", '"=" and a length, as in WINDOW (a, b) = 10 SECONDS')
        length_start = self._current.start
        length_us = self.parse_length()
        with errors_at(self._span_from(length_start)):
            check_length(length_us)
        return ParsedConstraint(names, length_us, directed, self._span_from(start.start))

    def _parse_pair(self) -> tuple[str, str]:
        example = "two sources in parentheses, as in (a, b)"
        self._expect("(", example)
        first = self._use_source(self._expect_name(example))
        self._expect(",", example)
        second = self._use_source(self._expect_name(example))
        self._expect(")", 'the ")" after two sources')
        return first, second

    def _parse_condition_after(self, keyword: str) -> Expr | None:
        return self.parse_expression() if self._accept(keyword) else None

    def _parse_every(self) -> int | None:
        if not self._accept("EVERY"):
            return None
        start = self._current.start
        length_us = self.parse_length()
        with errors_at(self._span_from(start)):
            check_every(length_us)
        return length_us

    def _parse_emission(self) -> tuple[EmitMode, bool]:
        """Parse `EMIT CHANGES [WITH OPERATIONS]`, `EMIT SNAPSHOT` or `EMIT FINAL`; changes are the default."""
        if not self._accept_words("EMIT"):
            return EmitMode.CHANGES, False
        mode = next((mode for mode in EmitMode if self._accept_words(mode.upper())), None)
        if mode is None:
            raise self._unexpected_token_error("CHANGES, SNAPSHOT or FINAL after EMIT")
        start = self._previous.start
        operations = self._accept("WITH")
        if operations and not self._accept_words("OPERATIONS"):
            raise self._unexpected_token_error("OPERATIONS after WITH")
        if operations and mode is not EmitMode.CHANGES:
            raise QueryError(
                f"only changes have operations; {mode} emits whole results",
                span=self._span_from(start),
                hint="leave WITH OPERATIONS out",
            )
        return mode, operations

"""Grammar of windows in brackets. `WINDOW_RULES` has a row for each way to write a window."""

from __future__ import annotations

from collections.abc import Callable

from watersmeet.algebra.windows import LandmarkWindow, RangeWindow, RowsWindow, TumbleWindow, Window
from watersmeet.errors import QueryError
from watersmeet.sql.grammar import ExpressionParser
from watersmeet.sql.tokens import TokenKind


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

"""A reader of tokens from left to right, which reports what it expected where, and what it refuses.

SQL that other engines know and this one does not is refused with the reason, and with what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from watersmeet.algebra.schema import RESERVED
from watersmeet.errors import QueryError, Span
from watersmeet.sql.tokens import Token, TokenKind

_NO_ORDER = "results are a stream and have no order"
_ONE_SELECT = "a query is one SELECT"
_PARAMETER = ("parameters are not supported", "write the value itself")

#: Symbols that are refused wherever they are unexpected: the reason and a hint.
_REFUSED: dict[str, tuple[str, str | None]] = {
    "ALL": ("ALL is not supported", 'if it is a name, write it in quotes: "all"'),
    "CLUSTER BY": (f"CLUSTER BY is not supported: {_NO_ORDER}", None),
    "DISTINCT": ("DISTINCT is not supported", "group by the columns instead: SELECT a.x FROM … GROUP BY a.x"),
    "DISTRIBUTE BY": ("DISTRIBUTE BY is not supported", None),
    "EXCEPT": ("EXCEPT is not supported", None),
    "INTERSECT": (f"INTERSECT is not supported: {_ONE_SELECT}", None),
    "LATERAL": ("LATERAL is not supported: FROM takes streams and relations by name", None),
    "LIMIT": (
        "LIMIT is not supported: a continuous query has no last row",
        'if it is a name, write it in quotes: "limit"',
    ),
    "ORDER BY": (f"ORDER BY is not supported: {_NO_ORDER}", None),
    "QUALIFY": ("QUALIFY is not supported: there are no window functions", None),
    "SELECT": ("a query inside a query is not supported", "name the streams in FROM themselves"),
    "SORT BY": (f"SORT BY is not supported: {_NO_ORDER}", None),
    "TABLESAMPLE": ("TABLESAMPLE is not supported", "set a drop rate for the stream in the plan"),
    "UNION": (f"UNION is not supported: {_ONE_SELECT}", None),
    "USING": ("USING is not supported", "write the equality out: ON a.item = b.item"),
    "WITH": (f"WITH is not supported: {_ONE_SELECT} over streams and relations", None),
    "<<": ("<< is not supported", None),
    ">>": (">> is not supported", None),
    "::": (":: is not supported", "write CAST(x AS BIGINT)"),
    **dict.fromkeys(("?", "@", ":", "$"), _PARAMETER),
}

#: The same for a symbol directly after another one.
_REFUSED_AFTER: dict[tuple[str, str], tuple[str, str | None]] = {
    ("(", "DISTINCT"): ("DISTINCT inside an aggregate is not supported", None),
    ("*", "EXCEPT"): ("* EXCEPT is not supported", "name the columns"),
}

OUTER_JOINS = ("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "ASOF", "NATURAL")

#: Words after a call that belong to window functions and the like.
CALL_SUFFIXES: dict[str, str | None] = {
    "FILTER": "FILTER follows an aggregate",
    "OVER": "there are no window functions; windows follow the sources in FROM",
    "WITHIN": None,
}

_NO_PATTERNS = "regular expressions are not supported; LIKE, STARTS_WITH, ENDS_WITH and CONTAINS are"
_HINTS = {
    "ILIKE": "ILIKE is not supported; compare LOWER(x) LIKE 'a%'",
    "RLIKE": _NO_PATTERNS,
    "REGEXP": _NO_PATTERNS,
    "WINDOW": "WINDOW constraints belong between FROM and WHERE",
    "DWINDOW": "DWINDOW constraints belong between FROM and WHERE",
    "DIV": "write FLOOR(a / b)",
}
Item = TypeVar("Item")


def find_refusal(token: Token, previous: Token) -> QueryError | None:
    """Return the error for a token that begins unsupported SQL, None for every other one."""
    if token.kind is not TokenKind.SYMBOL:
        return None
    reason = _REFUSED_AFTER.get((previous.text, token.text)) or _REFUSED.get(token.text)
    return None if reason is None else QueryError(reason[0], span=token.span, hint=reason[1])


def find_hint(token: Token, previous: Token) -> str | None:
    """Return what to write instead of an unexpected token."""
    if token.is_symbol("=") and previous.is_symbol("="):
        return "equality is a single ="
    return _HINTS.get(token.text.upper()) if token.kind in (TokenKind.NAME, TokenKind.SYMBOL) else None


def outer_join_error(token: Token) -> QueryError:
    return QueryError(
        f"{token.text} joins are not supported",
        span=token.span,
        hint="supported: JOIN … ON, CROSS JOIN and commas; a row without a match gives no result",
    )


class TokenReader:
    """Base of the parsers: the token to read next, and the one read last."""

    def __init__(self, tokens: list[Token], text: str):
        self._tokens = tokens
        self._text = text
        self._index = 0

    @property
    def _current(self) -> Token:
        return self._tokens[self._index]

    @property
    def _previous(self) -> Token:
        return self._tokens[max(0, self._index - 1)]

    @property
    def _next(self) -> Token:
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    def _advance(self) -> Token:
        """Return the current token and go to the next one; END is never passed."""
        token = self._current
        self._index += token.kind is not TokenKind.END
        return token

    def _is_at(self, *symbols: str) -> bool:
        return self._current.is_symbol(*symbols)

    def _accept(self, *symbols: str) -> bool:
        """Skip the symbol if it comes next."""
        found = self._current.is_symbol(*symbols)
        if found:
            self._advance()
        return found

    def _accept_words(self, *words: str) -> bool:
        """Skip words that are keywords only in one place; elsewhere they are names."""
        following = self._tokens[self._index : self._index + len(words)]
        if tuple(token.text.upper() for token in following if token.kind in _WORDS) != words:
            return False
        self._index += len(words)
        return True

    def _expect(self, symbol: str, expected: str) -> Token:
        if not self._is_at(symbol):
            raise self._unexpected_token_error(expected)
        return self._advance()

    def _expect_kind(self, kind: TokenKind, expected: str) -> Token:
        if self._current.kind is not kind:
            raise self._unexpected_token_error(expected)
        return self._advance()

    def _expect_name(self, expected: str) -> Token:
        token = self._current
        if token.is_name:
            return self._advance()
        if not (token.kind is TokenKind.SYMBOL and token.text in RESERVED):
            raise self._unexpected_token_error(expected)
        # After AS only a name makes sense, so LIMIT there is no LIMIT clause.
        refusal = None if self._previous.is_symbol("AS") else find_refusal(token, self._previous)
        raise refusal or self._mismatch_error(expected, hint=self._quoting_hint(token))

    def _parse_list(self, parse: Callable[[], Item]) -> list[Item]:
        """Parse one or more items with commas between."""
        items = [parse()]
        while self._accept(","):
            items.append(parse())
        return items

    def _span_from(self, start: int) -> Span:
        """Return the span from `start` to the token read last."""
        return Span(start, self._previous.end)

    def _text_of(self, token: Token) -> str:
        return self._text[token.start : min(token.end, token.start + 40)]

    def _quoting_hint(self, token: Token) -> str:
        return f'quote a reserved word to use it as a name: "{self._text_of(token)}"'

    def _unexpected_token_error(self, expected: str | None = None) -> QueryError:
        """Build the error for a current token that the grammar does not allow here."""
        refusal = find_refusal(self._current, self._previous)
        return refusal or self._mismatch_error(expected, hint=find_hint(self._current, self._previous))

    def _mismatch_error(self, expected: str | None, hint: str | None) -> QueryError:
        token = self._current
        expectation = f"; expected {expected}" if expected else ""
        if token.kind is TokenKind.END or token.is_symbol(";"):
            return QueryError(f"the query ends too early{expectation}", span=token.span)
        return QueryError(f"did not expect {self._text_of(token)} here{expectation}", span=token.span, hint=hint)


_WORDS = (TokenKind.NAME, TokenKind.SYMBOL)

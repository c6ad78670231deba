"""A reader of tokens from left to right, which reports what it expected where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from watersmeet.algebra.names import RESERVED
from watersmeet.errors import QueryError, Span
from watersmeet.sql.tokens import Token, TokenKind
from watersmeet.sql.unsupported import find_hint, find_refusal

Item = TypeVar("Item")


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

"""Tokens: names, numbers, strings and symbols of a query's text, each with its position.

Only the words of `RESERVED` are keywords. Every other word is a name, so `rows`, `date` or `order` need no quotes, and
after a dot every word is a name: `a.limit`.

Query text is untrusted. The length of the text, the number of tokens and the length of a name or number are bounded
here. The parser bounds the depth of nesting, which it alone knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from watersmeet.algebra.schema import RESERVED
from watersmeet.errors import QueryError, Span

MAX_TEXT = 200_000
MAX_TOKENS = 20_000
MAX_NAME = 1_000
MAX_NUMBER = 100


class TokenKind(Enum):
    NAME = auto()
    QUOTED_NAME = auto()
    NUMBER = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: characters `start` (included) to `end` (excluded).

    `text` is the meaning: a name or string without its quotes, a keyword in capitals.
    """

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)

    @property
    def is_name(self) -> bool:
        return self.kind in _NAMES

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind is TokenKind.SYMBOL and self.text in symbols


_NAMES = (TokenKind.NAME, TokenKind.QUOTED_NAME)

# Quantifiers are possessive (`*+`), so that a string that is never closed cannot match as two shorter ones. A point
# starts a number only where it cannot separate a source from its column.
_TOKEN = re.compile(
    r"""
      (?P<blank>    (?: \s++ | --[^\r\n]*+ | /\*(?!\+).*?\*/ )++ )
    | (?P<hint>     /\*\+.*?\*/ )
    | (?P<prefixed> [benrux]'(?:[^']|'')*+' )
    | (?P<phrase>   (?<!\.)(?:GROUP|ORDER|SORT|CLUSTER|DISTRIBUTE)\s+BY\b )
    | (?P<word>     [^\W\d]\w*+ )
    | (?P<number>   (?:[0-9]++(?:\.[0-9]*+)? | (?<![\w."`])\.[0-9]++) (?:e[+-]?[0-9]*+)? )
    | (?P<string>   '(?:[^']|'')*+' | “[^”]*+” | ‘[^’]*+’ )
    | (?P<quoted>   "(?:[^"]|"")*+" | `(?:[^`]|``)*+` )
    | (?P<sign>     <= | >= | <> | != | \|\| | << | >> | :: | /(?!\*) | [-()\[\],.+*%=<>;!#$&:?@\\^{|}~] )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)

_UNCLOSED = {
    "'": ("this string is never closed", "a quote inside is written twice"),
    "“": ("this string is never closed", "end it with ”"),
    "‘": ("this string is never closed", "end it with ’"),
    '"': ("this quoted name is never closed", "a quote inside is written twice"),
    "`": ("this quoted name is never closed", "a quote inside is written twice"),
    "/": ("this comment is never closed", "end it with */"),
}


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text, the last of which is its END.

    >>> [token.text for token in tokenize("select a.limit >= 'it''s' -- comment")]
    ['SELECT', 'a', '.', 'limit', '>=', "it's", '']
    """
    check_text(text)
    tokens: list[Token] = []
    for token in _scan(text):
        if len(tokens) == MAX_TOKENS:
            raise QueryError(f"the query has more than {MAX_TOKENS} tokens", span=token.span)
        tokens.append(_read_as_name(token, text) if tokens and tokens[-1].is_symbol(".") else token)
        _check_token(tokens)
    end = tokens[-1].end if tokens else 0
    return [*tokens, Token(TokenKind.END, "", end, end)]


def check_text(text: object) -> None:
    """Refuse text that is empty, too long or not valid Unicode."""
    if not isinstance(text, str):
        raise QueryError(f"a query is text, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise QueryError(f"the query is {len(text)} characters long; the limit is {MAX_TEXT}")
    if not text.strip():
        raise QueryError("the query is empty", hint="begin with SELECT")
    if "\0" in text:
        at = text.index("\0")
        raise QueryError("the query contains a null character", span=Span(at, at + 1))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            "the query contains half a character (a lone surrogate)", span=Span(error.start, error.end)
        ) from None


def _scan(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unreadable_error(text, at)
        at = found.end()
        if found.lastgroup != "blank":
            yield _make_token(found)


def _make_token(found: re.Match[str]) -> Token:
    text, (start, end) = found[0], found.span()
    match found.lastgroup:
        case "word" if text.upper() not in RESERVED or not text.isascii():
            return Token(TokenKind.NAME, text, start, end)
        case "word" | "sign":
            return Token(TokenKind.SYMBOL, text.upper(), start, end)
        case "phrase":
            return Token(TokenKind.SYMBOL, " ".join(text.upper().split()), start, end)
        case "number":
            return Token(TokenKind.NUMBER, text, start, end)
        case "string":
            return Token(TokenKind.STRING, text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1], start, end)
        case "quoted":
            return Token(TokenKind.QUOTED_NAME, text[1:-1].replace(text[0] * 2, text[0]), start, end)
        case "hint":
            raise QueryError("hints are not supported", span=Span(start, end), hint="pin the plan with plan=… instead")
        case _:
            raise QueryError("strings take no letter before the quote", span=Span(start, end))


def _unreadable_error(text: str, at: int) -> QueryError:
    """Build the error for text at which no token begins."""
    sign = text[at]
    if sign in _UNCLOSED:
        problem, hint = _UNCLOSED[sign]
        return QueryError(problem, span=Span(at, len(text)), hint=hint)
    shown = sign if sign.isprintable() else f"U+{ord(sign):04X}"
    return QueryError(f"did not expect the character {shown} here", span=Span(at, at + 1))


def _read_as_name(token: Token, text: str) -> Token:
    """Return a token as a name if it is a keyword after a dot."""
    written = text[token.start : token.end]
    is_word = token.kind is TokenKind.SYMBOL and written.isidentifier()
    return Token(TokenKind.NAME, written, token.start, token.end) if is_word else token


def _check_token(tokens: list[Token]) -> None:
    """Check the last of the tokens."""
    token = tokens[-1]
    if token.kind is TokenKind.NUMBER and len(token.text) > MAX_NUMBER:
        raise QueryError(
            f"a number of {len(token.text)} characters is too long; at most {MAX_NUMBER} are read", span=token.span
        )
    if not token.is_name:
        return
    if len(token.text) > MAX_NAME:
        raise QueryError(
            f"a name of {len(token.text)} characters is too long; at most {MAX_NAME} are read", span=token.span
        )
    if not token.text:
        raise QueryError("a name cannot be empty", span=token.span)
    previous = tokens[-2] if len(tokens) > 1 else token
    if previous.kind is TokenKind.NUMBER and previous.end == token.start:
        raise QueryError(
            "a number and a name run into each other", span=previous.span.to(token.span), hint="put a space between"
        )

"""Tokens: sqlglot's tokenizer with our words and signs, and the checks that need no grammar.

The tokenizer knows no more words than the dialect needs. Every other word is a name, so `rows`, `date` or `order` need
no quotes.

Query text is untrusted. The checks before the parser bound its work: length of the text, number of tokens, length of a
name or number. The parser bounds the depth of nesting, which it alone knows.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from watersmeet.algebra.names import RESERVED
from watersmeet.errors import QueryError, Span
from watersmeet.sql.clauses import EVERY_TOKEN, QueryGrammar
from watersmeet.sql.functions import unknown_function_error
from watersmeet.sql.spans import token_span

#: Words and signs that begin unsupported constructs; `_REASONS` has the message of each.
REFUSED_TOKEN = TokenType.UNKNOWN

_WORDS: dict[str, TokenType] = {
    "AND": TokenType.AND,
    "AS": TokenType.ALIAS,
    "BETWEEN": TokenType.BETWEEN,
    "CASE": TokenType.CASE,
    "CROSS": TokenType.CROSS,
    "DWINDOW": TokenType.WINDOW,
    "ELSE": TokenType.ELSE,
    "END": TokenType.END,
    "EVERY": EVERY_TOKEN,
    "FALSE": TokenType.FALSE,
    "FROM": TokenType.FROM,
    "GROUP BY": TokenType.GROUP_BY,
    "HAVING": TokenType.HAVING,
    "IN": TokenType.IN,
    "INNER": TokenType.INNER,
    "INTERVAL": TokenType.INTERVAL,
    "IS": TokenType.IS,
    "JOIN": TokenType.JOIN,
    "LIKE": TokenType.LIKE,
    "NOT": TokenType.NOT,
    "NULL": TokenType.NULL,
    "ON": TokenType.ON,
    "OR": TokenType.OR,
    "SELECT": TokenType.SELECT,
    "THEN": TokenType.THEN,
    "TRUE": TokenType.TRUE,
    "WHEN": TokenType.WHEN,
    "WHERE": TokenType.WHERE,
    "WINDOW": TokenType.WINDOW,
}

_REFUSED_WORDS = RESERVED - _WORDS.keys()
_REFUSED_PHRASES = ("CLUSTER BY", "DISTRIBUTE BY", "ORDER BY", "SORT BY")

_SIGNS = {
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    "[": TokenType.L_BRACKET,
    "]": TokenType.R_BRACKET,
    ",": TokenType.COMMA,
    ".": TokenType.DOT,
    "-": TokenType.DASH,
    "+": TokenType.PLUS,
    "*": TokenType.STAR,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
    "=": TokenType.EQ,
    "<": TokenType.LT,
    ">": TokenType.GT,
    ";": TokenType.SEMICOLON,
}
_REFUSED_SIGNS = "!#$&:?@\\^{|}~'`\"“”‘’"


class WatersmeetTokenizer(Tokenizer):
    """Tokenizer: double quotes and backticks around names, single quotes around strings, comments as `--` and `/* */`.

    A quote inside quotes is doubled. Typographic quotes, as papers and mail programs print them, delimit strings too.
    """

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'", ("“", "”"), ("‘", "’")]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    NESTED_COMMENTS = False
    COMMANDS: ClassVar[set[TokenType]] = set()
    SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {**_SIGNS, **dict.fromkeys(_REFUSED_SIGNS, REFUSED_TOKEN)}
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **_WORDS,
        **dict.fromkeys((*_REFUSED_WORDS, *_REFUSED_PHRASES), REFUSED_TOKEN),
        Tokenizer.HINT_START: TokenType.HINT,
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "<>": TokenType.NEQ,
        "!=": TokenType.NEQ,
        "||": TokenType.DPIPE,
    }


# sqlglot treats `{# … #}` as a comment in every dialect; here text between braces must not vanish.
WatersmeetTokenizer._COMMENTS.pop("{#", None)


class WatersmeetDialect(Dialect):
    Tokenizer = WatersmeetTokenizer
    Parser = QueryGrammar


MAX_TEXT = 200_000
MAX_TOKENS = 20_000
MAX_NAME = 1_000
MAX_NUMBER = 100

_NAME = re.compile(r"[^\W\d]\w*")
_COMMENT = re.compile(r"--[^\r\n]*|/\*.*?\*/", re.DOTALL)

_REASONS = {
    "ALL": "ALL is not supported",
    "CLUSTER BY": "CLUSTER BY is not supported: results are a stream and have no order",
    "DISTINCT": "DISTINCT is not supported",
    "DISTRIBUTE BY": "DISTRIBUTE BY is not supported",
    "EXCEPT": "EXCEPT is not supported",
    "INTERSECT": "INTERSECT is not supported: a query is one SELECT",
    "LATERAL": "LATERAL is not supported: FROM takes streams and relations by name",
    "LIMIT": "LIMIT is not supported: a continuous query has no last row",
    "ORDER BY": "ORDER BY is not supported: results are a stream and have no order",
    "QUALIFY": "QUALIFY is not supported: there are no window functions",
    "SORT BY": "SORT BY is not supported: results are a stream and have no order",
    "TABLESAMPLE": "TABLESAMPLE is not supported",
    "UNION": "UNION is not supported: a query is one SELECT",
    "USING": "USING is not supported",
    "WITH": "WITH is not supported: a query is one SELECT over streams and relations",
}
_HINTS = {
    "ALL": 'if it is a name, write it in quotes: "all"',
    "DISTINCT": "group by the columns instead: SELECT a.x FROM … GROUP BY a.x",
    "LIMIT": 'if it is a name, write it in quotes: "limit"',
    "TABLESAMPLE": "set a drop rate for the stream in the plan",
    "USING": "write the equality out: ON a.item = b.item",
}
_OUTER_JOINS = {"LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "ASOF", "NATURAL"}
_PARAMETERS = {"?", "@", ":", "$"}


def tokenize(text: str) -> list[Token]:
    """Return the tokens of one SELECT, without the semicolon that may end it."""
    check_text(text)
    tokens = _drop_final_semicolons(_scan(text))
    _check_comment_ends(text, tokens)
    _check_statement(tokens, text)
    _check_tokens(tokens, text)
    return tokens


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


def _scan(text: str) -> list[Token]:
    try:
        tokens = WatersmeetDialect().tokenize(text)
    except TokenError:
        raise _unclosed_error(text) from None
    if len(tokens) > MAX_TOKENS:
        raise QueryError(
            f"the query has {len(tokens)} tokens; the limit is {MAX_TOKENS}",
            span=token_span(tokens[MAX_TOKENS]),
        )
    return tokens


# Possessive, so that a string that is never closed cannot match as two shorter ones.
_CLOSED = re.compile(
    r"""[^'"`/-]++|--[^\r\n]*+|/\*.*?\*/|'(?:[^']|'')*+'|"(?:[^"]|"")*+"|`(?:[^`]|``)*+`|/(?!\*)|-""", re.DOTALL
)


def _unclosed_error(text: str) -> QueryError:
    """Build the error for a quote or comment without its end, the only error of the tokenizer.

    It is the first one that begins where no closed one matches.
    """
    at = 0
    while match := _CLOSED.match(text, at):
        at = match.end()
    what, end = _OPENED.get(text[at : at + 1], ("this string is never closed", "a quote inside is written twice"))
    return QueryError(what, span=Span(min(at, len(text)), len(text)), hint=end)


_OPENED = {
    "/": ("this comment is never closed", "end it with */"),
    '"': ("this quoted name is never closed", "a quote inside is written twice"),
    "`": ("this quoted name is never closed", "a quote inside is written twice"),
}


def _check_comment_ends(text: str, tokens: list[Token]) -> None:
    """Refuse a comment that is never closed.

    sqlglot ends such a comment at the end of the text. Only the last comment can be one, so only the tail is checked.
    """
    at = tokens[-1].end + 1 if tokens else 0
    while (opening := text.find("/*", at)) >= 0:
        comment = _COMMENT.search(text, at)
        if comment is None or comment.start() > opening:
            raise QueryError("this comment is never closed", span=Span(opening, len(text)), hint="end it with */")
        at = comment.end()


def _drop_final_semicolons(tokens: list[Token]) -> list[Token]:
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    return tokens


def _check_statement(tokens: list[Token], text: str) -> None:
    if not tokens:
        raise QueryError("the query is empty", hint="begin with SELECT")
    first = tokens[0]
    if first.token_type != TokenType.SELECT:
        word = _token_text(first, text)
        if word.upper() in _REASONS:
            raise _refusal_error(tokens, 0, text)
        hint = "only SELECT statements are supported" if first.token_type == TokenType.VAR else None
        raise QueryError(f"a query begins with SELECT, not with {word}", span=token_span(first), hint=hint)
    for i, token in enumerate(tokens):
        if token.token_type == TokenType.SEMICOLON:
            raise QueryError(
                "one query at a time",
                span=token_span(tokens[i + 1]),
                hint="the text after the semicolon is a second statement",
            )


def _check_tokens(tokens: list[Token], text: str) -> None:
    previous = None
    for i, token in enumerate(tokens):
        kind = token.token_type
        if (
            previous is not None
            and previous.token_type == TokenType.DOT
            and kind not in _NEVER_NAMES
            and _NAME.fullmatch(token.text)
        ):
            token.token_type = kind = TokenType.VAR  # after a dot every word is a name: a.limit, a.window
        if kind == REFUSED_TOKEN:
            raise _refusal_error(tokens, i, text)
        if kind == TokenType.SELECT and i:
            raise QueryError(
                "a query inside a query is not supported",
                span=token_span(token),
                hint="name the streams in FROM themselves",
            )
        if kind == TokenType.HINT:
            raise QueryError("hints are not supported", span=token_span(token), hint="pin the plan with plan=… instead")
        if kind in _WORDLIKE:
            _check_word(token, previous)
        previous = token


_NEVER_NAMES = {TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER}
_WORDLIKE = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.NATIONAL_STRING}


def _check_word(token: Token, previous: Token | None) -> None:
    kind, text = token.token_type, token.text
    if kind == TokenType.NATIONAL_STRING:
        raise QueryError("strings take no letter before the quote", span=token_span(token))
    if kind == TokenType.NUMBER:
        if len(text) > MAX_NUMBER:
            raise QueryError(
                f"a number of {len(text)} characters is too long; at most {MAX_NUMBER} are read", span=token_span(token)
            )
        return
    if len(text) > MAX_NAME:
        raise QueryError(
            f"a name of {len(text)} characters is too long; at most {MAX_NAME} are read", span=token_span(token)
        )
    if not text:
        raise QueryError("a name cannot be empty", span=token_span(token))
    if kind == TokenType.VAR:
        if not _NAME.fullmatch(text):
            at = token.start + next(i for i in range(len(text)) if not _NAME.fullmatch(text[: i + 1]))
            raise QueryError(
                f"did not expect the character {_printable(text[at - token.start])} here", span=Span(at, at + 1)
            )
        if previous is not None and previous.token_type == TokenType.NUMBER and previous.end + 1 == token.start:
            raise QueryError(
                "a number and a name run into each other",
                span=token_span(previous).to(token_span(token)),
                hint="put a space between",
            )


def _refusal_error(tokens: list[Token], i: int, text: str) -> QueryError:
    """Build the error for the refused token at i; the same word can begin different constructs."""
    token, word, span = tokens[i], tokens[i].text.upper(), token_span(tokens[i])
    before = tokens[i - 1].token_type if i else None
    if word in {"LEFT", "RIGHT"} and i + 1 < len(tokens) and tokens[i + 1].token_type == TokenType.L_PAREN:
        return unknown_function_error(token.text, span)
    problem, hint = _REASONS.get(word), _HINTS.get(word)
    if word == "DISTINCT" and before == TokenType.L_PAREN:
        problem, hint = "DISTINCT inside an aggregate is not supported", None
    elif word == "EXCEPT" and before == TokenType.STAR:
        problem, hint = "* EXCEPT is not supported", "name the columns"
    elif word in _OUTER_JOINS:
        problem, hint = (
            f"{word} joins are not supported",
            "JOIN … ON, CROSS JOIN and commas are; a row without a partner gives no result",
        )
    elif text[token.start : token.start + 2] == "::":
        problem, hint = ":: is not supported", "write CAST(x AS BIGINT)"
    elif word in _PARAMETERS:
        problem, hint = "parameters are not supported", "write the value itself"
    elif problem is None:
        problem, hint = f"did not expect {_printable(_token_text(token, text))} here", None
    return QueryError(problem, span=span, hint=hint)


def _token_text(token: Token, text: str) -> str:
    word = text[token.start : token.end + 1]
    return word if len(word) <= 40 else word[:37] + "..."


def _printable(sign: str) -> str:
    return sign if sign.isprintable() else f"U+{ord(sign[0]):04X}"

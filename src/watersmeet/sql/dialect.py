"""The query language as a dialect of sqlglot's: its words and signs, and the parser they are read with.

The tokenizer knows no more words than the language needs. What it does not know is a name, so `rows`, `date` or `order`
need no quotes.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer

from watersmeet.algebra.names import RESERVED
from watersmeet.sql.clauses import EVERY_TOKEN, QueryGrammar

#: Words and signs that only begin what the language refuses: `lang.tokens` says why, with the place.
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
    """Double quotes and backticks around names, single quotes around strings, each doubled inside; comments as `--` and
    `/* */`.

    Typographic quotes, as papers and mail programs print them, stand around strings too.
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


# sqlglot takes `{# … #}` for a comment in every dialect; here text between braces must not vanish.
WatersmeetTokenizer._COMMENTS.pop("{#", None)


class WatersmeetDialect(Dialect):
    Tokenizer = WatersmeetTokenizer
    Parser = QueryGrammar

"""Words, numbers, strings and signs of a query's text, and where they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.sql.tokens import MAX_TOKENS, TokenKind, tokenize

NAME, QUOTED, NUMBER, STRING, SYMBOL = (
    TokenKind.NAME,
    TokenKind.QUOTED_NAME,
    TokenKind.NUMBER,
    TokenKind.STRING,
    TokenKind.SYMBOL,
)


def pieces(text: str) -> list[tuple[TokenKind, str]]:
    *tokens, end = tokenize(text)
    assert end.kind is TokenKind.END
    return [(token.kind, token.text) for token in tokens]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select Price", [(SYMBOL, "SELECT"), (NAME, "Price")]),
        ("a.limit", [(NAME, "a"), (SYMBOL, "."), (NAME, "limit")]),
        ("a . Limit", [(NAME, "a"), (SYMBOL, "."), (NAME, "Limit")]),
        ("group  by group", [(SYMBOL, "GROUP BY"), (NAME, "group")]),
        ("a.group by", [(NAME, "a"), (SYMBOL, "."), (NAME, "group"), (NAME, "by")]),
        ("group bye", [(NAME, "group"), (NAME, "bye")]),
        ("größe ın", [(NAME, "größe"), (NAME, "ın")]),
        ("'it''s' ''", [(STRING, "it's"), (STRING, "")]),
        ("“it''s” ‘a”b’", [(STRING, "it''s"), (STRING, "a”b")]),
        ('\'a\nb\' "x""y" `x``y`', [(STRING, "a\nb"), (QUOTED, 'x"y'), (QUOTED, "x`y")]),
        ("1 1.5 5. .5 1e3 1E-3 1.e+2", [(NUMBER, each) for each in ["1", "1.5", "5.", ".5", "1e3", "1E-3", "1.e+2"]]),
        ("a.5", [(NAME, "a"), (SYMBOL, "."), (NUMBER, "5")]),
        ("<=b<>!=||<=>", [(SYMBOL, "<="), (NAME, "b"), *((SYMBOL, each) for each in ("<>", "!=", "||", "<=", ">"))]),
        ("1-1--1\n-1", [(NUMBER, "1"), (SYMBOL, "-"), (NUMBER, "1"), (SYMBOL, "-"), (NUMBER, "1")]),
        ("a/*/ b */c/d", [(NAME, "a"), (NAME, "c"), (SYMBOL, "/"), (NAME, "d")]),
        ("a\u00a0b\u2003c", [(NAME, "a"), (NAME, "b"), (NAME, "c")]),
    ],
)
def test_text_is_split_into_tokens(text: str, expected: list[tuple[TokenKind, str]]) -> None:
    assert pieces(text) == expected


@given(st.text(st.sampled_from("aE_é1.5e+-'\"`“”/*\n (),<>=|;:GROUP BY"), max_size=40))
def test_tokens_and_blanks_are_the_whole_text(text: str) -> None:
    try:
        tokens = tokenize(text)
    except QueryError:
        return
    at = 0
    for token in tokens:
        between = text[at : token.start]
        assert not between.strip() or between.lstrip().startswith(("--", "/*"))
        assert token.start <= token.end
        at = token.end


def test_the_number_of_tokens_is_limited() -> None:
    tokenize("a " * MAX_TOKENS)
    with pytest.raises(QueryError, match=f"more than {MAX_TOKENS} tokens"):
        tokenize("a " * (MAX_TOKENS + 1))

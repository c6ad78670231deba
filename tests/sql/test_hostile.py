"""Untrusted text is a query or a `QueryError`, whatever it is; a hang shows up as a dump of stacks."""

from __future__ import annotations

import logging
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sql.schemas import SCHEMAS
from watersmeet.algebra.expressions import And, In
from watersmeet.algebra.query import Query
from watersmeet.errors import QueryError
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse
from watersmeet.sql.tokens import TokenKind, tokenize

WHERE = "SELECT a.x FROM s [ROWS 5] AS a WHERE "

HOSTILE = {
    "parentheses": WHERE + "(" * 100_000 + "a.x" + ")" * 100_000,
    "fewer parentheses": WHERE + "(" * 9_000 + "a.x" + ")" * 9_000,
    "open parentheses": WHERE + "(" * 9_000,
    "negations": WHERE + "NOT " * 10_000 + "a.x",
    "negations between equalities": WHERE + " = ".join(["NOT a.x"] * 3_000),
    "negations between bounds": WHERE + "a.x" + " BETWEEN 1 AND NOT a.x" * 1_500,
    "minus signs": WHERE + "- " * 10_000 + "a.x",
    "conjunctions": WHERE + " AND ".join(["a.x"] * 10_000),
    "sums": WHERE + " + ".join(["1"] * 9_000),
    "quotients": WHERE + " / ".join(["1"] * 9_000),
    "equalities": WHERE + " = ".join(["1"] * 9_000),
    "null tests": WHERE + "a.x" + " IS NULL" * 5_000,
    "not null tests": WHERE + "a.x" + " NOT NULL" * 5_000,
    "patterns": WHERE + "a.x" + " LIKE 'a'" * 5_000,
    "lists in lists": WHERE + "a.x IN (" * 3_000,
    "cases in cases": WHERE + "CASE WHEN " * 3_000,
    "values of cases": WHERE + "CASE " * 30 + "a.x" + " WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 3 THEN 3 END" * 30,
    "casts in casts": WHERE + "CAST(" * 3_000,
    "calls in calls": WHERE + "ABS(" * 3_000,
    "intervals": WHERE + "INTERVAL " * 3_000,
    "time zones": WHERE + "a.x" + " AT TIME ZONE 'x'" * 3_000,
    "brackets": "SELECT a FROM s " + "[" * 10_000,
    "joins": "SELECT * FROM s" + "".join(f" JOIN s{i} ON TRUE" for i in range(3_000)),
    "joins without conditions": "SELECT * FROM s" + "".join(f" JOIN s{i}" for i in range(3_000)),
    "sources": "SELECT * FROM s" + "".join(f", s{i}" for i in range(33)),
    "semicolons": "SELECT * FROM s" + ";" * 100_000 + "x",
    "commas": "SELECT " + "," * 150_000,
    "dots": "SELECT a" + ".a" * 75_000,
    "quotes": "SELECT " + '"' * 150_001,
    "apostrophes": "SELECT " + "'" * 150_001,
    "opened comments": "SELECT a FROM s " + "/*" * 70_000,
    "hints": "SELECT " + "/*+ x */" * 10_000,
    "a megabyte of name": "SELECT " + "x" * 1_000_000 + " FROM s",
    "a long name": "SELECT " + "x" * 150_000 + " FROM s",
    "a long quoted name": 'SELECT "' + "x" * 150_000 + '" FROM s',
    "a long number": "SELECT " + "9" * 150_000 + " FROM s",
    "a huge exponent": "SELECT 1e999999999 FROM s",
    "a huge length": "SELECT * FROM s [RANGE 1e999999999 WEEKS]",
    "a long source": WHERE + '"' + "b" * 900 + '".x = 1',
    "a null character": "SELECT \0 FROM s",
    "a null character in a string": "SELECT '\0' FROM s",
    "half a character": "SELECT '\ud800' FROM s",
    "a character of no width": "SELECT a\u200b FROM s",
    "a template": "SELECT {{ x }} {% if y %} FROM s",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_and_nothing_is_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(QueryError) as failure:
        parse(HOSTILE[name])
    # Spark's gateway may log its own clean-up at any time.
    ours = [record for record in caplog.records if not record.name.startswith("py4j")]
    assert not ours
    assert len(str(failure.value)) < 3_000


@pytest.mark.parametrize("value", [None, 5, b"SELECT * FROM s", ["SELECT"], object()])
def test_a_query_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(QueryError, match="a query is text, not"):
        parse(value)  # type: ignore[arg-type]


def test_a_flat_condition_may_be_long() -> None:
    where = parse(WHERE + " AND ".join(f"a.x <> {i}" for i in range(500))).where
    assert isinstance(where, And)
    assert len(where.args) == 500


def test_a_list_may_be_long() -> None:
    where = parse(WHERE + f"a.x IN ({', '.join(str(i) for i in range(5_000))})").where
    assert isinstance(where, In)
    assert len(where.options) == 5_000


def test_thirty_levels_and_ninety_operands_are_fine() -> None:
    parse(WHERE + "(" * 30 + "a.x" + ")" * 30)
    parse(WHERE + "a.x = " + " + ".join(["a.x"] * 90))


def test_a_caller_deep_in_its_own_stack_gets_an_error_not_a_crash() -> None:
    def at_depth(depth: int) -> None:
        if depth:
            at_depth(depth - 1)
        else:
            parse(WHERE + "(" * 30 + "a.x" + ")" * 30)

    with pytest.raises(QueryError, match="nested too deeply"):
        at_depth(sys.getrecursionlimit() - len(_stack()) - 100)


def _stack() -> list[object]:
    frames: list[object] = []
    frame = sys._getframe()
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return frames


# --- fuzzing

WORDS_TEXT = """
    SELECT FROM WHERE GROUP BY HAVING EVERY WINDOW DWINDOW AS AND OR NOT IN BETWEEN LIKE IS NULL TRUE CASE WHEN THEN
    ELSE END JOIN INNER CROSS ON LEFT USING UNION ORDER DISTINCT LIMIT WITH OVER INTERVAL DATE TIMESTAMP CAST COUNT SUM
    ABS EXTRACT RANGE ROWS PARTITION TUMBLE LANDMARK UNTIL NOW SECONDS INT a b s t x y 1 0 2.5 1e3 1e .5 'text'
    '2024-01-01' "quoted" `tick` ( ) [ ] , . * = <> < + - / % || ; : ? @ { } -- /* */ ' " ` é \u200b
"""
WORDS = WORDS_TEXT.split()

QUERIES = (
    "SELECT a.x , COUNT(*) AS n FROM s [ RANGE 5 SECONDS ] AS a , t [ ROWS 5 ] AS b WINDOW ( a , b ) = 5 SECONDS "
    "WHERE a.x = b.x AND a.y > 1 GROUP BY a.x HAVING COUNT(*) > 1 EVERY 5 SECONDS",
    "SELECT * FROM s AS a [ PARTITION BY x , y ROWS 5 ] JOIN t AS b ON a.x = b.x "
    "WHERE CASE WHEN a.x IS NULL THEN 1 ELSE 2 END IN ( 1 , 2 )",
    "SELECT CAST( a.x AS INT ) , - a.y * 2 || 'text' FROM s a "
    "WHERE a.t BETWEEN DATE '2024-01-01' AND '2024-01-01' AND NOT a.s LIKE 'x%'",
)

#: Words that the canonical text replaces by others.
RESTATED = {"2.5", ".5", "TIMESTAMP", "RANGE", "UNTIL", "LANDMARK", "INTERVAL", "COUNT"}


@st.composite
def mangled_queries(draw: st.DrawFn) -> str:
    """Draw a valid query with a few words lost, doubled, swapped or added."""
    words = draw(st.sampled_from(QUERIES)).split()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["lose", "double", "swap", "throw in"])):
            case "lose":
                words[at : at + 1] = []
            case "double":
                words.insert(at, words[at])
            case "swap":
                other = draw(st.integers(0, len(words) - 1))
                words[at], words[other] = words[other], words[at]
            case _:
                words.insert(at, draw(st.sampled_from([word for word in WORDS if word not in RESTATED])))
        if not words:
            return ""
    return " ".join(words)


@settings(max_examples=500)
@given(mangled_queries())
def test_a_mangled_query_is_an_error_or_loses_nothing(text: str) -> None:
    query = _parse_or_none(text)
    if query is None:
        return
    assert parse(str(query)) == query
    written, printed = _values(text), _values(str(query))
    assert not printed - written
    assert (
        not written - printed - Counter(source.alias.upper() for source in query.sources if source.alias == source.name)
    )


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=60))
def test_random_words_are_an_error_or_a_query(text: str) -> None:
    for soup in (text, f"SELECT {text}", f"SELECT * FROM s {text}", f"SELECT * FROM s WHERE {text}"):
        _parse_or_none(soup)


def test_errors_about_hostile_names_are_short_and_printable() -> None:
    for name in ("\x1b[2J", "a" * 999, "'; DROP TABLE s; --", "<script>", "日本", "\n"):
        quoted = '"' + name.replace('"', '""') + '"'
        with pytest.raises(QueryError) as failure:
            bind(parse(f"SELECT {quoted} FROM bids [ROWS 5]"), SCHEMAS)
        assert "\x1b" not in str(failure.value)
        assert len(str(failure.value)) < 3_000


def _parse_or_none(text: str) -> Query | None:
    """Return the query, or None if it is refused with an error that prints."""
    try:
        return parse(text)
    except QueryError as error:
        if not str(error):
            raise AssertionError("an error without a text") from error
        return None


def _values(text: str) -> Counter[str]:
    """Return the names, numbers and strings of a text, which parsing and printing must keep."""
    tokens = tokenize(text)
    numbers = [str(float(token.text)) for token in tokens if token.kind is TokenKind.NUMBER]
    kept = {TokenKind.NAME, TokenKind.QUOTED_NAME, TokenKind.STRING}
    words = [token.text.upper().removesuffix("S") for token in tokens if token.kind in kept]
    return Counter(value for value in numbers + words if value not in {"COUNT", "CONCAT", "RANGE"})

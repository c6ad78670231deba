"""Unsupported constructs are refused by name and place; nothing is skipped."""

from __future__ import annotations

import pytest

from tests.sql.schemas import parse_error, underlined_text

WHERE = "SELECT * FROM s AS a WHERE "


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("DROP TABLE s", "a query begins with SELECT, not with DROP", "DROP"),
        ("INSERT INTO s VALUES (1)", "a query begins with SELECT, not with INSERT", "INSERT"),
        ("EXPLAIN SELECT * FROM s", "a query begins with SELECT, not with EXPLAIN", "EXPLAIN"),
        ("(SELECT * FROM s)", "a query begins with SELECT, not with (", "("),
        ("FROM s SELECT *", "a query begins with SELECT, not with FROM", "FROM"),
        (
            "WITH t AS (SELECT 1) SELECT * FROM t",
            "WITH is not supported: a query is one SELECT over streams and relations",
            "WITH",
        ),
        ("SELECT * FROM s; DROP TABLE s", "one query at a time", "DROP"),
        ("SELECT * FROM s UNION ALL SELECT * FROM t", "UNION is not supported: a query is one SELECT", "UNION"),
        ("SELECT * FROM s INTERSECT SELECT * FROM t", "INTERSECT is not supported: a query is one SELECT", "INTERSECT"),
        ("SELECT * FROM (SELECT * FROM s)", "a query inside a query is not supported", "SELECT"),
        (WHERE + "a.x IN (SELECT 1)", "a query inside a query is not supported", "SELECT"),
        (WHERE + "EXISTS (SELECT 1)", "a query inside a query is not supported", "SELECT"),
        ("SELECT DISTINCT a FROM s", "DISTINCT is not supported", "DISTINCT"),
        ("SELECT COUNT(DISTINCT a) FROM s", "DISTINCT inside an aggregate is not supported", "DISTINCT"),
        ("SELECT ALL a FROM s", "ALL is not supported", "ALL"),
        ("SELECT * EXCEPT (a) FROM s", "* EXCEPT is not supported", "EXCEPT"),
        (
            "SELECT * FROM s ORDER  BY a",
            "ORDER BY is not supported: results are a stream and have no order",
            "ORDER  BY",
        ),
        ("SELECT * FROM s LIMIT 5", "LIMIT is not supported: a continuous query has no last row", "LIMIT"),
        ("SELECT * FROM s QUALIFY a > 1", "QUALIFY is not supported: there are no window functions", "QUALIFY"),
        ("SELECT SUM(a) OVER (PARTITION BY b) FROM s", "SUM(…) OVER is not supported", "OVER"),
        ("SELECT LOWER(a) FILTER (WHERE a) FROM s", "LOWER(…) FILTER is not supported", "FILTER"),
        (
            "SELECT * FROM s, LATERAL (s)",
            "LATERAL is not supported: FROM takes streams and relations by name",
            "LATERAL",
        ),
        ("SELECT * FROM s TABLESAMPLE (5)", "TABLESAMPLE is not supported", "TABLESAMPLE"),
        ("SELECT * FROM s PIVOT (a)", "PIVOT (…) is not supported in FROM", "PIVOT"),
        ("SELECT * FROM unnest(a)", "FROM takes streams and relations by name, not functions", "unnest"),
        ("SELECT * FROM (s)", "FROM takes streams and relations by name, not in parentheses", "("),
        ("SELECT * FROM db.s", "a source's name has one part", "."),
        ("SELECT * FROM s LEFT JOIN t ON s.x = t.x", "LEFT joins are not supported", "LEFT"),
        ("SELECT * FROM s AS a RIGHT OUTER JOIN t ON TRUE", "RIGHT joins are not supported", "RIGHT"),
        ("SELECT * FROM s FULL JOIN t ON TRUE", "FULL joins are not supported", "FULL"),
        ("SELECT * FROM s SEMI JOIN t ON TRUE", "SEMI joins are not supported", "SEMI"),
        ("SELECT * FROM s ANTI JOIN t ON TRUE", "ANTI joins are not supported", "ANTI"),
        ("SELECT * FROM s NATURAL JOIN t", "NATURAL joins are not supported", "NATURAL"),
        ("SELECT * FROM s JOIN t USING (x)", "USING is not supported", "USING"),
        ("SELECT * FROM s CROSS JOIN t ON TRUE", "CROSS JOIN has no ON", "ON"),
        ("SELECT /*+ BROADCAST(s) */ * FROM s", "hints are not supported", "/*+ BROADCAST(s) */"),
        (WHERE + "a.x = ?", "parameters are not supported", "?"),
        (WHERE + "a.x = :name", "parameters are not supported", ":"),
        (WHERE + "a.x = @name", "parameters are not supported", "@"),
        (WHERE + "a.x = $1", "parameters are not supported", "$"),
        ("SELECT a::INT FROM s", ":: is not supported", "::"),
        ("SELECT a.b.c FROM s AS a", "a column's name has at most two parts, source and column", "a.b"),
        (WHERE + "a.x LIKE 'b' ESCAPE '!'", "LIKE … ESCAPE is not supported", "ESCAPE"),
        (WHERE + "a.x << 2", "<< is not supported", "<<"),
        (WHERE + "a.x AT TIME ZONE 'UTC' = a.y", "AT TIME ZONE is not supported", "AT"),
        (WHERE + "(a.x, a.y) = (1, 2)", "several values in parentheses are allowed only after IN", ","),
        (WHERE + "a.* = 1", "a star is allowed only in SELECT and in COUNT(*)", "a.*"),
        (WHERE + "n'text' = a.x", "strings take no letter before the quote", "n'text'"),
        (WHERE + "X'1F' = a.x", "strings take no letter before the quote", "X'1F'"),
        (WHERE + "a.x LIKE 'b\\'", "the pattern ends in a backslash that escapes nothing", "'b\\'"),
    ],
)
def test_a_construct_is_refused_by_name(text: str, message: str, place: str) -> None:
    error = parse_error(text)
    assert error.message == message
    assert underlined_text(error) == place


@pytest.mark.parametrize(
    "call",
    [
        "reflect('java.lang.System', 'exit', 0)",
        "java_method('a', 'b')",
        "f(x -> x + 1)",
        '"abs"(x)',
        "LEFT(x, 2)",
        "TRY_CAST(x AS INT)",
        "ARRAY(1)",
    ],
)
def test_an_unknown_function_is_refused_and_the_known_ones_are_listed(call: str) -> None:
    error = parse_error(f"SELECT {call} FROM s")
    name = call.split("(", maxsplit=1)[0]
    assert error.message == f'there is no function "{name.strip(chr(34))}"'
    assert underlined_text(error) == name
    assert error.hint is not None
    assert error.hint.startswith("existing functions: ABS, AVG, CAST, ")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT a, FROM s", "FROM"),
        ("SELECT a,, b FROM s", ","),
        ("SELECT a b c FROM s", "c"),
        ("SELECT a 'b' FROM s", "'b'"),
        ("SELECT a AS 'b' FROM s", "'b'"),
        ("SELECT AS a FROM s", "AS"),
        ("SELECT a[1] FROM s", "["),
        ("SELECT [1, 2] FROM s", "["),
        ("SELECT {'a': 1} FROM s", "{"),
        ("SELECT {# comment #} a FROM s", "{"),
        ("SELECT TOP 5 a FROM s", "5"),
        ("SELECT a FROM s *", "*"),
        ("SELECT a FROM s FOR UPDATE", "UPDATE"),
        ("SELECT a FROM s WHERE", ""),
        ("SELECT a FROM s WHERE ;", ";"),
        (WHERE + "a.x BETWEEN 1 5", "5"),
        (WHERE + "a.x IN 5", "5"),
        (WHERE + "a.x IN ()", ")"),
        (WHERE + "a.x IS TRUE", "TRUE"),
        (WHERE + "a.x LIKE a.y", "a"),
        (WHERE + "a.x == 1", "="),
        (WHERE + "a.x <=> 1", ">"),
        (WHERE + "a.x ILIKE 'a'", "ILIKE"),
        (WHERE + "+1 = 1", "+"),
        (WHERE + "!a.x", "!"),
        (WHERE + "ABS(1,) = 1", ")"),
        (WHERE + "ABS(1)(2) = 1", "("),
        (WHERE + "ABS(1).x = 1", "."),
        (WHERE + "(a.x).y = 1", "."),
        (WHERE + ".x = 1", "x"),
        (WHERE + ". 5 = 1", "5"),
        (WHERE + "'a' 'b' = a.x", "'b'"),
        (WHERE + "a.'x' = 1", "'x'"),
        (WHERE + "a.x = 1)", ")"),
        (WHERE + "(a.x = 1", ""),
        (WHERE + "CASE WHEN a.x 1 END", "1"),
        (WHERE + "CASE a.x ELSE 1 END", "ELSE"),
        (WHERE + "CAST(a.x, INT) = 1", ","),
        (WHERE + "CAST(a.x AS 5) = 1", "5"),
        (WHERE + "SUBSTRING(a.x FROM 1) = 'a'", "FROM"),
        (WHERE + "a.x AND WINDOW = 5 SECONDS", "WINDOW"),
        (WHERE + "INTERVAL SECONDS = a.x", "SECONDS"),
        (WHERE + "a.x LIKE 'a' || 'b'", "||"),
        (WHERE + "a.x IS NULL + 1", "+"),
        ("SELECT left FROM s", "left"),
        ("SELECT a AS limit FROM s", "limit"),
        ("SELECT a AS using FROM s", "using"),
        ("SELECT a.* + 1 FROM s AS a", "+"),
        ("SELECT a FROM s WHERE a = 1 ORDER", "ORDER"),
    ],
)
def test_the_error_points_at_an_unexpected_token(text: str, place: str) -> None:
    error = parse_error(text)
    assert error.message.startswith(("did not expect", "the query ends too early"))
    assert underlined_text(error) == place


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (WHERE + "ABS() = 1", "ABS takes one argument, not 0", "ABS()"),
        (WHERE + "NULLIF(a.x) = 1", "NULLIF takes 2 arguments, not 1", "NULLIF(a.x)"),
        (WHERE + "SUBSTRING(a.x) = 'a'", "SUBSTRING takes 2 to 3 arguments, not 1", "SUBSTRING(a.x)"),
        (WHERE + "CONCAT(a.x) = 'a'", "CONCAT takes 2 or more arguments, not 1", "CONCAT(a.x)"),
        (WHERE + "IF(a.x, 1) = 1", "IF takes 3 arguments, not 2", "IF(a.x, 1)"),
        (WHERE + "MOD(a.x) = 1", "MOD takes 2 arguments, not 1", "MOD(a.x)"),
        (WHERE + "SUM(a.x, a.y) = 1", "SUM takes one argument, not 2", "SUM(a.x, a.y)"),
        (WHERE + "SUM(*) = 1", "SUM takes a value, not a star", "*"),
        (WHERE + "ABS(*) = 1", "ABS takes a value, not a star", "*"),
        (WHERE + "EXTRACT(EPOCH FROM a.x) = 1", '"EPOCH" cannot be extracted', "EPOCH"),
        (WHERE + "CAST(a.x AS FOO) = 1", 'there is no type "FOO"', "FOO"),
        (WHERE + "CAST(a.x AS VARCHAR(5)) = 1", "VARCHAR takes no size", "VARCHAR(5)"),
        (
            WHERE + "CAST(a.x AS DECIMAL(39, 2)) = 1",
            "DECIMAL takes a precision and a scale",
            "DECIMAL(39, 2)",
        ),
        (
            WHERE + "CAST(a.x AS DECIMAL) = 1",
            "DECIMAL takes a precision and a scale",
            "DECIMAL",
        ),
        (WHERE + "DATE '2024-02-30' = a.x", "this is not a date", "DATE '2024-02-30'"),
        (WHERE + "TIMESTAMP '2024-02-01 25:00' = a.x", "this is not a timestamp", "TIMESTAMP '2024-02-01 25:00'"),
        (
            WHERE + "TIMESTAMP '0001-01-01 00:00+01:00' = a.x",
            "this is not a timestamp",
            "TIMESTAMP '0001-01-01 00:00+01:00'",
        ),
        (WHERE + "INTERVAL 5 PARSECS = a.x", '"PARSECS" is not a unit of time', "PARSECS"),
        (WHERE + "INTERVAL 'five' SECONDS = a.x", "a length is a number and a unit, like 10 SECONDS", "'five'"),
        (
            WHERE + "INTERVAL 99999 WEEKS * 99999 = INTERVAL 9999999999 WEEKS",
            "this interval is too long",
            "INTERVAL 9999999999 WEEKS",
        ),
        (WHERE + "a.x = 1e999", "this number is too large for a DOUBLE", "1e999"),
        (WHERE + "a.x = " + "9" * 39, "an integer of 39 digits is too large", "9" * 39),
        (WHERE + "a.x = 1e", "this is not a number", "1e"),
        (WHERE + "a.x NOT NULL", "NOT NULL is not a condition", "a.x NOT NULL"),
        (WHERE + "a.x = 5abc", "a number and a name run into each other", "5abc"),
        (WHERE + "a.x = 0x1F", "a number and a name run into each other", "0x1F"),
        (WHERE + "a.x = 1_000", "a number and a name run into each other", "1_000"),
        (WHERE + "a.x = 'it's'", "this string is never closed", "'"),
        (WHERE + "a.x = 'abc", "this string is never closed", "'abc"),
        (WHERE + "a.x = 'it''s", "this string is never closed", "'it''s"),
        (WHERE + 'a."x = 1', "this quoted name is never closed", '"x = 1'),
        (WHERE + "a.`x = 1", "this quoted name is never closed", "`x = 1"),
        (WHERE + "a.x = 1 /* and", "this comment is never closed", "/* and"),
        (WHERE + "b.x = 1", 'there is no source "b" in FROM', "b"),
        ("SELECT b.* FROM s AS a", 'there is no source "b" in FROM', "b"),
        ("SELECT s.x FROM s AS a", 'there is no source "s" in FROM', "s"),
        ('SELECT "" FROM s', "a name cannot be empty", '""'),
        ("SELECT * FROM s, t AS s", 'two sources are called "s"', "t AS s"),
        ("SELECT a€ FROM s", "did not expect the character € here", "€"),
    ],
)
def test_a_mistake_inside_is_explained(text: str, message: str, place: str) -> None:
    error = parse_error(text)
    assert error.message == message
    assert underlined_text(error) == place


FROM = "SELECT * FROM s AS a, t AS b "


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT * FROM s [RANGE -5 SECONDS]", "a window must not be negative, got -5 SECONDS", "-5 SECONDS"),
        (
            "SELECT * FROM s [WINDOW -1 MICROSECONDS]",
            "a window must not be negative, got -1 MICROSECONDS",
            "-1 MICROSECONDS",
        ),
        ("SELECT * FROM s [TUMBLE 0 DAYS]", "a TUMBLE window must be longer than zero", "0 DAYS"),
        ("SELECT * FROM s [TUMBLE -2 DAYS]", "a window must not be negative, got -2 DAYS", "-2 DAYS"),
        ("SELECT * FROM s [ROWS 0]", "a ROWS window holds between 1 and 2147483647 rows, got 0", "0"),
        ("SELECT * FROM s [ROWS -1]", "a ROWS window holds between 1 and 2147483647 rows, got -1", "-1"),
        (
            "SELECT * FROM s [ROWS 2147483648]",
            "a ROWS window holds between 1 and 2147483647 rows, got 2147483648",
            "2147483648",
        ),
        ("SELECT * FROM s [ROWS 1.5]", "a number of rows is an integer, not 1.5", "1.5"),
        (
            "SELECT * FROM s [RANGE 99999999999999999 WEEKS]",
            "a window of 60479999999999999395200000000 microseconds is too long",
            "99999999999999999 WEEKS",
        ),
        ("SELECT * FROM s [RANGE 1e999999999 WEEKS]", "this length is too long", "1e999999999"),
        ("SELECT * FROM s [RANGE 1e-999999999 WEEKS]", "a length is a whole number of microseconds", "1e-999999999"),
        ("SELECT * FROM s [RANGE 0.5 MICROSECONDS]", "a length is a whole number of microseconds", "0.5"),
        ("SELECT * FROM s [ROWS 5] AS a [ROWS 6]", "a source has one window", "["),
        ("SELECT * FROM s [PARTITION BY x, x ROWS 5]", "a column appears twice in PARTITION BY", "x, x ROWS 5"),
        (FROM + "WINDOW = -1 SECONDS", "a window must not be negative, got -1 SECONDS", "-1 SECONDS"),
        (FROM + "WINDOW (a, b) = -1 DAYS", "a window must not be negative, got -1 DAYS", "-1 DAYS"),
        (FROM + "DWINDOW (a, b) = -1 WEEKS", "a window must not be negative, got -1 WEEKS", "-1 WEEKS"),
        (
            FROM + "WINDOW = 1 SECOND AND WINDOW = 2 SECONDS",
            "WINDOW = … for all pairs is given twice",
            "WINDOW = 2 SECONDS",
        ),
        (FROM + "WINDOW (a, c) = 1 SECOND", 'there is no source "c" in FROM', "c"),
        (FROM + "WINDOW (a, A) = 1 SECOND", 'a window constraint between "a" and itself', "WINDOW (a, A) = 1 SECOND"),
        (FROM + "EVERY 0 SECONDS", "EVERY takes a length above zero", "0 SECONDS"),
        (FROM + "EVERY -1 SECONDS", "EVERY takes a length above zero", "-1 SECONDS"),
        (
            FROM + "EVERY 99999999999 WEEKS",
            "a window of 60479999999395200000000 microseconds is too long",
            "99999999999 WEEKS",
        ),
    ],
)
def test_an_invalid_window_is_refused(text: str, message: str, place: str) -> None:
    error = parse_error(text)
    assert error.message == message
    assert underlined_text(error) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT * FROM s []", "]"),
        ("SELECT * FROM s [FOO]", "FOO"),
        ("SELECT * FROM s [ROWS]", "]"),
        ("SELECT * FROM s [ROWS 5", ""),
        ("SELECT * FROM s [RANGE 5]", "]"),
        ("SELECT * FROM s [RANGE SECONDS]", "SECONDS"),
        ("SELECT * FROM s [PARTITION BY x RANGE 5 SECONDS]", "RANGE"),
        ("SELECT * FROM s [PARTITION BY ROWS 5]", "5"),
        (FROM + "DWINDOW = 1 SECOND", "="),
        (FROM + "WINDOW (a) = 1 SECOND", ")"),
        (FROM + "WINDOW (a, b, c) = 1 SECOND", ","),
        (FROM + "WINDOW (a, b) 1 SECOND", "1"),
        (FROM + "WINDOW (a, b) = 1 SECOND AND a.x = b.x", "a"),
        ("SELECT * FROM s JOIN t", ""),
        ("SELECT * FROM s CROSS t", "t"),
        ("SELECT * FROM s,", ""),
    ],
)
def test_a_broken_window_or_join_is_pointed_at(text: str, place: str) -> None:
    error = parse_error(text)
    assert error.message.startswith(("did not expect", "the query ends too early"))
    assert "; expected " in error.message
    assert underlined_text(error) == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT * FROM s GROUP BY a WHERE b", "WHERE"),
        ("SELECT * FROM s WHERE a WHERE b", "WHERE"),
        ("SELECT * FROM s EVERY 5 SECONDS HAVING a", "HAVING"),
        ("SELECT * FROM s WINDOW = 1 SECOND WHERE a WINDOW = 2 SECONDS", "WINDOW"),
        ("SELECT * FROM s WHERE a JOIN t ON b", "JOIN"),
    ],
)
def test_clauses_have_an_order_and_appear_once(text: str, place: str) -> None:
    error = parse_error(text)
    assert error.message == f"{place} is in the wrong place or repeated"
    assert underlined_text(error) == place

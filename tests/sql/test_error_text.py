"""Errors as users see them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.sql.schemas import bind_error, parse_error


def error_text(text: str) -> str:
    return dedent(text).strip("\n")


def test_a_missing_column() -> None:
    error = bind_error("SELECT bids.auction\nFROM bids [ROWS 5]\nWHERE bids.prize > 10")
    assert str(error) == error_text("""
        column "prize" does not exist in stream "bids"

        3 | WHERE bids.prize > 10
                  ^^^^^^^^^^
        existing columns: auction, bidder, price, ts
    """)


def test_an_unknown_stream() -> None:
    assert str(bind_error("SELECT *\nFROM bids [ROWS 5], asks [ROWS 5]")) == error_text("""
        there is no stream or relation "asks"

        2 | FROM bids [ROWS 5], asks [ROWS 5]
                                ^^^^^^^^^^^^^
        declared: sales_a, sales_b, sales_c, bids, kinds, stores
    """)


def test_an_ambiguous_column() -> None:
    assert str(bind_error("SELECT item FROM sales_a [ROWS 5] a, sales_b [ROWS 5] b")) == error_text("""
        column "item" is in 2 sources

        1 | SELECT item FROM sales_a [ROWS 5] a, sales_b [ROWS 5] b
                   ^^^^
        say which: a.item, b.item
    """)


def test_an_unknown_source() -> None:
    assert str(parse_error("SELECT a.item FROM sales_a [ROWS 5] AS a WHERE b.item = 1")) == error_text("""
        there is no source "b" in FROM

        1 | SELECT a.item FROM sales_a [ROWS 5] AS a WHERE b.item = 1
                                                           ^
        sources: a
    """)


def test_a_join_condition_over_a_source_that_is_joined_later() -> None:
    assert str(
        parse_error("SELECT *\nFROM a [ROWS 5]\nJOIN b [ROWS 5] ON a.k = c.k\nJOIN c [ROWS 5] ON TRUE")
    ) == error_text("""
        source "c" is not in scope here: it is joined later

        3 | JOIN b [ROWS 5] ON a.k = c.k
                                     ^
        sources in scope: a, b; put the condition into WHERE or into the ON of a later JOIN
    """)


def test_a_column_without_a_source_that_only_a_later_source_has() -> None:
    query = "SELECT *\nFROM sales_a [ROWS 5] a\nJOIN sales_b [ROWS 5] b ON a.item = auction\nJOIN bids [ROWS 5] ON TRUE"
    assert str(bind_error(query)) == error_text("""
        source "bids" is not in scope here: it is joined later

        3 | JOIN sales_b [ROWS 5] b ON a.item = auction
                                                ^^^^^^^
        sources in scope: a, b; put the condition into WHERE or into the ON of a later JOIN
    """)


def test_an_outer_join() -> None:
    assert str(parse_error("SELECT *\nFROM s\nLEFT JOIN t ON s.x = t.x")) == error_text("""
        LEFT joins are not supported

        3 | LEFT JOIN t ON s.x = t.x
            ^^^^
        supported: JOIN … ON, CROSS JOIN and commas; a row without a match gives no result
    """)


def test_an_unfinished_query() -> None:
    assert str(parse_error("SELECT a.x FROM s AS a WHERE a.x =")) == error_text("""
        the query ends too early; expected a value, a column or an expression

        1 | SELECT a.x FROM s AS a WHERE a.x =
                                              ^
    """)


def test_a_reserved_word_as_a_name() -> None:
    assert str(parse_error("SELECT a.x AS end FROM s AS a")) == error_text("""
        did not expect end here; expected a name after AS

        1 | SELECT a.x AS end FROM s AS a
                          ^^^
        quote a reserved word to use it as a name: "end"
    """)


def test_lines_that_end_in_a_carriage_return() -> None:
    assert str(parse_error("SELECT a.x\r\nFROM s a WHERE\r\n")) == error_text("""
        the query ends too early; expected a value, a column or an expression

        2 | FROM s a WHERE
                          ^
    """).replace("WHERE", "WHERE ")


def test_a_window_without_a_unit() -> None:
    assert str(parse_error("SELECT * FROM s [RANGE 10]")) == error_text("""
        did not expect ] here; expected a unit, like SECONDS

        1 | SELECT * FROM s [RANGE 10]
                                     ^
    """)


def test_types_that_do_not_compare() -> None:
    assert str(bind_error("SELECT * FROM bids [ROWS 5] AS b\nWHERE b.price > '10' AND TRUE")) == error_text("""
        > cannot combine BIGINT and VARCHAR

        2 | WHERE b.price > '10' AND TRUE
                  ^^^^^^^^^^^^^^
        write a number without quotes, or CAST the string to a number
    """)


def test_a_malformed_time_in_quotes() -> None:
    assert str(bind_error("SELECT * FROM bids [ROWS 5] WHERE ts > '2024-13-01'")) == error_text("""
        this is not a timestamp

        1 | SELECT * FROM bids [ROWS 5] WHERE ts > '2024-13-01'
                                                   ^^^^^^^^^^^^
        write it like TIMESTAMP '2024-12-31 23:59:59.5'
    """)


def test_every_without_an_aggregate() -> None:
    assert str(bind_error("SELECT * FROM bids [ROWS 5] EVERY 5 SECONDS")) == error_text("""
        EVERY is for aggregation queries; this query emits each result as soon as it is known

        1 | SELECT * FROM bids [ROWS 5] EVERY 5 SECONDS
                                        ^^^^^
        leave EVERY out, or aggregate with GROUP BY, COUNT, SUM, AVG, MIN or MAX
    """)


def test_an_ungrouped_column_next_to_an_aggregate() -> None:
    assert str(bind_error("SELECT bidder, price, MAX(price) FROM bids [ROWS 5] GROUP BY bidder")) == error_text("""
        bids.price is neither grouped nor aggregated

        1 | SELECT bidder, price, MAX(price) FROM bids [ROWS 5] GROUP BY bidder
                           ^^^^^
        add it to GROUP BY, or aggregate it: MAX(bids.price)
    """)


def test_a_stream_without_a_window() -> None:
    assert str(bind_error("SELECT a.item\nFROM sales_a AS a, sales_b [ROWS 5] AS b")) == error_text("""
        stream "a" has no window, so its rows would have to be kept forever

        2 | FROM sales_a AS a, sales_b [ROWS 5] AS b
                 ^^^^^^^^^^^^
        give it one, like [RANGE 10 SECONDS] or [ROWS 1000]; [LANDMARK] keeps every row
    """)


def test_a_window_on_a_relation() -> None:
    assert str(bind_error("SELECT * FROM bids [ROWS 5], stores [ROWS 5]")) == error_text("""
        "stores" is a relation, so it cannot have a window

        1 | SELECT * FROM bids [ROWS 5], stores [ROWS 5]
                                         ^^^^^^^^^^^^^^^
        leave the window out
    """)


@pytest.mark.parametrize("text", ["", " \n\t ", ";", "-- nothing", "/* nothing */"])
def test_an_empty_query(text: str) -> None:
    assert str(parse_error(text)) == "the query is empty\nbegin with SELECT"


def test_control_characters_are_not_printed() -> None:
    error = parse_error('SELECT "\x1b[31m".x FROM s')
    assert "\x1b" not in str(error)
    assert error.message == 'there is no source "�[31m" in FROM'

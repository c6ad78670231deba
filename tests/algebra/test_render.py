"""Queries and expressions as text, JSON and diagrams."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.algebra.expressions import Column, Literal, Value
from watersmeet.algebra.render import format_expression, format_query, format_type, query_to_dict, query_to_mermaid
from watersmeet.algebra.schema import RESERVED, quote_name
from watersmeet.sql.parsing import parse


def test_a_query_is_printed_with_one_clause_per_line() -> None:
    query = parse("""
        select a.item, SUM(b.price) total
        from sales_a a [partition by store rows 5] join "sales b" b [tumble 90 seconds] on a.item = b.item
        window = 1 day and dwindow (a, b) = 3600 seconds where a.price > 10 and (a.store = 'x' or b.store is not null)
        group by a.item, a.store having count(*) > 1 and max(b.price) < 5 every 0.5 seconds
    """)
    assert format_query(query).split("\n") == [
        "SELECT a.item, SUM(b.price) AS total",
        "FROM sales_a [PARTITION BY store ROWS 5] AS a,",
        '     "sales b" [TUMBLE 90 SECONDS] AS b',
        "WINDOW = 1 DAY",
        "  AND DWINDOW (a, b) = 1 HOUR",
        "WHERE a.item = b.item",
        "  AND a.price > 10",
        "  AND (a.store = 'x' OR b.store IS NOT NULL)",
        "GROUP BY a.item, a.store",
        "HAVING COUNT(*) > 1",
        "   AND MAX(b.price) < 5",
        "EVERY 500 MILLISECONDS",
    ]
    assert str(query) == format_query(query)


@pytest.mark.parametrize(
    "text",
    [
        "a + b + c",
        "a + (b + c)",
        "a - (b - c)",
        "(a + b) * c",
        "a * b + c",
        "a * (b / c)",
        "-a * b",
        "-(a * b)",
        "-(-a)",
        "-(5)",
        "a - -5",
        "-5 * a",
        "NOT a",
        "NOT (NOT a)",
        "NOT (a AND b)",
        "NOT a = b",
        "(NOT a) = b",
        "a AND b AND c",
        "a AND (b AND c)",
        "a AND b OR c",
        "a AND (b OR c)",
        "(a = b) = c",
        "(a IS NULL) = b",
        "a = (b IS NULL)",
        "a + b IS NOT NULL",
        "(a = b) IS NULL",
        "a NOT IN (1, b OR c)",
        "a + 1 BETWEEN b - 1 AND c * 2",
        "(a BETWEEN b AND c) IN (TRUE)",
        "a NOT LIKE 'x''%'",
        "CASE WHEN a OR b THEN c + 1 ELSE NOT d END + 1",
        "CAST(a + b AS DECIMAL(10, 2))",
        "CONCAT(a, 'b') = COALESCE(c, NULL)",
        "SUM(a) / COUNT(*)",
        "INTERVAL -90 SECONDS + DATE '2024-01-01'",
        "TIMESTAMP '2024-01-01 10:00:00.500000+00:00'",
        "99999999999999999999 + -99999999999999999999",
    ],
)
def test_no_parenthesis_is_printed_that_could_be_left_out(text: str) -> None:
    assert str(parse(f"SELECT {text} FROM s")) == f"SELECT {text}\nFROM s"


@pytest.mark.parametrize("name", ["x", "_x1", "Price", "rows", "date", "order"])
def test_plain_names_have_no_quotes(name: str) -> None:
    assert quote_name(name) == name


@pytest.mark.parametrize("name", [*sorted(RESERVED), "1st", "a b", "é", "a.b", "a-b", ""])
def test_all_other_names_have_quotes(name: str) -> None:
    assert quote_name(name) == f'"{name}"'
    assert quote_name(name.lower()) == f'"{name.lower()}"'


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (5, pa.int32(), "5"),
        (float("nan"), pa.float64(), "CAST('nan' AS DOUBLE)"),
        (float("-inf"), pa.float64(), "CAST('-inf' AS DOUBLE)"),
        (Decimal("1.50"), pa.decimal128(10, 2), "CAST('1.50' AS DECIMAL(10, 2))"),
        (Decimal("5"), pa.decimal128(20, 0), "CAST('5' AS DECIMAL(20, 0))"),
        (b"\x00\xff", pa.binary(), "CAST('00ff' AS BINARY)"),
        (dt.time(10, 30), pa.time64("us"), "CAST('10:30:00' AS time64[us])"),
        (None, pa.int64(), "NULL"),
    ],
)
def test_constants_that_only_binding_makes_are_printed_too(value: Value, kind: pa.DataType, text: str) -> None:
    assert format_expression(Literal(value, kind)) == text


def test_types_have_their_names() -> None:
    assert [
        format_type(kind)
        for kind in (pa.int64(), pa.decimal128(5, 1), pa.timestamp("us"), pa.uint8(), pa.list_(pa.int8()))
    ] == [
        "BIGINT",
        "DECIMAL(5, 1)",
        "TIMESTAMP",
        "uint8",
        "list<item: int8>",
    ]


def test_a_query_as_json() -> None:
    query = parse("SELECT x AS y FROM s [ROWS 5] AS a WINDOW = 1 SECOND WHERE a.x > 1.5 EVERY 1 MINUTE")
    assert query_to_dict(query) == query.to_dict()
    assert query_to_dict(query) == {
        "kind": "query",
        "parts": [
            {
                "kind": "select",
                "parts": [{"kind": "item", "alias": "y", "parts": [{"kind": "column", "name": "x", "source": None}]}],
            },
            {
                "kind": "from",
                "parts": [
                    {
                        "kind": "source",
                        "name": "s",
                        "alias": "a",
                        "window": {"kind": "rows", "rows": 5, "partition_by": [], "text": "ROWS 5"},
                    }
                ],
            },
            {"kind": "window", "parts": [{"kind": "all pairs", "length_us": 1_000_000}]},
            {
                "kind": "where",
                "parts": [
                    {
                        "kind": "comparison",
                        "op": ">",
                        "parts": [
                            {"kind": "column", "name": "x", "source": "a"},
                            {"kind": "literal", "value": 1.5, "type": "DOUBLE"},
                        ],
                    }
                ],
            },
            {"kind": "every", "length_us": 60_000_000},
        ],
    }


def test_a_query_as_mermaid() -> None:
    query = parse('SELECT "<b>" FROM s [ROWS 5] AS a WHERE a.x = \'"]\'')
    assert query_to_mermaid(query) == query.to_mermaid()
    assert query_to_mermaid(query).split("\n") == [
        "flowchart TD",
        '    n0["QUERY"]',
        '    n1["SELECT"]',
        '    n2["#34;#60;b#62;#34;"]',
        "    n1 --> n2",
        "    n0 --> n1",
        '    n5["FROM"]',
        '    n6["s #91;ROWS 5#93; AS a"]',
        "    n5 --> n6",
        "    n0 --> n5",
        '    n9["WHERE"]',
        '    n10["a.x = #39;#34;#93;#39;"]',
        "    n9 --> n10",
        "    n0 --> n9",
    ]


def test_a_long_label_is_cut() -> None:
    picture = query_to_mermaid(parse(f"SELECT {' + '.join(['x'] * 90)} FROM s"))
    assert max(len(line) for line in picture.split("\n")) < 250


def test_columns_are_qualified_where_their_source_is_known() -> None:
    assert format_expression(Column("x")) == "x"
    assert format_expression(Column("unit price", "a b")) == '"a b"."unit price"'

"""Meaning of expressions."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.sql.schemas import parse_condition, parse_item
from watersmeet.algebra.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Value,
)
from watersmeet.errors import Span
from watersmeet.sql.parsing import parse

X, Y, Z = (Column(name, "a") for name in "xyz")


def number(value: int) -> Literal:
    return Literal(value, pa.int64())


def text(value: str) -> Literal:
    return Literal(value, pa.string())


@pytest.mark.parametrize(
    ("written", "value", "kind"),
    [
        ("42", 42, pa.int64()),
        ("-42", -42, pa.int64()),
        ("9223372036854775807", 2**63 - 1, pa.int64()),
        ("-9223372036854775808", -(2**63), pa.int64()),
        ("9223372036854775808", Decimal(2**63), pa.decimal128(19, 0)),
        ("-9223372036854775809", Decimal(-(2**63) - 1), pa.decimal128(19, 0)),
        ("9" * 38, Decimal(10**38 - 1), pa.decimal128(38, 0)),
        ("1.5", 1.5, pa.float64()),
        ("-1.5e-3", -0.0015, pa.float64()),
        ("1e10", 1e10, pa.float64()),
        ("5.", 5.0, pa.float64()),
        (".5", 0.5, pa.float64()),
        ("-.5e1", -5.0, pa.float64()),
        ("TRUE", True, pa.bool_()),
        ("false", False, pa.bool_()),
        ("NULL", None, pa.null()),
        ("'it''s'", "it's", pa.string()),
        ("''", "", pa.string()),
        (r"'a\nb'", r"a\nb", pa.string()),
        ("'--no comment /*'", "--no comment /*", pa.string()),
        ("DATE '2024-02-29'", dt.date(2024, 2, 29), pa.date32()),
        ("TIMESTAMP '2024-02-29'", dt.datetime(2024, 2, 29), pa.timestamp("us")),
        ("timestamp '2024-02-29 10:11:12.5'", dt.datetime(2024, 2, 29, 10, 11, 12, 500_000), pa.timestamp("us")),
        ("TIMESTAMP '2024-02-29T10:11:12'", dt.datetime(2024, 2, 29, 10, 11, 12), pa.timestamp("us")),
        (
            "TIMESTAMP '2024-02-29 10:11:12+01:00'",
            dt.datetime(2024, 2, 29, 9, 11, 12, tzinfo=dt.UTC),
            pa.timestamp("us", "UTC"),
        ),
        ("TIMESTAMP '2024-02-29 10:11Z'", dt.datetime(2024, 2, 29, 10, 11, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        ("INTERVAL 5 SECONDS", dt.timedelta(seconds=5), pa.duration("us")),
        ("INTERVAL '5' second", dt.timedelta(seconds=5), pa.duration("us")),
        ("INTERVAL -2 DAYS", dt.timedelta(days=-2), pa.duration("us")),
        ("INTERVAL 0.5 MINUTE", dt.timedelta(seconds=30), pa.duration("us")),
    ],
)
def test_a_constant_has_a_value_and_a_type(written: str, value: Value, kind: pa.DataType) -> None:
    assert parse_item(written) == Literal(value, kind)


@pytest.mark.parametrize(
    ("written", "meaning"),
    [
        ("a.x + a.y * a.z", Arithmetic("+", X, Arithmetic("*", Y, Z))),
        ("(a.x + a.y) * a.z", Arithmetic("*", Arithmetic("+", X, Y), Z)),
        ("a.x - a.y - a.z", Arithmetic("-", Arithmetic("-", X, Y), Z)),
        ("a.x / a.y % a.z", Arithmetic("%", Arithmetic("/", X, Y), Z)),
        ("-a.x * a.y", Arithmetic("*", Negate(X), Y)),
        ("-(5)", Negate(number(5))),
        ("- -5", Negate(number(-5))),
        ("a.x - -5", Arithmetic("-", X, number(-5))),
        ("a.x || 'b' || a.z", Call("CONCAT", (X, text("b"), Z))),
        ("a.x || a.y + 1", Call("CONCAT", (X, Arithmetic("+", Y, number(1))))),
        ("(a.x || a.y) || a.z", Call("CONCAT", (Call("CONCAT", (X, Y)), Z))),
        ("x", Column("x")),
        ("((a.x))", X),
    ],
)
def test_arithmetic_binds_as_in_sql(written: str, meaning: Expr) -> None:
    assert parse_item(written) == meaning


@pytest.mark.parametrize(
    ("written", "meaning"),
    [
        (
            "a.x = 1 AND a.y = 2 AND a.z = 3",
            And(tuple(Comparison("=", c, number(i + 1)) for i, c in enumerate((X, Y, Z)))),
        ),
        ("a.x OR a.y OR a.z", Or((X, Y, Z))),
        ("a.x OR a.y AND a.z", Or((X, And((Y, Z))))),
        ("(a.x OR a.y) AND a.z", And((Or((X, Y)), Z))),
        ("a.x AND (a.y AND a.z)", And((X, And((Y, Z))))),
        ("NOT a.x = a.y", Not(Comparison("=", X, Y))),
        ("NOT a.x AND a.y", And((Not(X), Y))),
        ("a.x <> 1", Comparison("<>", X, number(1))),
        ("a.x != 1", Comparison("<>", X, number(1))),
        ("a.x <= 1", Comparison("<=", X, number(1))),
        ("a.x >= 1", Comparison(">=", X, number(1))),
        ("a.x < a.y + 1", Comparison("<", X, Arithmetic("+", Y, number(1)))),
        ("(a.x = a.y) = a.z", Comparison("=", Comparison("=", X, Y), Z)),
        ("a.x IN (1, 2)", In(X, (number(1), number(2)))),
        ("a.x NOT IN (a.y)", Not(In(X, (Y,)))),
        ("a.x BETWEEN 1 AND 2 AND a.y", And((Between(X, number(1), number(2)), Y))),
        ("a.x NOT BETWEEN 1 AND 2", Not(Between(X, number(1), number(2)))),
        ("a.x LIKE 'a%'", Like(X, "a%")),
        ("a.x NOT LIKE 'a''_%'", Not(Like(X, "a'_%"))),
        ("a.x IS NULL", IsNull(X)),
        ("a.x IS NOT NULL", Not(IsNull(X))),
        ("a.x + a.y IS NULL", IsNull(Arithmetic("+", X, Y))),
        ("NOT a.x IS NULL", Not(IsNull(X))),
    ],
)
def test_conditions_bind_as_in_sql(written: str, meaning: Expr) -> None:
    assert parse_condition(written) == meaning


@pytest.mark.parametrize(
    ("written", "meaning"),
    [
        ("a.x = a.y IS NULL", IsNull(Comparison("=", X, Y))),
        ("a.x IS NULL = a.y", Comparison("=", IsNull(X), Y)),
        ("a.x = a.y < a.z", Comparison("<", Comparison("=", X, Y), Z)),
        ("a.x < a.y IN (TRUE)", In(Comparison("<", X, Y), (Literal(True, pa.bool_()),))),
        ("a.x IN (1) NOT IN (a.y)", Not(In(In(X, (number(1),)), (Y,)))),
        ("NOT a.x = a.y IS NOT NULL", Not(Not(IsNull(Comparison("=", X, Y))))),
        ("a.x = NOT a.y AND a.z", And((Comparison("=", X, Not(Y)), Z))),
        ("a.x BETWEEN a.y || 'b' AND 'c'", Between(X, Call("CONCAT", (Y, text("b"))), text("c"))),
    ],
)
def test_tests_apply_from_left_to_right(written: str, meaning: Expr) -> None:
    assert parse_condition(written) == meaning


@pytest.mark.parametrize(
    ("written", "meaning"),
    [
        ("CASE WHEN a.x THEN 1 END", Case(((X, number(1)),))),
        ("CASE WHEN a.x THEN 1 WHEN a.y THEN 2 ELSE 3 END", Case(((X, number(1)), (Y, number(2))), number(3))),
        (
            "CASE a.x WHEN 1 THEN 'a' WHEN a.y THEN 'b' END",
            Case(((Comparison("=", X, number(1)), text("a")), (Comparison("=", X, Y), text("b")))),
        ),
        ("CASE (a.x) WHEN 1 THEN 2 END", Case(((Comparison("=", X, number(1)), number(2)),))),
        ("IF(a.x, a.y, a.z)", Case(((X, Y),), Z)),
        ("MOD(a.x, 3)", Arithmetic("%", X, number(3))),
        ("EXTRACT(HOUR FROM a.x)", Call("HOUR", (X,))),
        ("ceiling(a.x)", Call("CEIL", (X,))),
        ("Substr(a.x, 1, 2)", Call("SUBSTRING", (X, number(1), number(2)))),
        ("COALESCE(a.x)", Call("COALESCE", (X,))),
        ("REPLACE(a.x, 'a', 'b')", Call("REPLACE", (X, text("a"), text("b")))),
        ("count(*)", Aggregate("COUNT")),
        ("COUNT(a.x)", Aggregate("COUNT", X)),
        ("SUM(a.x + 1)", Aggregate("SUM", Arithmetic("+", X, number(1)))),
        ("avg(a.x) / MAX(a.y)", Arithmetic("/", Aggregate("AVG", X), Aggregate("MAX", Y))),
        ("second(a.x) + second", Arithmetic("+", Call("SECOND", (X,)), Column("second"))),
    ],
)
def test_case_functions_and_aggregates(written: str, meaning: Expr) -> None:
    assert parse_item(written) == meaning


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("BOOLEAN", pa.bool_()),
        ("TINYINT", pa.int8()),
        ("smallint", pa.int16()),
        ("INT", pa.int32()),
        ("INTEGER", pa.int32()),
        ("BIGINT", pa.int64()),
        ("FLOAT", pa.float32()),
        ("REAL", pa.float32()),
        ("DOUBLE", pa.float64()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("DECIMAL(5)", pa.decimal128(5, 0)),
        ("VARCHAR", pa.string()),
        ("STRING", pa.string()),
        ("TEXT", pa.string()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us")),
        ("BINARY", pa.binary()),
    ],
)
def test_cast_names_an_arrow_type(written: str, kind: pa.DataType) -> None:
    assert parse_item(f"CAST(a.x AS {written})") == Cast(X, kind)


def test_every_node_has_its_span() -> None:
    query = parse("SELECT a.x FROM s a WHERE NOT (a.x + 1 > ABS(a.y)) AND CASE WHEN a.z THEN 1 END IN (1, 2)")
    assert query.text is not None
    where = query.where
    assert isinstance(where, And)
    inversion, membership = where.args
    assert isinstance(inversion, Not)
    assert isinstance(inversion.arg, Comparison)
    assert isinstance(membership, In)

    def piece(span: Span | None) -> str:
        assert span is not None
        assert query.text is not None
        return query.text[span.start : span.end]

    assert piece(where.span) == query.text[query.text.index("NOT") :]
    assert piece(inversion.span) == "NOT (a.x + 1 > ABS(a.y))"
    assert piece(inversion.arg.left.span) == "a.x + 1"
    assert piece(inversion.arg.right.span) == "ABS(a.y)"
    assert piece(membership.span) == "CASE WHEN a.z THEN 1 END IN (1, 2)"
    assert piece(membership.arg.span) == "CASE WHEN a.z THEN 1 END"
    assert piece(membership.options[1].span) == "2"

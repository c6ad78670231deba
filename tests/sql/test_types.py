"""Types of expressions and the conversions that binding adds."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sql.schemas import bind_error, bind_text, underlined_text
from watersmeet.algebra.render import format_expression
from watersmeet.sql.binder import Binder
from watersmeet.sql.scope import Scope
from watersmeet.sql.type_inference import type_of

INT, BIG, FLOAT, BOOL, TEXT = pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string()


def as_bound(expression: str) -> tuple[str, pa.DataType]:
    """The expression over `kinds` with its conversions written out, without qualification, and its type."""
    query = bind_text(f"SELECT {expression} AS e FROM kinds [ROWS 5] AS k")
    expr = query.outputs[0].expr
    kind = type_of(expr, query.sources)
    assert Binder(Scope(query.sources)).bind(expr).type == kind, "binding what is bound changes nothing"
    return format_expression(expr).replace("k.", ""), kind


@pytest.mark.parametrize(
    ("written", "meant", "kind"),
    [
        ("i8 + i32", "CAST(i8 AS BIGINT) + CAST(i32 AS BIGINT)", BIG),
        ("u8 * u32", "CAST(u8 AS BIGINT) * CAST(u32 AS BIGINT)", BIG),
        ("i64 - 1", "i64 - 1", BIG),
        ("i64 + u64", "CAST(i64 AS DECIMAL(19, 0)) + CAST(u64 AS DECIMAL(20, 0))", pa.decimal128(21, 0)),
        ("i64 / 2", "CAST(i64 AS DOUBLE) / 2.0", FLOAT),
        ("dec / dec", "CAST(dec AS DOUBLE) / CAST(dec AS DOUBLE)", FLOAT),
        ("i32 % 3", "CAST(i32 AS BIGINT) % 3", BIG),
        ("f32 % 3", "CAST(f32 AS DOUBLE) % 3.0", FLOAT),
        ("f32 + f32", "CAST(f32 AS DOUBLE) + CAST(f32 AS DOUBLE)", FLOAT),
        ("i64 + 1.5", "CAST(i64 AS DOUBLE) + 1.5", FLOAT),
        ("dec + f64", "CAST(dec AS DOUBLE) + f64", FLOAT),
        ("dec + dec", "dec + dec", pa.decimal128(11, 2)),
        ("dec + i8", "dec + CAST(i8 AS DECIMAL(3, 0))", pa.decimal128(11, 2)),
        ("dec * dec", "dec * dec", pa.decimal128(21, 4)),
        ("dec * 2", "dec * CAST('2' AS DECIMAL(1, 0))", pa.decimal128(12, 2)),
        ("-i32", "-CAST(i32 AS BIGINT)", BIG),
        ("-dec", "-dec", pa.decimal128(10, 2)),
        ("-u64", "-CAST(u64 AS DECIMAL(20, 0))", pa.decimal128(20, 0)),
        ("-f32", "-CAST(f32 AS DOUBLE)", FLOAT),
        ("-NULL", "-(NULL)", BIG),
        ("i64 + NULL", "i64 + NULL", BIG),
        ("NULL + NULL", "NULL + NULL", BIG),
        ("nothing + 1", "CAST(nothing AS BIGINT) + 1", BIG),
    ],
)
def test_arithmetic_on_numbers(written: str, meant: str, kind: pa.DataType) -> None:
    assert as_bound(written) == (meant, kind)


@pytest.mark.parametrize(
    ("written", "meant", "kind"),
    [
        ("ts - ts", "ts - ts", pa.duration("us")),
        ("ts_s - ts_s", "CAST(ts_s AS TIMESTAMP) - CAST(ts_s AS TIMESTAMP)", pa.duration("us")),
        (
            "ts - ts_paris",
            "CAST(ts AS timestamp[ns, tz=UTC]) - CAST(ts_paris AS timestamp[ns, tz=UTC])",
            pa.duration("ns"),
        ),
        ("day - day", "CAST(day AS TIMESTAMP) - CAST(day AS TIMESTAMP)", pa.duration("us")),
        ("ts - '2024-01-01'", "ts - TIMESTAMP '2024-01-01 00:00:00'", pa.duration("us")),
        ("ts + INTERVAL 1 DAY", "ts + INTERVAL 1 DAY", pa.timestamp("us")),
        ("ts - INTERVAL 1 DAY", "ts - INTERVAL 1 DAY", pa.timestamp("us")),
        ("INTERVAL 1 DAY + ts", "INTERVAL 1 DAY + ts", pa.timestamp("us")),
        ("ts_s + span", "CAST(ts_s AS timestamp[ms]) + span", pa.timestamp("ms")),
        ("ts_paris + INTERVAL 1 DAY", "ts_paris + INTERVAL 1 DAY", pa.timestamp("ns", "Europe/Paris")),
        ("day + INTERVAL 1 DAY", "CAST(day AS TIMESTAMP) + INTERVAL 1 DAY", pa.timestamp("us")),
        ("span + INTERVAL 1 SECOND", "CAST(span AS duration[us]) + INTERVAL 1 SECOND", pa.duration("us")),
        ("ts + NULL", "ts + NULL", pa.timestamp("us")),
        ("ts - NULL", "ts - NULL", pa.duration("us")),
    ],
)
def test_arithmetic_on_time(written: str, meant: str, kind: pa.DataType) -> None:
    assert as_bound(written) == (meant, kind)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("i32 = i32", "i32 = i32"),
        ("i32 = i64", "CAST(i32 AS BIGINT) = i64"),
        ("i32 = 5", "CAST(i32 AS BIGINT) = 5"),
        ("u8 < u32", "CAST(u8 AS BIGINT) < CAST(u32 AS BIGINT)"),
        ("u64 = i64", "CAST(u64 AS DECIMAL(20, 0)) = CAST(i64 AS DECIMAL(20, 0))"),
        ("u64 = 5", "u64 = 5"),
        ("u64 > -5", "CAST(u64 AS DECIMAL(20, 0)) > CAST('-5' AS DECIMAL(20, 0))"),
        ("u64 = u8", "u64 = CAST(u8 AS uint64)"),
        ("dec = i64", "CAST(dec AS DECIMAL(21, 2)) = CAST(i64 AS DECIMAL(21, 2))"),
        ("dec > 10", "dec > CAST('10.00' AS DECIMAL(10, 2))"),
        ("10 < dec", "CAST('10.00' AS DECIMAL(10, 2)) < dec"),
        ("dec = wide", "CAST(dec AS DECIMAL(38, 4)) = wide"),
        ("dec = 1.5", "CAST(dec AS DOUBLE) = 1.5"),
        ("f32 = f32", "f32 = f32"),
        ("f32 = 1", "CAST(f32 AS DOUBLE) = 1.0"),
        ("i64 = 99999999999999999999", "CAST(i64 AS DECIMAL(20, 0)) = 99999999999999999999"),
        ("text = large", "text = CAST(large AS VARCHAR)"),
        ("text = coded", "text = CAST(coded AS VARCHAR)"),
        ("coded = coded", "CAST(coded AS VARCHAR) = CAST(coded AS VARCHAR)"),
        ("coded = 'x'", "CAST(coded AS VARCHAR) = 'x'"),
        ("flag = TRUE", "flag = TRUE"),
        ("raw = raw", "raw = raw"),
        ("day = '2024-02-29'", "day = DATE '2024-02-29'"),
        ("day < ts", "CAST(day AS TIMESTAMP) < ts"),
        ("ts < '2024-02-29 10:00+01:00'", "ts < TIMESTAMP '2024-02-29 09:00:00'"),
        ("ts < DATE '2024-02-29'", "ts < TIMESTAMP '2024-02-29 00:00:00'"),
        ("ts < ts_s", "ts < CAST(ts_s AS TIMESTAMP)"),
        ("ts < ts_paris", "CAST(ts AS timestamp[ns, tz=UTC]) < CAST(ts_paris AS timestamp[ns, tz=UTC])"),
        ("ts_paris < '2024-02-29'", "ts_paris < TIMESTAMP '2024-02-29 00:00:00+00:00'"),
        ("ts_s < '2024-02-29 00:00:00'", "ts_s < TIMESTAMP '2024-02-29 00:00:00'"),
        ("ts_s < '2024-02-29 00:00:00.5'", "CAST(ts_s AS TIMESTAMP) < TIMESTAMP '2024-02-29 00:00:00.500000'"),
        ("clock < '10:30'", "clock < CAST('10:30:00' AS time64[us])"),
        ("span < INTERVAL 1 SECOND", "CAST(span AS duration[us]) < INTERVAL 1 SECOND"),
        ("text = NULL", "text = NULL"),
        ("NULL = NULL", "NULL = NULL"),
        ("nothing = 5", "CAST(nothing AS BIGINT) = 5"),
        ("i32 IN (1, 2.5, NULL)", "CAST(i32 AS DOUBLE) IN (1.0, 2.5, NULL)"),
        ("i64 IN (1, i32)", "i64 IN (1, CAST(i32 AS BIGINT))"),
        ("ts BETWEEN '2024-01-01' AND day", "ts BETWEEN TIMESTAMP '2024-01-01 00:00:00' AND CAST(day AS TIMESTAMP)"),
        ("coded LIKE 'x%'", "CAST(coded AS VARCHAR) LIKE 'x%'"),
        ("list IS NULL", "list IS NULL"),
        ("flag AND NULL", "flag AND NULL"),
        ("NOT (flag OR i64 > 1)", "NOT (flag OR i64 > 1)"),
    ],
)
def test_both_sides_of_a_comparison_have_one_type(written: str, meant: str) -> None:
    assert as_bound(written) == (meant, BOOL)


@pytest.mark.parametrize(
    ("written", "meant", "kind"),
    [
        ("CASE WHEN flag THEN i32 ELSE 1.5 END", "CASE WHEN flag THEN CAST(i32 AS DOUBLE) ELSE 1.5 END", FLOAT),
        ("CASE WHEN flag THEN NULL ELSE i32 END", "CASE WHEN flag THEN NULL ELSE i32 END", INT),
        ("CASE WHEN flag THEN NULL END", "CASE WHEN flag THEN NULL END", pa.null()),
        ("CASE WHEN NULL THEN coded ELSE 'x' END", "CASE WHEN NULL THEN CAST(coded AS VARCHAR) ELSE 'x' END", TEXT),
        ("IF(flag, day, '2024-01-01')", "CASE WHEN flag THEN day ELSE DATE '2024-01-01' END", pa.date32()),
        ("CAST(coded AS INT)", "CAST(CAST(coded AS VARCHAR) AS INT)", INT),
        ("CAST('2024-01-01' AS DATE)", "CAST('2024-01-01' AS DATE)", pa.date32()),
        ("CAST(f64 AS DECIMAL(5, 1))", "CAST(f64 AS DECIMAL(5, 1))", pa.decimal128(5, 1)),
        ("CAST(flag AS INT)", "CAST(flag AS INT)", INT),
        ("CAST(NULL AS BINARY)", "CAST(NULL AS BINARY)", pa.binary()),
        ("coded", "coded", pa.dictionary(pa.int32(), pa.string())),
        ("list", "list", pa.list_(pa.int64())),
    ],
)
def test_branches_and_casts(written: str, meant: str, kind: pa.DataType) -> None:
    assert as_bound(written) == (meant, kind)


@pytest.mark.parametrize(
    ("written", "meant", "kind"),
    [
        ("ABS(i32)", "ABS(CAST(i32 AS BIGINT))", BIG),
        ("ABS(dec)", "ABS(dec)", pa.decimal128(10, 2)),
        ("ABS(u64)", "ABS(CAST(u64 AS DECIMAL(20, 0)))", pa.decimal128(20, 0)),
        ("ABS(NULL)", "ABS(NULL)", FLOAT),
        ("FLOOR(i8)", "FLOOR(CAST(i8 AS BIGINT))", BIG),
        ("CEIL(dec)", "CEIL(CAST(dec AS DOUBLE))", FLOAT),
        ("ROUND(f32)", "ROUND(CAST(f32 AS DOUBLE))", FLOAT),
        ("SQRT(4)", "SQRT(4.0)", FLOAT),
        ("LOWER(large)", "LOWER(CAST(large AS VARCHAR))", TEXT),
        ("LENGTH(coded)", "LENGTH(CAST(coded AS VARCHAR))", BIG),
        ("SUBSTRING(text, 1, i32)", "SUBSTRING(text, 1, CAST(i32 AS BIGINT))", TEXT),
        ("text || 'x' || coded", "CONCAT(text, 'x', CAST(coded AS VARCHAR))", TEXT),
        ("REPLACE(text, 'a', NULL)", "REPLACE(text, 'a', NULL)", TEXT),
        ("STARTS_WITH(text, 'a')", "STARTS_WITH(text, 'a')", BOOL),
        ("COALESCE(i32, 5)", "COALESCE(CAST(i32 AS BIGINT), 5)", BIG),
        ("COALESCE(ts, '2024-01-01')", "COALESCE(ts, TIMESTAMP '2024-01-01 00:00:00')", pa.timestamp("us")),
        ("NULLIF(text, '')", "NULLIF(text, '')", TEXT),
        ("GREATEST(i32, i8, 1.5)", "GREATEST(CAST(i32 AS DOUBLE), CAST(i8 AS DOUBLE), 1.5)", FLOAT),
        ("LEAST(day, ts)", "LEAST(CAST(day AS TIMESTAMP), ts)", pa.timestamp("us")),
        ("YEAR(day)", "YEAR(CAST(day AS TIMESTAMP))", BIG),
        ("HOUR(ts_paris)", "HOUR(CAST(ts_paris AS timestamp[ns, tz=UTC]))", BIG),
        ("MINUTE(ts_s)", "MINUTE(ts_s)", BIG),
        ("DAY('2024-01-05')", "DAY(TIMESTAMP '2024-01-05 00:00:00')", BIG),
        ("COUNT(*)", "COUNT(*)", BIG),
        ("COUNT(list)", "COUNT(list)", BIG),
        ("SUM(i8)", "SUM(CAST(i8 AS BIGINT))", BIG),
        ("SUM(u64)", "SUM(CAST(u64 AS DECIMAL(38, 0)))", pa.decimal128(38, 0)),
        ("SUM(dec)", "SUM(CAST(dec AS DECIMAL(38, 2)))", pa.decimal128(38, 2)),
        ("SUM(f32)", "SUM(CAST(f32 AS DOUBLE))", FLOAT),
        ("SUM(span)", "SUM(span)", pa.duration("ms")),
        ("AVG(i64)", "AVG(i64)", FLOAT),
        ("AVG(dec)", "AVG(CAST(dec AS DECIMAL(38, 2)))", FLOAT),
        ("MIN(coded)", "MIN(CAST(coded AS VARCHAR))", TEXT),
        ("MAX(i8)", "MAX(i8)", pa.int8()),
        ("MAX(flag)", "MAX(flag)", BOOL),
        ("SUM(i64) / COUNT(*)", "CAST(SUM(i64) AS DOUBLE) / CAST(COUNT(*) AS DOUBLE)", FLOAT),
    ],
)
def test_functions_and_aggregates(written: str, meant: str, kind: pa.DataType) -> None:
    assert as_bound(written) == (meant, kind)


@pytest.mark.parametrize(
    ("expression", "message", "place"),
    [
        ("text = 5", "= cannot combine VARCHAR and BIGINT", "text = 5"),
        ("i64 = '5'", "= cannot combine BIGINT and VARCHAR", "i64 = '5'"),
        ("flag = 1", "= cannot combine BOOLEAN and BIGINT", "flag = 1"),
        ("raw = 'x'", "= cannot combine BINARY and VARCHAR", "raw = 'x'"),
        ("ts > 5", "> cannot combine TIMESTAMP and BIGINT", "ts > 5"),
        ("ts > text", "> cannot combine TIMESTAMP and VARCHAR", "ts > text"),
        ("clock = ts", "= cannot combine time64[us] and TIMESTAMP", "clock = ts"),
        ("list = list", "= cannot take a list<item: int64>", "list"),
        ("struct IN (1)", "IN cannot take a struct<x: int64>", "struct"),
        ("i64 IN (1, 'x')", "IN cannot combine BIGINT and VARCHAR", "i64 IN (1, 'x'"),
        ("day = '2024-01-01 10:00'", "this is not a date", "'2024-01-01 10:00'"),
        ("clock = '25:00'", "this is not a time of day", "'25:00'"),
        (
            "CAST(1 AS DECIMAL(38, 30)) * CAST(1 AS DECIMAL(38, 30))",
            "DECIMAL(38, 30) and DECIMAL(38, 30) together need a DECIMAL of 60 digits; 38 is the most",
            "CAST(1 AS DECIMAL(38, 30)) * CAST(1 AS DECIMAL(38, 30))",
        ),
        (
            "wide = CAST(1 AS DECIMAL(38, 0))",
            "DECIMAL(38, 4) and DECIMAL(38, 0) together need a DECIMAL of 42 digits; 38 is the most",
            "wide = CAST(1 AS DECIMAL(38, 0))",
        ),
        ("dec % 2", "% takes integers and floating-point numbers, not a DECIMAL(10, 2)", "dec"),
        ("text + 'x'", "VARCHAR + VARCHAR is not defined", "text + 'x'"),
        ("text + 1", "VARCHAR + BIGINT is not defined", "text + 1"),
        ("ts + 5", "TIMESTAMP + BIGINT is not defined", "ts + 5"),
        ("ts + ts", "TIMESTAMP + TIMESTAMP is not defined", "ts + ts"),
        ("INTERVAL 1 DAY - ts", "duration[us] - TIMESTAMP is not defined", "INTERVAL 1 DAY - ts"),
        ("span * 2", "duration[ms] * BIGINT is not defined", "span * 2"),
        ("flag + 1", "BOOLEAN + BIGINT is not defined", "flag + 1"),
        ("-text", "minus takes a number, not a VARCHAR", "-text"),
        ("-span", "minus takes a number, not a duration[ms]", "-span"),
        ("NOT i64", "NOT takes a condition, not a BIGINT", "i64"),
        ("flag AND i64", "AND takes a condition, not a BIGINT", "i64"),
        ("i64 OR flag", "OR takes a condition, not a BIGINT", "i64"),
        ("CASE WHEN i64 THEN 1 END", "WHEN takes a condition, not a BIGINT", "i64"),
        ("CASE WHEN flag THEN 'x' ELSE 1 END", "CASE cannot combine VARCHAR and BIGINT", "'x' ELSE 1"),
        ("i64 LIKE 'x'", "LIKE takes a string, not a BIGINT", "i64"),
        ("LENGTH(i64)", "LENGTH takes a string, not a BIGINT", "i64"),
        ("text || i64", "CONCAT takes a string, not a BIGINT", "i64"),
        ("SUBSTRING(text, 1.5)", "SUBSTRING takes an integer, not a DOUBLE", "1.5"),
        ("ABS(text)", "ABS takes a number, not a VARCHAR", "text"),
        ("SQRT(flag)", "SQRT takes a number, not a BOOLEAN", "flag"),
        ("YEAR(i64)", "YEAR takes a date or timestamp, not a BIGINT", "i64"),
        ("YEAR('soon')", "this is not a timestamp", "'soon'"),
        ("SUM(text)", "SUM takes a number, not a VARCHAR", "text"),
        ("SUM(flag)", "SUM takes a number, not a BOOLEAN", "flag"),
        ("AVG(span)", "AVG takes a number, not a duration[ms]", "span"),
        ("MAX(list)", "MAX cannot take a list<item: int64>", "list"),
        ("CAST(list AS VARCHAR)", "a list<item: int64> cannot be cast to VARCHAR", "list"),
        ("CAST(ts AS BIGINT)", "a TIMESTAMP cannot be cast to BIGINT", "ts"),
        ("CAST(flag AS DATE)", "a BOOLEAN cannot be cast to DATE", "flag"),
    ],
)
def test_a_type_error_points_at_its_place(expression: str, message: str, place: str) -> None:
    error = bind_error(f"SELECT {expression} AS e FROM kinds [ROWS 5] AS k")
    assert error.message == message
    assert underlined_text(error) == place


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("WHERE i64", "WHERE takes a condition, not a BIGINT"),
        ("GROUP BY flag HAVING COUNT(*)", "HAVING takes a condition, not a BIGINT"),
    ],
)
def test_where_and_having_take_conditions(clause: str, message: str) -> None:
    assert bind_error(f"SELECT flag FROM kinds [ROWS 5] {clause}").message == message

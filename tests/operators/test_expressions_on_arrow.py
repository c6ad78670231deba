"""Expressions on columns: single cases. `test_expressions_against_oracle` compares all of them with the oracle."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.algebra.expressions import (
    Aggregate,
    And,
    Arithmetic,
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
    Or,
)
from watersmeet.errors import InternalError, QueryError
from watersmeet.operators.expressions import evaluate, is_true

NAN = math.nan
MOST = 2**63 - 1


def column(name: str) -> Column:
    return Column(name, source="s")


def int_literal(value: int | None) -> Literal:
    return Literal(value, pa.int64())


def text(value: str | None) -> Literal:
    return Literal(value, pa.string())


def values(expr: Expr, **columns: Any) -> list[Any]:
    """The expression's values over the given columns (lists or arrays)."""
    arrays = {name: data if isinstance(data, pa.Array) else pa.array(data) for name, data in columns.items()}
    length = len(next(iter(arrays.values()), [0]))
    found = evaluate(expr, lambda wanted: arrays[wanted.name], length)
    assert isinstance(found, pa.Array)
    assert len(found) == length
    return list(found.to_pylist())


# --- comparisons ---


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("=", [True, False, False, True, None]),
        ("<>", [False, True, True, False, None]),
        ("<", [False, False, True, False, None]),
        (">", [False, True, False, False, None]),
        ("<=", [True, False, True, True, None]),
        (">=", [True, True, False, True, None]),
    ],
)
def test_nan_equals_nan_and_is_above_every_number(op: str, wanted: list[bool | None]) -> None:
    compared = Comparison(op, column("x"), column("y"))
    assert values(compared, x=[NAN, NAN, math.inf, -0.0, NAN], y=[NAN, math.inf, NAN, 0.0, None]) == wanted


def test_a_constant_nan_is_a_nan_too() -> None:
    assert values(Comparison("<", column("x"), Literal(NAN, pa.float64())), x=[1.0, NAN, None]) == [True, False, None]


def test_in_is_null_when_nothing_equals_and_something_is_null() -> None:
    options = (int_literal(1), Cast(Literal(None, pa.null()), pa.int64()))
    assert values(In(column("x"), options), x=[1, 2, None]) == [True, None, None]


def test_in_finds_nan_and_negative_zero() -> None:
    options = tuple(Literal(value, pa.float64()) for value in (NAN, 0.0))
    assert values(In(column("x"), options), x=[NAN, -0.0, 1.0]) == [True, True, False]


def test_in_takes_columns_and_constants() -> None:
    assert values(In(column("x"), (column("y"), int_literal(7))), x=[1, 7, 3, 3], y=[1, 0, None, 0]) == [
        True,
        True,
        None,
        False,
    ]


def test_untyped_nulls_compare_to_null() -> None:
    null = Literal(None, pa.null())
    assert values(Comparison("=", null, null), x=[1, 2]) == [None, None]


def test_is_true_treats_null_as_false() -> None:
    found = is_true(Comparison("<", column("x"), int_literal(2)), lambda _: pa.array([1, 2, None]), 3)
    assert found.dtype == np.bool_
    assert found.tolist() == [True, False, False]
    assert is_true(Literal(None, pa.null()), lambda _: pa.array([]), 2).tolist() == [False, False]


# --- numbers ---


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        (Arithmetic("+", column("x"), int_literal(1)), r"s\.x \+ 1"),
        (Arithmetic("*", column("x"), column("x")), r"s\.x \* s\.x"),
        (Arithmetic("-", Negate(column("x")), int_literal(2)), r"-s\.x - 2"),
    ],
)
def test_integer_overflow_is_an_error_that_shows_the_expression(expr: Expr, shown: str) -> None:
    with pytest.raises(QueryError, match=f"integer overflow in {shown}"):
        values(expr, x=[MOST])


def test_the_smallest_integer_has_no_absolute_value() -> None:
    with pytest.raises(QueryError, match="integer overflow"):
        values(Call("ABS", (column("x"),)), x=[-MOST - 1])


def test_nulls_do_not_hide_an_overflow_and_null_rows_do_not_raise() -> None:
    total = Arithmetic("+", column("x"), column("y"))
    assert values(total, x=[MOST, 1], y=pa.array([None, 1], pa.int64())) == [None, 2]


def test_division_by_zero_is_null() -> None:
    assert values(Arithmetic("/", column("x"), column("y")), x=[1.0, 0.0, NAN, 1.0], y=[0.0, -0.0, 0.0, 4.0]) == [
        None,
        None,
        None,
        0.25,
    ]


def test_the_remainder_has_the_sign_of_the_dividend() -> None:
    rest = Arithmetic("%", column("x"), column("y"))
    assert values(rest, x=[7, -7, 7, -7, 7, -MOST - 1], y=[3, 3, -3, -3, 0, -1]) == [1, -1, 1, -1, None, 0]
    assert values(rest, x=[5.5, -5.5, 1.0], y=[2.0, 2.0, 0.0]) == [1.5, -1.5, None]
    assert values(rest, x=[Decimal("5.5"), Decimal("-5.5")], y=[Decimal("2.0"), Decimal("0.0")]) == [
        Decimal("1.5"),
        None,
    ]


def test_rounding_goes_half_away_from_zero() -> None:
    halves = [0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994]
    assert values(Call("ROUND", (column("x"),)), x=halves) == [1.0, -1.0, 2.0, 3.0, -3.0, 0.0]
    assert values(Call("FLOOR", (column("x"),)), x=[3, -3]) == [3, -3]


def test_decimals_stay_exact() -> None:
    total = Arithmetic("+", column("x"), column("y"))
    assert values(total, x=[Decimal("0.1")], y=[Decimal("0.2")]) == [Decimal("0.3")]


# --- conditions ---


def test_case_evaluates_a_branch_only_on_the_rows_that_take_it() -> None:
    doubled = Arithmetic("*", column("x"), int_literal(2))
    guarded = Case(((Comparison("<", column("x"), int_literal(100)), doubled),), int_literal(-1))
    assert values(guarded, x=[MOST, 4, None]) == [-1, 8, -1]


def test_and_or_and_coalesce_raise_only_for_rows_that_reach_the_argument() -> None:
    small = Comparison("<", column("x"), int_literal(100))
    fine = Comparison(">", Arithmetic("*", column("x"), int_literal(2)), int_literal(5))
    assert values(And((small, fine)), x=[MOST, 4, 1]) == [False, True, False]
    assert values(Or((Comparison(">=", column("x"), int_literal(100)), fine)), x=[MOST, 4, 1]) == [True, True, False]
    assert values(
        Call("COALESCE", (column("y"), Arithmetic("*", column("x"), int_literal(2)))), x=[MOST, 4], y=[1, None]
    ) == [1, 8]
    with pytest.raises(QueryError, match="overflow"):
        values(And((fine, small)), x=[MOST])


def test_a_constant_overflow_that_no_row_reaches_does_not_raise() -> None:
    constant = Arithmetic("+", int_literal(MOST), int_literal(1))
    assert values(constant, x=[]) == []
    never = Comparison("<", column("x"), int_literal(0))
    assert values(Case(((never, constant),), int_literal(0)), x=[1, 2]) == [0, 0]


def test_case_without_else_is_null_and_keeps_its_type() -> None:
    expr = Case(((Comparison("=", column("x"), int_literal(1)), text("one")),))
    assert values(expr, x=[2, 1]) == [None, "one"]
    assert evaluate(expr, lambda _: pa.array([], pa.int64()), 0).type == pa.string()


def test_greatest_skips_nulls_and_puts_nan_on_top() -> None:
    assert values(Call("GREATEST", (column("x"), column("y"))), x=[1.0, None, 1.0], y=[NAN, 2.0, None])[1:] == [
        2.0,
        1.0,
    ]
    assert math.isnan(values(Call("GREATEST", (column("x"), column("y"))), x=[1.0], y=[NAN])[0])
    assert values(Call("LEAST", (column("x"), column("y"))), x=[1.0, None], y=[NAN, 2.0]) == [1.0, 2.0]


# --- text ---


def test_upper_follows_pythons_rules() -> None:
    assert values(Call("UPPER", (column("x"),)), x=["straße", None, "abc"]) == ["STRASSE", None, "ABC"]


@pytest.mark.parametrize(
    ("start", "count", "wanted"),
    [
        (2, 3, "tre"),
        (0, 2, "st"),
        (1, None, "stream"),
        (-2, None, "am"),
        (-2, 5, "am"),
        (-3, 2, "ea"),
        (-8, 3, "s"),
        (9, 2, ""),
        (2, 0, ""),
        (2, -1, ""),
        (2, MOST, "tream"),
    ],
)
def test_substring_counts_from_one_and_from_the_end(start: int, count: int | None, wanted: str) -> None:
    positions = (start,) if count is None else (start, count)
    constant = Call("SUBSTRING", (column("x"), *(int_literal(position) for position in positions)))
    varying = Call("SUBSTRING", (column("x"), *(column(f"p{number}") for number in range(len(positions)))))
    assert values(constant, x=["stream"]) == [wanted]
    assert values(varying, x=["stream"], **{f"p{number}": [position] for number, position in enumerate(positions)}) == [
        wanted
    ]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a%", "a\nb", "ba"),
        ("_", "日", "日本"),
        (r"10\%", "10%", "100"),
        ("a.c", "a.c", "abc"),
        ("", "", "a"),
        ("%%b_%", "xxbxx", "b"),
        ("\\", "\\", ""),
        ("(a|b)*", "(a|b)*", "a"),
        ("\0", "\0", "0"),
    ],
)
def test_like_is_anchored_and_escapes_regular_expressions(pattern: str, matching: str, other: str) -> None:
    assert values(Like(column("x"), pattern), x=[matching, other, None]) == [True, False, None]


def test_a_pattern_of_absurd_length_is_refused() -> None:
    with pytest.raises(QueryError, match="too long"):
        values(Like(column("x"), "_" * 1_000_000), x=["a"])


def test_arguments_that_differ_by_row_are_evaluated_per_row() -> None:
    texts, parts = ["ab", "ab", "cd", "ab", None], ["a", "b", "c", "a", "a"]
    assert values(Call("STARTS_WITH", (column("x"), column("y"))), x=texts, y=parts) == [True, False, True, True, None]
    replaced = Call("REPLACE", (column("x"), column("y"), text("-")))
    assert values(replaced, x=texts, y=parts) == ["-b", "a-", "-d", "-b", None]


def test_concat_is_null_if_any_part_is() -> None:
    assert values(Call("CONCAT", (column("x"), text("-"), column("y"))), x=["a", "b"], y=["c", None]) == ["a-c", None]


def test_replace_with_an_empty_search_changes_nothing() -> None:
    assert values(Call("REPLACE", (column("x"), text(""), text("z"))), x=["ab", None]) == ["ab", None]


# --- casts ---


@pytest.mark.parametrize(
    ("data", "kind", "wanted"),
    [
        ([1.9, -1.9, None], pa.int32(), [1, -1, None]),
        ([Decimal("1.9"), Decimal("-1.9")], pa.int64(), [1, -1]),
        (["12", "+4", " 5", "x", "1.5", "0x10", "9" * 30, "9" * 5_000, None], pa.int64(), [12, 4, *[None] * 7]),
        (["1e3", ".5", "nan", "1_0", ""], pa.float64(), [1000.0, 0.5, None, None, None]),
        (["1.255", "x"], pa.decimal128(5, 2), [Decimal("1.26"), None]),
        (["true", "FALSE", "yes"], pa.bool_(), [True, False, None]),
        ([True, None], pa.string(), ["true", None]),
        ([dt.date(2020, 2, 29)], pa.string(), ["2020-02-29"]),
        ([dt.date(1970, 1, 2)], pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 2, tzinfo=dt.UTC)]),
        (["1970-01-01T01:00+01:00", "soon"], pa.timestamp("us"), [dt.datetime(1970, 1, 1), None]),
        ([2**53 + 1], pa.float64(), [float(2**53)]),
        ([1e300], pa.float32(), [math.inf]),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.nulls(2), pa.timestamp("us"), [None, None]),
        (pa.array([-1], pa.timestamp("ns")), pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    ],
)
def test_casts(data: Any, kind: pa.DataType, wanted: list[Any]) -> None:
    assert values(Cast(column("x"), kind), x=data) == wanted


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ([NAN], pa.int64()),
        ([math.inf], pa.int64()),
        ([2.0**63], pa.int64()),
        ([300], pa.int8()),
        ([-1], pa.uint8()),
        ([Decimal("1e20")], pa.int64()),
        ([NAN], pa.decimal128(5, 2)),
        ([1234], pa.decimal128(5, 2)),
        (pa.array([2**62], pa.timestamp("s")), pa.timestamp("us")),
    ],
)
def test_a_number_that_does_not_fit_is_an_error(data: Any, kind: pa.DataType) -> None:
    with pytest.raises(QueryError, match="does not fit into"):
        values(Cast(column("x"), kind), x=data)


# --- time ---


def test_parts_of_a_time_are_those_in_utc() -> None:
    zoned = pa.array([0], pa.timestamp("us", "America/New_York"))
    assert [values(Call(part, (column("x"),)), x=zoned)[0] for part in ("YEAR", "MONTH", "DAY", "HOUR")] == [
        1970,
        1,
        1,
        0,
    ]
    far = pa.array([2**60, -1, None], pa.timestamp("us"))
    assert values(Call("YEAR", (column("x"),)), x=far) == [38504, 1969, None]
    assert values(Call("SECOND", (column("x"),)), x=far)[1:] == [59, None]


def test_time_that_leaves_its_range_is_an_error() -> None:
    late = pa.array([MOST], pa.timestamp("us"))
    with pytest.raises(QueryError, match="time out of range"):
        values(Arithmetic("+", column("x"), Literal(dt.timedelta(days=1), pa.duration("us"))), x=late)


# --- the evaluator ---


def test_a_constant_becomes_one_array_of_the_requested_length() -> None:
    assert values(int_literal(7), x=["a", "b"]) == [7, 7]
    assert values(IsNull(int_literal(7)), x=["a", "b"]) == [False, False]


def test_aggregates_and_unknown_functions_are_internal_errors() -> None:
    with pytest.raises(InternalError, match="Aggregate"):
        values(Aggregate("COUNT"), x=[1])
    with pytest.raises(InternalError, match="REFLECT"):
        values(Call("REFLECT", (column("x"),)), x=[1])


def test_a_column_of_the_wrong_length_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="has 2 values for 3 rows"):
        evaluate(column("x"), lambda _: pa.array([1, 2]), 3)

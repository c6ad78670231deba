"""Expressions on one row, written as nodes of the algebra."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.oracle import Instant, evaluate
from watersmeet.algebra.expressions import (
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
)
from watersmeet.errors import QueryError

NAN, INF = math.nan, math.inf
TRUE, FALSE, NULL = True, False, None


def value(of: Any) -> Expr:
    return Literal(of, pa.scalar(of).type)


def compute(op: str, left: Any, right: Any) -> Any:
    return evaluate(Arithmetic(op, value(left), value(right)), {})


def call(name: str, *args: Any) -> Any:
    return evaluate(Call(name, tuple(value(arg) for arg in args)), {})


def cast(of: Any, kind: pa.DataType) -> Any:
    return evaluate(Cast(value(of), kind), {})


@pytest.mark.parametrize(
    ("left", "op", "right", "truth"),
    [
        (1, "=", 1, TRUE),
        (1, "=", None, NULL),
        (None, "<>", None, NULL),
        (NAN, "=", NAN, TRUE),
        (NAN, "<>", NAN, FALSE),
        (NAN, ">", INF, TRUE),
        (NAN, ">", NAN, FALSE),
        (NAN, ">=", NAN, TRUE),
        (INF, "<", NAN, TRUE),
        (-0.0, "=", 0.0, TRUE),
        (-0.0, "<", 0.0, FALSE),
        ("Z", "<", "a", TRUE),
        ("\uffff", "<", "\U00010000", TRUE),
        ("", "<", "a", TRUE),
        (b"\x7f", "<", b"\x80", TRUE),
        (False, "<", True, TRUE),
        (Decimal("1.50"), "=", Decimal("1.5"), TRUE),
        (dt.date(1970, 1, 2), ">", dt.date(1970, 1, 1), TRUE),
    ],
)
def test_comparisons(left: Any, op: str, right: Any, truth: bool | None) -> None:
    assert evaluate(Comparison(op, value(left), value(right)), {}) is truth


@pytest.mark.parametrize("left", [TRUE, FALSE, NULL])
@pytest.mark.parametrize("right", [TRUE, FALSE, NULL])
def test_three_valued_logic(left: bool | None, right: bool | None) -> None:
    both, either = (evaluate(junction((value(left), value(right))), {}) for junction in (And, Or))
    assert both is (False if FALSE in (left, right) else None if NULL in (left, right) else True)
    assert either is (True if TRUE in (left, right) else None if NULL in (left, right) else False)
    assert evaluate(Not(value(left)), {}) is (None if left is None else not left)


def test_and_stops_at_the_first_false_so_later_operands_cannot_raise() -> None:
    overflow = Comparison("=", Arithmetic("+", value(2**63 - 1), value(1)), value(0))
    assert evaluate(And((value(False), overflow)), {}) is False
    assert evaluate(Or((value(True), overflow)), {}) is True
    with pytest.raises(QueryError, match="integer overflow"):
        evaluate(And((value(None), overflow)), {})


@pytest.mark.parametrize(
    ("left", "op", "right", "result"),
    [
        (1, "+", None, None),
        (7, "/", 2, 3.5),
        (7, "/", 0, None),
        (0.0, "/", -0.0, None),
        (7, "%", 3, 1),
        (-7, "%", 3, -1),
        (7, "%", -3, 1),
        (7, "%", 0, None),
        (-7.5, "%", 2.0, -1.5),
        (1.0, "%", 0.0, None),
        (Decimal("0.1"), "+", Decimal("0.2"), Decimal("0.3")),
        (
            Decimal("9999999999999999999999999999999999.99"),
            "*",
            Decimal("9.9"),
            Decimal("98999999999999999999999999999999999.901"),
        ),
        (Decimal("-7.5"), "%", Decimal("2"), Decimal("-1.5")),
        (1e308, "*", 10.0, INF),
    ],
)
def test_arithmetic(left: Any, op: str, right: Any, result: Any) -> None:
    assert compute(op, left, right) == result


def test_the_remainder_of_infinity_is_not_a_number() -> None:
    assert math.isnan(compute("%", INF, 2.0))
    assert compute("%", 1.0, INF) == 1.0


@pytest.mark.parametrize(("left", "op", "right"), [(2**63 - 1, "+", 1), (-(2**63), "-", 1), (2**62, "*", 2)])
def test_integers_never_wrap(left: int, op: str, right: int) -> None:
    with pytest.raises(QueryError, match="integer overflow"):
        compute(op, left, right)


def test_the_smallest_integer_has_no_opposite() -> None:
    for expr in (Negate(value(-(2**63))), Call("ABS", (value(-(2**63)),))):
        with pytest.raises(QueryError, match="integer overflow"):
            evaluate(expr, {})


@pytest.mark.parametrize(
    ("arg", "options", "truth"),
    [(1, [1, None], TRUE), (2, [1, None], NULL), (2, [1, 3], FALSE), (None, [1], NULL), (NAN, [NAN], TRUE)],
)
def test_in(arg: Any, options: list[Any], truth: bool | None) -> None:
    assert evaluate(In(value(arg), tuple(value(option) for option in options)), {}) is truth


@pytest.mark.parametrize(
    ("arg", "low", "high", "truth"),
    [(1, 1, 1, TRUE), (1, 2, None, FALSE), (1, 0, None, NULL), (3, 1, 2, FALSE), (None, 0, 1, NULL)],
)
def test_between(arg: Any, low: Any, high: Any, truth: bool | None) -> None:
    assert evaluate(Between(value(arg), value(low), value(high)), {}) is truth


@pytest.mark.parametrize(
    ("text", "pattern", "truth"),
    [
        ("abc", "abc", TRUE),
        ("abc", "a%", TRUE),
        ("abc", "%c", TRUE),
        ("abc", "%b%", TRUE),
        ("abc", "a_c", TRUE),
        ("abc", "_", FALSE),
        ("", "%", TRUE),
        ("", "_", FALSE),
        ("", "", TRUE),
        ("a%", r"a\%", TRUE),
        ("ab", r"a\%", FALSE),
        ("a\\", r"a\\", TRUE),
        ("a\nb", "a%b", TRUE),
        ("aXbXc", "%X%X%", TRUE),
        ("é", "_", TRUE),
        ("ABC", "abc", FALSE),
        ("a.c", "a.c", TRUE),
        ("abc", "a.c", FALSE),
        (None, "%", NULL),
    ],
)
def test_like(text: str | None, pattern: str, truth: bool | None) -> None:
    assert evaluate(Like(value(text), pattern), {}) is truth


def test_case_takes_the_first_true_branch_and_evaluates_no_further() -> None:
    overflow = Arithmetic("+", value(2**63 - 1), value(1))
    branches = ((value(None), value("unknown")), (value(True), value("yes")), (value(True), overflow))
    assert evaluate(Case(branches), {}) == "yes"
    assert evaluate(Case(((value(False), value(1)),)), {}) is None
    assert evaluate(Case(((value(False), value(1)),), value(2)), {}) == 2


def test_is_null_is_never_null() -> None:
    assert evaluate(IsNull(value(None)), {}) is True
    assert evaluate(IsNull(value(NAN)), {}) is False


def test_columns_are_looked_up_by_alias_and_name() -> None:
    row = {("a", "k"): 1, ("b", "k"): 2}
    assert evaluate(Column("k", "b"), row) == 2


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("ABS", [-3], 3),
        ("FLOOR", [-1.5], -2.0),
        ("CEIL", [-1.5], -1.0),
        ("ROUND", [0.5], 1.0),
        ("ROUND", [-2.5], -3.0),
        ("ROUND", [0.49999999999999994], 0.0),
        ("ROUND", [INF], INF),
        ("LENGTH", ["é"], 1),
        ("TRIM", [" \ta "], "\ta"),
        ("LTRIM", ["  a "], "a "),
        ("RTRIM", ["  a "], "  a"),
        ("SUBSTRING", ["stream", 0, 2], "st"),
        ("SUBSTRING", ["stream", 1, 2], "st"),
        ("SUBSTRING", ["stream", -2], "am"),
        ("SUBSTRING", ["stream", -2, 1], "a"),
        ("SUBSTRING", ["stream", 3, -1], ""),
        ("SUBSTRING", ["stream", 3, 0], ""),
        ("SUBSTRING", ["stream", 9], ""),
        ("CONCAT", ["a", None], None),
        ("CONCAT", ["a", "b", ""], "ab"),
        ("REPLACE", ["aaa", "aa", "b"], "ba"),
        ("REPLACE", ["aaa", "", "b"], "aaa"),
        ("STARTS_WITH", ["abc", ""], True),
        ("ENDS_WITH", ["abc", "bc"], True),
        ("CONTAINS", ["abc", "d"], False),
        ("COALESCE", [None, None, 3], 3),
        ("COALESCE", [None], None),
        ("NULLIF", [1, 1], None),
        ("NULLIF", [NAN, NAN], None),
        ("NULLIF", [1, None], 1),
        ("GREATEST", [1, None, 3], 3),
        ("LEAST", [None, 2.0, NAN], 2.0),
        ("LEAST", [None, None], None),
        ("UPPER", ["aé"], "AÉ"),
        ("YEAR", [dt.datetime(1969, 12, 31, 23, 59, 59)], 1969),
        ("SECOND", [dt.datetime(1969, 12, 31, 23, 59, 59)], 59),
        ("HOUR", [dt.date(2024, 2, 29)], 0),
        ("DAY", [dt.date(2024, 2, 29)], 29),
    ],
)
def test_functions(name: str, args: list[Any], result: Any) -> None:
    assert call(name, *args) == result


def test_nan_comes_out_of_roots_and_is_the_greatest() -> None:
    assert math.isnan(call("SQRT", -1.0))
    assert math.isnan(call("GREATEST", INF, NAN, None))


@pytest.mark.parametrize(
    ("of", "kind", "result"),
    [
        (1.9, pa.int32(), 1),
        (-1.9, pa.int32(), -1),
        (True, pa.int64(), 1),
        ("12", pa.int64(), 12),
        ("-12", pa.int8(), -12),
        ("1.5", pa.int64(), None),
        ("x", pa.int64(), None),
        ("", pa.float64(), None),
        ("1e3", pa.float64(), 1000.0),
        ("300", pa.uint8(), None),
        (0.1, pa.float32(), 0.10000000149011612),
        (1e300, pa.float32(), INF),
        (7, pa.string(), "7"),
        (False, pa.string(), "false"),
        (dt.date(2024, 2, 29), pa.string(), "2024-02-29"),
        ("TRUE", pa.bool_(), True),
        ("yes", pa.bool_(), None),
        (1.005, pa.decimal128(5, 2), Decimal("1.00")),
        ("2.345", pa.decimal128(5, 2), Decimal("2.35")),
        (dt.datetime(1969, 12, 31, 23), pa.date32(), dt.date(1969, 12, 31)),
        (dt.date(1970, 1, 2), pa.timestamp("us"), Instant(86_400_000_000_000)),
        ("1970-01-01T00:00:00.000001", pa.timestamp("us"), Instant(1_000)),
        ("tomorrow", pa.date32(), None),
        (None, pa.int64(), None),
    ],
)
def test_casts(of: Any, kind: pa.DataType, result: Any) -> None:
    assert cast(of, kind) == result


def test_a_finer_time_is_cut_off_downwards() -> None:
    moment = Column("t", "a")
    assert evaluate(Cast(moment, pa.timestamp("us")), {("a", "t"): Instant(-1)}) == Instant(-1_000)


@pytest.mark.parametrize(
    ("of", "kind"), [(NAN, pa.int64()), (1e20, pa.int64()), (300, pa.uint8()), (-1, pa.uint64()), (INF, pa.int8())]
)
def test_a_number_that_does_not_fit_is_an_error(of: Any, kind: pa.DataType) -> None:
    with pytest.raises(QueryError, match="does not fit"):
        cast(of, kind)

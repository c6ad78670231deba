"""Decimals become their nearest doubles, correctly rounded, wherever an expression, a key or an aggregate needs one."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.algebra.arrow_types import NARROW_DECIMALS
from watersmeet.operators.expressions.casts import convert
from watersmeet.operators.keys import encode_keys

HUNDREDTHS = [Decimal(cents).scaleb(-2) for cents in range(2_000)]
PRICES = pa.decimal128(7, 2)
_EXACT = Context(prec=100)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[pa.DataType, list[Decimal | None]]:
    """A decimal type and values of it: short ones, long ones, and those next to a power of two."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    digits = draw(st.sampled_from([precision, min(precision, 15), min(precision, 17)]))
    near_powers = st.builds(lambda power, off: 2**power + off, st.integers(50, 126), st.integers(-3, 3))
    unscaled = st.integers(0, 10**digits - 1) | near_powers.filter(lambda number: number <= most)
    signed = st.builds(lambda number, sign: number * sign, unscaled, st.sampled_from([1, -1]))
    values = draw(st.lists(st.none() | signed, max_size=8))
    return pa.decimal128(precision, scale), [
        None if value is None else Decimal(value).scaleb(-scale, _EXACT) for value in values
    ]


@settings(max_examples=500, deadline=None)
@given(decimals(), st.integers(0, 3))
def test_a_decimal_converts_as_python_converts_it(
    column: tuple[pa.DataType, list[Decimal | None]], skipped: int
) -> None:
    kind, values = column
    array = pa.array(values, kind).slice(skipped)
    wanted = [None if value is None else float(value) for value in values[skipped:]]
    assert convert(array, pa.float64()).to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *([(pa.decimal32(5, 2), "4.35"), (pa.decimal64(15, 3), "123456789012.345")] if NARROW_DECIMALS else []),
        (pa.decimal256(60, 30), "1.15"),
        (pa.decimal256(76, 0), "9" * 76),
        (pa.decimal128(3, -2), "12300"),
        (pa.decimal128(38, 38), "0." + "0" * 37 + "7"),
    ],
)
def test_decimals_of_any_width_and_scale_convert_exactly(kind: pa.DataType, text: str) -> None:
    assert convert(pa.array([Decimal(text), None], kind), pa.float64()).to_pylist() == [float(text), None]


def test_every_price_of_two_digits_equals_the_double_of_the_same_text() -> None:
    prices = pa.table(
        {
            "ts": pa.array(range(2_000)),
            "price": pa.array(HUNDREDTHS, PRICES),
            "same": [float(price) for price in HUNDREDTHS],
        }
    )
    streams = {"s": wm.stream(prices, time="ts")}
    assert _count("price = same", streams) == 2_000
    assert _count("price > same", streams) == 0
    assert _count("price < same", streams) == 0
    assert _count("same IN (price)", streams) == 2_000
    assert _count("price BETWEEN same AND same", streams) == 2_000
    assert _count("CASE WHEN same > 0 THEN price ELSE same END = same", streams) == 2_000
    assert _count("CAST(price AS DOUBLE) = same", streams) == 2_000
    assert _count("COALESCE(price, 0.5) = same", streams) == 2_000
    assert _count("price - same = 0", streams) == 2_000


def test_a_constant_with_a_point_selects_the_decimal_of_the_same_text() -> None:
    assert _prices("price = 1.15") == ["1.15"]
    assert _prices("price IN (1.15, 4.35)") == ["1.15", "4.35"]
    assert _prices("price > 4.34 AND price < 4.36") == ["4.35"]
    assert _prices("price > 4.35 AND price <= 4.36") == ["4.36"]
    assert _prices("price BETWEEN 1.15 AND 1.16") == ["1.15", "1.16"]
    assert _prices("price = CAST(1.15 AS DECIMAL(3, 2))") == ["1.15"]


@pytest.mark.parametrize("algorithm", ["runs", "eager-hash", "eager-nlj", "tree"])
def test_a_decimal_key_matches_the_double_key_of_the_same_text(algorithm: str) -> None:
    query = "SELECT a.price, b.same FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.price = b.same"
    chosen = HUNDREDTHS[::7]
    a = pa.table({"ts": [5] * len(chosen), "price": pa.array(chosen, PRICES)})
    b = pa.table({"ts": [5] * len(chosen), "same": [float(price) for price in chosen]})
    streams = {"a": wm.stream(a, time="ts"), "b": wm.stream(b, time="ts")}
    found = wm.collect(query, streams, plan=wm.plan(algorithm=algorithm))
    prices: list[Any] = found["price"].to_pylist()
    assert sorted(prices) == chosen


def test_codes_of_a_converted_decimal_are_the_codes_of_the_double() -> None:
    doubles = pa.array([float(price) for price in HUNDREDTHS])
    converted_prices = convert(pa.array(HUNDREDTHS, PRICES), pa.float64())
    np.testing.assert_array_equal(encode_keys(converted_prices), encode_keys(doubles))


def test_averages_of_decimals_are_the_correctly_rounded_sum_divided_by_the_count() -> None:
    values = [Decimal("4.35"), Decimal("1.15"), Decimal("8.20"), Decimal("0.57")]
    rows = pa.table({"ts": pa.array(range(4)), "k": pa.array(range(4)), "price": pa.array(values, PRICES)})
    query = """
        SELECT k, AVG(price) AS mean, AVG(price * 1.0) AS weighed FROM s [LANDMARK]
        GROUP BY k HAVING AVG(price) = MAX(price) EVERY 4 MICROSECOND
    """
    table = pa.concat_tables(
        [rows, pa.table({"ts": pa.array([4]), "k": pa.array([9]), "price": pa.array([Decimal(9)], PRICES)})]
    )
    found = wm.collect(query, {"s": wm.stream(table, time="ts")}).sort_by("k")
    assert found["mean"].to_pylist() == [*map(float, values), 9.0]
    assert found["weighed"].to_pylist() == [*map(float, values), 9.0]


def _prices(condition: str) -> list[str]:
    table = pa.table({"ts": pa.array(range(2_000)), "price": pa.array(HUNDREDTHS, PRICES)})
    found = wm.collect(f"SELECT price FROM s [LANDMARK] WHERE {condition}", {"s": wm.stream(table, time="ts")})
    return [str(price) for price in found["price"].to_pylist()]


def _count(condition: str, streams: dict[str, Any]) -> int:
    return int(wm.collect(f"SELECT price FROM s [LANDMARK] WHERE {condition}", streams).num_rows)

"""Pairs of doubles against exact fractions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.aggregation.double_double import add_pair, scale_pair, two_sum

FLOATS = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)
MODEST = st.integers(-(2**52), 2**52).map(lambda n: n / 1024)


@given(FLOATS, FLOATS)
@settings(deadline=None)
def test_a_sum_and_its_rounding_error_are_exact(a: float, b: float) -> None:
    total, lost = two_sum(a, b)
    assert Fraction(total) + Fraction(lost) == Fraction(a) + Fraction(b)


@given(st.lists(MODEST, max_size=40), st.randoms())
@settings(deadline=None)
def test_adding_and_subtracting_in_any_order_gives_zero(values: list[float], rng: object) -> None:
    high, low = 0.0, 0.0
    shuffled = list(values)
    rng.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis gives a random.Random
    for value in (*values, *(-value for value in shuffled)):
        high, low = add_pair(high, low, value, 0.0)
    assert (high, low) == (0.0, 0.0)


@given(FLOATS, st.integers(-1_000_000, 1_000_000))
@settings(deadline=None)
def test_a_pair_times_an_integer_is_exact(value: float, factor: int) -> None:
    high, low = scale_pair(value, 0.0, float(factor))
    assert Fraction(high) + Fraction(low) == Fraction(value) * factor

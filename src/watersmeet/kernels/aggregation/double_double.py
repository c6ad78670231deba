"""Sums of floats that do not drift: a pair (high, low) of doubles holds about 106 bits.

Adding a number and subtracting it again restores the sum to within 2⁻¹⁰⁴ of the largest intermediate sum. Sums of
numbers that together span less than 106 bits are exact in any order.

References: Dekker, "A floating-point technique for extending the available precision", 1971; Knuth, TAOCP 2, section
4.2.2.
"""

from __future__ import annotations

from watersmeet.kernels.compile import subroutine


@subroutine
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return the rounded sum and its rounding error: together exactly a + b."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


@subroutine
def add_pair(high: float, low: float, more_high: float, more_low: float) -> tuple[float, float]:
    total, lost = two_sum(high, more_high)
    tail, tail_lost = two_sum(low, more_low)
    total, lost = two_sum(total, lost + tail)
    return two_sum(total, lost + tail_lost)  # type: ignore[no-any-return] # a piece is Numba's


@subroutine
def scale_pair(high: float, low: float, factor: float) -> tuple[float, float]:
    """Multiply a pair by an integer. The product of the high part is split exactly, by halves of 26 bits."""
    product = high * factor
    lost = product_error(high, factor, product)
    return two_sum(product, lost + low * factor)  # type: ignore[no-any-return] # a piece is Numba's


@subroutine
def product_error(a: float, b: float, product: float) -> float:
    """Return the rounding error of a · b."""
    if abs(a) > 1e290 or abs(b) > 1e290:
        return 0.0  # splitting would overflow
    spread = a * 134217729.0  # 2²⁷ + 1
    a_high = spread - (spread - a)
    a_low = a - a_high
    spread = b * 134217729.0
    b_high = spread - (spread - b)
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low

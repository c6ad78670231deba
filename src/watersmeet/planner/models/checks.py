"""Validation of statistics, weights and orders where a value is built, so that no formula has to check them again."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import InputError, PlanError, WatersmeetError

LARGEST = 1e20


def check_positive(value: float, what: str, error: type[WatersmeetError] = InputError) -> None:
    """Require a finite number above zero.

    >>> check_positive(0, "the rate of a stream")
    Traceback (most recent call last):
    watersmeet.errors.InputError: the rate of a stream must be a number above zero, got 0

    """
    if not (is_number(value) and value > 0):
        raise error(f"{what} must be a number above zero, got {value!r}")


def check_not_negative(value: float, what: str, error: type[WatersmeetError] = InputError) -> None:
    """Require a finite number of at least zero."""
    if not (is_number(value) and value >= 0):
        raise error(f"{what} must be a number of at least zero, got {value!r}")


def check_share(value: float, what: str, error: type[WatersmeetError] = InputError) -> None:
    """Require a number from zero to one."""
    if not (is_number(value) and 0 <= value <= 1):
        raise error(f"{what} must be between zero and one, got {value!r}")


def check_selectivity(value: float, what: str) -> None:
    """Require a number above zero and at most one; a predicate that no row passes has no plan worth costing."""
    if not (is_number(value) and 0 < value <= 1):
        raise InputError(f"{what} must be above zero and at most one, got {value!r}")


def check_whole(value: int, at_least: int, what: str) -> None:
    """Require a whole number of at least `at_least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise InputError(f"{what} must be a whole number of at least {at_least}, got {value!r}")


def check_window(window_rows: float | None, window_s: float | None, what: str) -> None:
    """Require exactly one of a number of rows and a length in seconds."""
    for size in (window_rows, window_s):
        if size is not None:
            check_positive(size, what)
    if (window_rows is None) == (window_s is None):
        raise InputError(f"{what} must have either a number of rows or a length in seconds")


def check_order(order: Sequence[int], streams: int) -> None:
    """Require an order that names every stream once.

    >>> check_order((0, 2), streams=3)
    Traceback (most recent call last):
    watersmeet.errors.PlanError: an order of 3 streams names each of 0 to 2 once, got 0, 2

    """
    if len(order) != streams or set(order) != set(range(streams)):
        raise PlanError(
            f"an order of {streams} streams names each of 0 to {streams - 1} once, got {', '.join(map(str, order))}"
        )


def is_number(value: object) -> bool:
    """Return whether a statistic or a weight can have this value.

    Booleans, NaN and numbers that would overflow in a product are not valid.
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST

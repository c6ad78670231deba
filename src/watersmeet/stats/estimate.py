"""An estimate: a number with its provenance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real

from watersmeet.errors import InputError

#: Largest number of a statistic. Products of a few larger ones would overflow.
LARGEST = 1e20


class Provenance(StrEnum):
    """Origin of a number. A number is only as good as the worst number it was computed from."""

    DECLARED = "declared"
    MEASURED = "measured"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A finite number of at least zero, its provenance and, if that is not enough, a note.

    >>> print(Estimate(5000, Provenance.MEASURED), Estimate(1 / 3, Provenance.ASSUMED), sep=", ")
    5000 (measured), 0.3333 (assumed)

    """

    value: float
    provenance: Provenance
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_number(self.value, "a statistic"))

    @property
    def is_assumed(self) -> bool:
        """Whether the number is a default or was computed from one."""
        return self.provenance is Provenance.ASSUMED

    def __str__(self) -> str:
        return f"{format_number(self.value)} ({self.provenance})"


def assume(value: float, note: str) -> Estimate:
    """Return a default; the note gives the reason."""
    return Estimate(value, Provenance.ASSUMED, note)


def derive(value: float, *inputs: Estimate, note: str = "") -> Estimate:
    """Return a number computed from others: derived, or assumed if any of them is.

    >>> rate, window_s = Estimate(50, Provenance.MEASURED), Estimate(100, Provenance.DECLARED)
    >>> print(derive(rate.value * window_s.value, rate, window_s))
    5000 (derived)
    >>> print(derive(1 / 200, assume(200, "no statistics")))
    0.005 (assumed)

    """
    is_assumed = any(each.is_assumed for each in inputs)
    return Estimate(value, Provenance.ASSUMED if is_assumed else Provenance.DERIVED, note)


def check_number(value: object, what: str) -> float:
    """Return the value as a float; refuse anything but a finite number of at least zero.

    >>> check_number(float("nan"), "a rate")
    Traceback (most recent call last):
    watersmeet.errors.InputError: a rate must be a finite number of at least zero, got nan

    """
    number = _as_float(value)
    if not 0 <= number <= LARGEST:
        raise InputError(f"{what} must be a finite number of at least zero, got {format_value(value)}")
    return number


def format_number(value: float) -> str:
    """Format a number: without decimals if whole or large, otherwise with four digits.

    >>> format_number(5000.0), format_number(12345.678), format_number(0.012345)
    ('5000', '12346', '0.01235')

    """
    return f"{value:.0f}" if value.is_integer() or value >= 1000 else f"{value:.4g}"


def format_value(value: object) -> str:
    """Format a value for an error message, truncated if long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _as_float(value: object) -> float:
    """Convert to float; NaN if the value is not a number. Booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # integers are unbounded
        return math.inf

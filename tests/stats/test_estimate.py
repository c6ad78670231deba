"""Estimates: numbers with a provenance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from watersmeet.errors import InputError
from watersmeet.stats.stream_stats import Estimate, Provenance, assume, derive

ENORMOUS = pytest.param(10**5000, id="enormous")  # with an id, because Python refuses to print a number this long


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), -1, -1e-300, True, "5", None, ENORMOUS, 1e21, 1j]
)
def test_negative_huge_and_non_numeric_values_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="finite number of at least zero"):
        Estimate(value, Provenance.DECLARED)


@pytest.mark.parametrize("value", [0, 7, 2.5, np.int64(7), np.float32(0.5)])
def test_numbers_of_every_kind_become_floats(value: float) -> None:
    assert type(Estimate(value, Provenance.DECLARED).value) is float


@pytest.mark.parametrize(
    ("value", "text"),
    [(5000, "5000"), (0, "0"), (0.25, "0.25"), (1 / 3, "0.3333"), (1e15, "1000000000000000"), (123456.7, "123457")],
)
def test_an_estimate_prints_its_value_and_its_provenance(value: float, text: str) -> None:
    assert str(Estimate(value, Provenance.MEASURED)) == f"{text} (measured)"


@pytest.mark.parametrize(("first", "second"), list(itertools.product(Provenance, repeat=2)))
def test_a_number_computed_from_an_assumed_one_is_assumed_and_otherwise_derived(
    first: Provenance, second: Provenance
) -> None:
    result = derive(6, Estimate(2, first), Estimate(3, second), note="product")
    is_assumed = Provenance.ASSUMED in (first, second)
    assert result == Estimate(6, Provenance.ASSUMED if is_assumed else Provenance.DERIVED, "product")


def test_a_derived_number_is_checked_like_any_other() -> None:
    with pytest.raises(InputError):
        derive(float("nan"), assume(1, "for the test"))

"""Every mutant of the aggregation is caught by the same comparisons, within few cases."""

from __future__ import annotations

import pytest

from tests.properties.generators.aggregation_cases import generate_aggregation
from tests.properties.mutants.aggregation_mutants import AGGREGATION_MUTANTS
from tests.properties.mutants.catching_seeds import assert_caught
from tests.properties.mutants.mutant import Mutant, apply_mutant

from .test_aggregation import check_arriving, check_by_batch, check_one_batch

MAX_SEEDS = 250


@pytest.mark.parametrize("mutant", AGGREGATION_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    monkeypatch.setattr("tests.properties.test_aggregation.shrink", lambda case, fails: case)
    assert_caught("aggregation", mutant, is_caught, MAX_SEEDS)


def is_caught(seed: int) -> bool:
    """Return whether the result is wrong; a mutant that merely crashes does not count."""
    try:
        check_one_batch(generate_aggregation(seed))
        check_arriving(seed)
        check_by_batch(seed)
    except AssertionError:
        return True
    return False

"""Generated cases catch every mutant of windows of length 0."""

from __future__ import annotations

import pytest

from tests.properties.mutants.catching_seeds import assert_caught
from tests.properties.mutants.length_mutants import AGGREGATION_LENGTH_MUTANTS, JOIN_LENGTH_MUTANTS
from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.test_aggregation_mutants import is_caught as is_caught_in_groups
from tests.properties.test_join_mutants import is_caught

MAX_SEEDS = 400


@pytest.mark.parametrize(
    "mutant", [*JOIN_LENGTH_MUTANTS, *AGGREGATION_LENGTH_MUTANTS], ids=lambda mutant: mutant.mistake
)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    monkeypatch.setattr("tests.properties.test_aggregation.shrink", lambda case, fails: case)
    check = is_caught if mutant in JOIN_LENGTH_MUTANTS else is_caught_in_groups
    assert_caught("length", mutant, check, MAX_SEEDS)

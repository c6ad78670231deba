"""Generated cases catch every mutant of windows of length 0."""

from __future__ import annotations

import pytest

from tests.properties.mutants.join_mutants import Mutant
from tests.properties.mutants.length_mutants import AGGREGATION_MUTANTS, MUTANTS
from tests.properties.test_aggregation_mutants import is_caught as is_caught_in_groups
from tests.properties.test_join_mutants import is_caught

MOST_SEEDS = 400


@pytest.mark.parametrize("mutant", [*MUTANTS, *AGGREGATION_MUTANTS], ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in mutant.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.broken(getattr(patch.owner, patch.attribute)))
    monkeypatch.setattr("tests.properties.test_aggregation.shrink", lambda case, fails: case)
    check = is_caught if mutant in MUTANTS else is_caught_in_groups
    assert any(check(seed) for seed in range(MOST_SEEDS)), f"nothing catches: {mutant.mistake}"

"""Every mutant of the tests of predicates is caught, by the comparisons with the oracle, within few cases."""

from __future__ import annotations

from random import Random

import pytest

from .generators import generate, generate_timed
from .mutants import Mutant
from .mutants_predicates import MUTANTS
from .test_against_the_oracle import check_plans
from .test_errors import check_arrivals
from .test_errors import check_plans as check_raising_plans

MOST_SEEDS = 120


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in mutant.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.broken(getattr(patch.owner, patch.attribute)))
    assert any(is_caught(seed) for seed in range(MOST_SEEDS)), f"nothing catches: {mutant.mistake}"


def is_caught(seed: int) -> bool:
    """Only a wrong answer counts: a mutant that merely crashes would show nothing of the checker."""
    try:
        check_arrivals(seed)
        check_raising_plans(seed)
        check_plans(Random(seed), generate(seed) if seed % 2 else generate_timed(seed))
    except AssertionError:
        return True
    return False

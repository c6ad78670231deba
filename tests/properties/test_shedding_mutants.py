"""Check the checker: every mutant of shedding aggregations must be caught by the comparison it is meant for."""

from __future__ import annotations

import pytest

from tests.properties.mutants.join_mutants import Mutant
from tests.properties.mutants.shedding_checks import CHECKS
from tests.properties.mutants.shedding_mutants import SHEDDING_MUTANTS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_engine_passes(check: Check) -> None:
    check()


@pytest.mark.parametrize(("mutant", "check"), SHEDDING_MUTANTS, ids=[mutant.mistake for mutant, _ in SHEDDING_MUTANTS])
def test_the_mutant_is_caught(mutant: Mutant, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in mutant.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.broken(getattr(patch.owner, patch.attribute)))
    with pytest.raises(AssertionError):
        check()

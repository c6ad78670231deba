"""Every mutant of shedding aggregations is caught by its check."""

from __future__ import annotations

import pytest

from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.mutants.shedding_checks import CHECKS
from tests.properties.mutants.shedding_mutants import SHEDDING_MUTANTS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_engine_passes(check: Check) -> None:
    check()


@pytest.mark.parametrize(("mutant", "check"), SHEDDING_MUTANTS, ids=[mutant.mistake for mutant, _ in SHEDDING_MUTANTS])
def test_the_mutant_is_caught(mutant: Mutant, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    with pytest.raises(AssertionError):
        check()

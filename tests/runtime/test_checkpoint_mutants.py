"""Check the checker: every mutant of checkpoint and job breaks a law, and the code as it is breaks none."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checkpoint_checks import CHECKS, Check
from .checkpoint_mutants import MUTANTS, CheckpointMutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mutant.mistake)
def test_the_mutant_is_caught(mutant: CheckpointMutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in mutant.mutant.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.broken(getattr(patch.owner, patch.attribute)))
    # Only a broken law counts: a mutant that merely crashes would show nothing of the check.
    with pytest.raises(AssertionError):
        mutant.check(tmp_path, monkeypatch)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_code_as_it_is_keeps_the_law(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(tmp_path, monkeypatch)

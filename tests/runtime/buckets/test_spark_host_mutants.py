"""A comparison with the embedded engine catches every mutant of the Spark host, and the unchanged host passes."""

from __future__ import annotations

from pathlib import Path

import pytest

import watersmeet as wm
from tests.properties.mutants.mutant import Mutant

from .spark_host import (
    EQUI_JOIN,
    GROUPED,
    THETA,
    check_foreign_checkpoint_is_refused,
    check_labels,
    check_replay,
    check_rows_and_ledger,
)
from .spark_host_mutants import MUTANTS

SEEDS = range(4)


def check_host(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    check_labels()
    check_foreign_checkpoint_is_refused(monkeypatch, folder)
    for seed in SEEDS:
        for number, query in enumerate((EQUI_JOIN, THETA, GROUPED)):
            with monkeypatch.context() as patched:
                (folder / f"{seed}-{number}").mkdir()
                check_rows_and_ledger(query, seed, patched, folder / f"{seed}-{number}")
    check_replay(0, monkeypatch, folder)


def test_the_unchanged_host_gives_the_rows_of_the_embedded_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_host(monkeypatch, tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for patch in mutant.patches:
        monkeypatch.setattr(patch.owner, patch.attribute, patch.broken(getattr(patch.owner, patch.attribute)))
    # Any other error is a crash of the mutant, not a detected difference.
    with pytest.raises((AssertionError, wm.WatersmeetError, pytest.fail.Exception)):
        check_host(monkeypatch, tmp_path)

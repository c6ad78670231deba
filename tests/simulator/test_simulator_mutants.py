"""Check the simulator: it catches every mutant within few schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.properties.mutants.mutant import apply_mutant

from .driver import draw_schedule, run_schedule
from .simulator_mutants import MUTANTS, SimulatedMutant

#: Schedules in which a mutant has to be caught. `test_simulator.py` runs more of them on the code as it is.
SCHEDULES = 100


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.host}: {mutant.mutant.mistake}")
def test_the_mutant_is_caught(mutant: SimulatedMutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant.mutant, monkeypatch)
    with pytest.raises(AssertionError, match=r"Schedule\("):
        run_schedules(mutant, tmp_path, monkeypatch)


def run_schedules(mutant: SimulatedMutant, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SCHEDULES):
        (path / str(seed)).mkdir()
        run_schedule(draw_schedule(mutant.host, mutant.query, seed), path / str(seed), monkeypatch)

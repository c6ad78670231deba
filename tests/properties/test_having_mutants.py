"""Every mutant of HAVING and of tiles is caught.

Generated queries or the timelines of finished tiles catch it.
"""

from __future__ import annotations

import pytest

from tests.operators.aggregate import test_finished_tiles as tiles
from tests.properties.mutants.catching_seeds import assert_caught
from tests.properties.mutants.having_mutants import HAVING_MUTANTS, SHEDDING_TILE_MUTANTS, TILE_RESTART_MUTANTS
from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.test_aggregation_mutants import is_caught

MAX_SEEDS = 400


@pytest.mark.parametrize("mutant", HAVING_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught_by_generated_queries(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    monkeypatch.setattr("tests.properties.test_aggregation.shrink", lambda case, fails: case)
    assert_caught("having", mutant, is_caught, MAX_SEEDS)


@pytest.mark.parametrize("mutant", SHEDDING_TILE_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_of_a_shedding_run_is_caught_by_timelines(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    with pytest.raises(AssertionError, match="shedding"):
        _check_timelines()


@pytest.mark.parametrize("mutant", TILE_RESTART_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_of_a_restart_is_caught_by_a_timeline(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    with pytest.raises(AssertionError, match=r"bytes|parts"):
        tiles.test_the_batches_and_a_restart_between_them_change_nothing(4)


def _check_timelines() -> None:
    tiles.test_a_row_at_the_edge_belongs_to_the_tile_it_starts()
    tiles.test_the_pairs_of_a_tile_are_counted_at_its_end()
    tiles.test_tiles_joined_with_other_windows()

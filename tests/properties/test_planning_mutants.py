"""The tests of shown plans and of the grid catch every mutant of the planner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.mutants.planning_mutants import PLANNING_MUTANTS
from tests.runtime import test_shown_plan_runs as plans
from tests.runtime.buckets import test_grid_by_rates as grids

CHECKS: tuple[Callable[[Path], None], ...] = (
    lambda _: plans.test_the_plan_that_explain_shows_is_the_plan_that_runs("chain of three", "window-join"),
    lambda _: plans.test_declared_statistics_affect_both("eager-nlj"),
    lambda _: plans.test_a_band_join_runs_in_the_order_that_is_shown(),
    lambda _: plans.test_without_statistics_no_cross_product_comes_before_a_band(),
    lambda _: plans.test_a_changed_plan_is_filled_as_one_that_starts_a_run(),
    lambda _: grids.test_the_large_input_is_split_and_the_small_one_copied(grids.THETA),
    lambda _: grids.test_declared_rates_take_precedence_over_measured_ones(),
    lambda _: grids.test_copies_have_a_cost(),
    lambda folder: grids.test_a_restart_with_other_rates_keeps_its_grid(grids.THETA, folder / "restart"),
    lambda folder: grids.test_a_damaged_grid_is_refused_by_name(
        lambda text: text.replace('"share": 8', '"share": 4'), folder / "damage"
    ),
)


@pytest.mark.parametrize("mutant", PLANNING_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apply_mutant(mutant, monkeypatch)
    assert any(is_caught(check, tmp_path / str(number)) for number, check in enumerate(CHECKS)), (
        f"nothing catches: {mutant.mistake}"
    )


def test_the_planner_as_it_is_passes_all_checks(tmp_path: Path) -> None:
    assert not [number for number, check in enumerate(CHECKS) if is_caught(check, tmp_path / str(number))]


def is_caught(check: Callable[[Path], None], folder: Path) -> bool:
    """Return whether an expectation fails; a mutant that crashes does not count."""
    try:
        check(folder)
    except (AssertionError, pytest.fail.Exception):
        return True
    return False

"""Every mutant of the join is caught by the same comparisons, within few cases."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.properties.engine import assert_same, collect, collect_arriving, expected_rows
from tests.properties.generators.arrival_orders import (
    arrive_in_any_batches,
    arrive_with_late_rows,
    arrive_within_lateness,
)
from tests.properties.generators.join_cases import generate_case
from tests.properties.mutants.catching_seeds import assert_caught, seeds_for_unmodified_engine
from tests.properties.mutants.join_mutants import JOIN_MUTANTS
from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.test_against_the_oracle import SEEDS_CHECKED_IN_EVERY_WAY, check_late_rows

MAX_SEEDS = 700


def check_one_batch(seed: int) -> None:
    case = generate_case(seed)
    assert_same(case, collect(case).rows, expected_rows(case))


def check_batches(seed: int) -> None:
    case = generate_case(seed)
    assert_same(case, collect_arriving(case, arrive_in_any_batches(Random(seed), case)).rows, expected_rows(case))


def check_disorder(seed: int) -> None:
    case = generate_case(seed)
    assert_same(case, collect_arriving(case, arrive_within_lateness(Random(seed), case)).rows, expected_rows(case))


def check_lateness(seed: int) -> None:
    case = generate_case(seed)
    check_late_rows(case, arrive_with_late_rows(Random(seed), case))


CHECKS: tuple[Callable[[int], None], ...] = (check_one_batch, check_batches, check_disorder, check_lateness)


@pytest.mark.parametrize("mutant", JOIN_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    assert_caught("join", mutant, is_caught, MAX_SEEDS)


def test_the_engine_as_it_is_passes_the_cases_that_catch_the_mutants() -> None:
    """Cases of the main test are checked there, by the same comparisons."""
    others = [seed for seed in seeds_for_unmodified_engine("join", MAX_SEEDS) if seed not in SEEDS_CHECKED_IN_EVERY_WAY]
    assert not [seed for seed in others if is_caught(seed)]


def is_caught(seed: int) -> bool:
    """Return whether the result is wrong; a mutant that merely crashes does not count."""
    try:
        for check in CHECKS:
            check(seed)
    except AssertionError:
        return True
    return False

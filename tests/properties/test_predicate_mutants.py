"""Every mutant of predicate tests is caught by comparison with the oracle, within few cases."""

from __future__ import annotations

from random import Random

import pytest

from tests.properties.generators.join_cases import generate_case, generate_timed_case
from tests.properties.mutants.catching_seeds import assert_caught
from tests.properties.mutants.mutant import Mutant, apply_mutant
from tests.properties.mutants.predicate_mutants import PREDICATE_MUTANTS
from tests.properties.test_against_the_oracle import check_plans
from tests.properties.test_query_errors import check_arrivals
from tests.properties.test_query_errors import check_plans as check_raising_plans
from watersmeet.errors import QueryError

MAX_SEEDS = 200


@pytest.mark.parametrize("mutant", PREDICATE_MUTANTS, ids=lambda mutant: mutant.mistake)
def test_the_mutant_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_mutant(mutant, monkeypatch)
    assert_caught("predicate", mutant, is_caught, MAX_SEEDS)


def is_caught(seed: int) -> bool:
    """Return whether the result shows the mistake.

    It has other rows, or an error although the oracle has rows.
    """
    try:
        check_arrivals(seed)
        check_raising_plans(seed)
        check_plans(Random(seed), generate_case(seed) if seed % 2 else generate_timed_case(seed))
    except (AssertionError, QueryError):
        return True
    return False

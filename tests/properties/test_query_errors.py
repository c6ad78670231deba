"""Whether a query stops with an error depends only on the query and its rows.

Every plan and every split agree with the oracle. A failure prints its seed and the case. WATERSMEET_SEED moves the
whole run to other seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.oracle import admit
from tests.properties.engine import Rows, add_failure_note, collect, collect_arriving, expected_rows
from tests.properties.generators.arrival_orders import (
    arrive_in_any_batches,
    arrive_with_late_rows,
    arrive_within_lateness,
)
from tests.properties.generators.case_changes import make_raising
from tests.properties.generators.cases import QueryCase
from tests.properties.generators.join_cases import generate_case, generate_timed_case
from tests.properties.generators.random_plans import random_plans
from tests.properties.test_against_the_oracle import FIRST_SEED
from tests.volume import scale_volume
from watersmeet.errors import QueryError

CHUNKS = 10
SEEDS_PER_CHUNK = scale_volume(25)
PLANNED_SEEDS_PER_CHUNK = scale_volume(7)

#: The rows, or None if the query stops with an error.
Outcome = Rows | None


def rows_or_error(run: Callable[[], Rows]) -> Outcome:
    try:
        return run()
    except QueryError:
        return None


def generate_raising_case(seed: int) -> QueryCase:
    return make_raising(generate_case(seed) if seed % 2 else generate_timed_case(seed))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_plan_raises_where_the_oracle_does(chunk: int) -> None:
    for seed in _seeds(chunk, PLANNED_SEEDS_PER_CHUNK):
        check_plans(seed)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_split_and_disorder_raises_where_the_oracle_does(chunk: int) -> None:
    for seed in _seeds(chunk, SEEDS_PER_CHUNK):
        check_arrivals(seed)


def test_some_cases_raise_and_some_do_not() -> None:
    raised = [rows_or_error(lambda: expected_rows(generate_raising_case(seed))) is None for seed in range(200)]  # noqa: B023 # called at once
    assert 40 < sum(raised) < 160


def check_plans(seed: int) -> None:
    case = generate_raising_case(seed)
    wanted = rows_or_error(lambda: expected_rows(case))
    assert_same(case, rows_or_error(lambda: collect(case).rows), wanted)
    rng = Random(seed)
    for plan in random_plans(rng, case):
        with add_failure_note(f"plan {plan.to_dict()}"):
            if rng.random() < 0.5:
                assert_same(case, rows_or_error(lambda: collect(case, plan).rows), wanted)  # noqa: B023 # called at once
            else:
                arrivals = arrive_in_any_batches(rng, case)
                assert_same(case, rows_or_error(lambda: collect_arriving(case, arrivals, plan).rows), wanted)  # noqa: B023 # called at once


def check_arrivals(seed: int) -> None:
    rng, case = Random(seed), generate_raising_case(seed)
    arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
    admitted = case.with_tables(case.tables | admit(arrivals).tables)
    assert_same(
        admitted,
        rows_or_error(lambda: collect_arriving(case, arrivals).rows),
        rows_or_error(lambda: expected_rows(admitted)),
    )


def assert_same(case: QueryCase, actual: Outcome, wanted: Outcome) -> None:
    if actual != wanted:
        found, right = (
            "an error" if each is None else sorted(map(str, each.elements()))[:5] for each in (actual, wanted)
        )
        raise AssertionError(f"seed {case.seed}: gives {found}, must give {right}\n{case}")


def _seeds(chunk: int, size: int) -> range:
    return range(FIRST_SEED + chunk * size, FIRST_SEED + (chunk + 1) * size)

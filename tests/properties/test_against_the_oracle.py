"""`collect` returns the oracle's rows for every query: the main test.

A failure prints its seed, and the smallest case that still fails; `generate_case(seed)` makes the case again.
WATERSMEET_SEED moves the whole run to other seeds.
"""

from __future__ import annotations

import os
from functools import partial
from random import Random

import pytest

from tests.oracle import admit
from tests.properties.generators.arrival_orders import (
    StreamArrivals,
    arrive_in_any_batches,
    arrive_with_late_rows,
    arrive_within_lateness,
)
from tests.properties.generators.cases import QueryCase
from tests.properties.generators.join_cases import generate_case, generate_timed_case
from tests.properties.generators.random_plans import random_plans
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError

from .engine import add_failure_note, assert_same, collect, collect_arriving, expected_rows

CHUNKS = 40
SEEDS_PER_CHUNK = scale_volume(40)
PLANNED_CHUNKS = 20
PLANNED_SEEDS_PER_CHUNK = scale_volume(6)
ARRIVING_CHUNKS = 20
ARRIVING_SEEDS_PER_CHUNK = scale_volume(15)

FIRST_SEED = int(os.environ.get("WATERSMEET_SEED", "0"))

#: Seeds checked in one batch, in any batches, in any order within the lateness, and with late rows.
SEEDS_CHECKED_IN_EVERY_WAY = range(
    FIRST_SEED, FIRST_SEED + min(CHUNKS * SEEDS_PER_CHUNK, ARRIVING_CHUNKS * ARRIVING_SEEDS_PER_CHUNK)
)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_collect_gives_the_oracles_rows(chunk: int) -> None:
    for seed in _seeds(chunk, SEEDS_PER_CHUNK):
        check_one_batch(generate_case(seed))


@pytest.mark.parametrize("chunk", range(PLANNED_CHUNKS))
def test_every_plan_of_a_query_gives_the_oracles_rows(chunk: int) -> None:
    for seed in _seeds(chunk, PLANNED_SEEDS_PER_CHUNK):
        check_plans(Random(seed), generate_case(seed) if seed % 2 else generate_timed_case(seed))


@pytest.mark.parametrize("chunk", range(ARRIVING_CHUNKS))
def test_any_split_into_batches_gives_the_same_rows(chunk: int) -> None:
    for seed in _seeds(chunk, ARRIVING_SEEDS_PER_CHUNK):
        case = generate_case(seed)
        arrivals = arrive_in_any_batches(Random(seed), case)
        assert_same(case, collect_arriving(case, arrivals).rows, expected_rows(case), partial(_split_matters, seed))


@pytest.mark.parametrize("chunk", range(ARRIVING_CHUNKS))
def test_any_arrival_order_within_the_lateness_gives_the_same_rows(chunk: int) -> None:
    for seed in _seeds(chunk, ARRIVING_SEEDS_PER_CHUNK):
        case = generate_case(seed)
        answer = collect_arriving(case, arrive_within_lateness(Random(seed), case))
        assert_same(case, answer.rows, expected_rows(case))
        assert all(entry["late"] == 0 for entry in answer.ledger.values()), f"seed {seed}"


@pytest.mark.parametrize("chunk", range(ARRIVING_CHUNKS))
def test_late_rows_are_left_out_and_counted(chunk: int) -> None:
    for seed in _seeds(chunk, ARRIVING_SEEDS_PER_CHUNK):
        case = generate_case(seed)
        check_late_rows(case, arrive_with_late_rows(Random(seed), case))


def check_one_batch(case: QueryCase) -> None:
    assert_same(
        case, collect(case).rows, expected_rows(case), lambda smaller: collect(smaller).rows != expected_rows(smaller)
    )


def check_plans(rng: Random, case: QueryCase) -> None:
    """Check every plan, on the whole input or in batches."""
    expected = expected_rows(case)
    for plan in random_plans(rng, case):
        with add_failure_note(f"plan {plan.to_dict()}"):
            if rng.random() < 0.5:
                assert_same(case, collect(case, plan).rows, expected, partial(_plan_matters, plan))
            else:
                assert_same(case, collect_arriving(case, arrive_in_any_batches(rng, case), plan).rows, expected)


def check_late_rows(case: QueryCase, arrivals: StreamArrivals) -> None:
    admission = admit(arrivals)
    answer = collect_arriving(case, arrivals)
    arrived = {name: sum(batch.num_rows for batch in arrival.batches) for name, arrival in arrivals.items()}
    expected = {
        name: {"arrived": arrived[name], "kept": arrived[name] - late, "late": late, "shed": 0}
        for name, late in admission.late.items()
    }
    assert answer.ledger == expected, f"{case}\n{arrivals}"
    assert_same(case, answer.rows, expected_rows(case.with_tables(case.tables | admission.tables)))


def _plan_matters(plan: Plan, case: QueryCase) -> bool:
    try:
        return collect(case, plan).rows != expected_rows(case)
    except PlanError:  # the plan names a source that the smaller case lacks
        return False


def _split_matters(seed: int, case: QueryCase) -> bool:
    return collect_arriving(case, arrive_in_any_batches(Random(seed), case)).rows != expected_rows(case)


def _seeds(chunk: int, size: int) -> range:
    return range(FIRST_SEED + chunk * size, FIRST_SEED + (chunk + 1) * size)

"""Every plan of an aggregation emits the oracle's groups at every instant, for all batches and arrival orders.

A failure prints its seed, and the smallest case that still fails. WATERSMEET_SEED moves the whole run to other seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.oracle import admit
from tests.properties.generators.aggregation_cases import (
    AggregationCase,
    EmittedRows,
    collect_groups,
    collect_groups_arriving,
    early_plans,
    expected_groups,
    expected_groups_by_batch,
    expected_groups_by_row,
    generate_aggregation,
)
from tests.properties.generators.arrival_orders import (
    arrive_in_any_batches,
    arrive_with_late_rows,
    arrive_within_lateness,
)
from tests.properties.generators.cases import QueryCase, shrink
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.errors import WatersmeetError

from .test_against_the_oracle import FIRST_SEED

CHUNKS = 20
WHOLE_SEEDS = scale_volume(8)
ARRIVING_SEEDS = scale_volume(8)
BATCH_SEEDS = scale_volume(6)
ROW_SEEDS = scale_volume(3)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_placement_of_early_aggregation_emits_the_oracles_groups(chunk: int) -> None:
    for seed in _seeds(chunk, WHOLE_SEEDS):
        check_one_batch(generate_aggregation(seed))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_batches_disorder_and_plan_changes_do_not_change_the_rows(chunk: int) -> None:
    for seed in _seeds(chunk, ARRIVING_SEEDS):
        check_arriving(seed)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_without_every_each_batch_shows_the_groups_at_the_watermark(chunk: int) -> None:
    for seed in _seeds(chunk, BATCH_SEEDS):
        check_by_batch(seed)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_evaluation_after_every_row(chunk: int) -> None:
    for seed in _seeds(chunk, ROW_SEEDS):
        case = generate_aggregation(seed, every=False)
        assert_same(case, collect_groups(case, _some_plan(seed, case), "row"), expected_groups_by_row(case))


def check_one_batch(case: AggregationCase) -> None:
    wanted = expected_groups(case)
    for plan in early_plans(case):
        assert_same(case, collect_groups(case, plan), wanted, plan)


def check_arriving(seed: int) -> None:
    rng = Random(seed)
    case = generate_aggregation(seed)
    arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
    admitted = case.with_tables(case.tables | admit(arrivals).tables)
    assert_same(case, collect_groups_arriving(rng, case, arrivals, early_plans(case)), expected_groups(admitted))


def check_by_batch(seed: int) -> None:
    rng = Random(seed)
    case = generate_aggregation(seed, every=False)
    arrivals = rng.choice((arrive_within_lateness, arrive_with_late_rows))(rng, case)
    assert_same(
        case, collect_groups_arriving(rng, case, arrivals, early_plans(case)), expected_groups_by_batch(case, arrivals)
    )


def assert_same(
    case: QueryCase, actual: EmittedRows | None, wanted: EmittedRows | None, plan: Plan | None = None
) -> None:
    if actual == wanted:
        return
    report = [f"seed {case.seed}", case.text, f"plan {None if plan is None else plan.early}"]
    if actual is None or wanted is None:
        report.append(f"overflow: engine {actual is None}, oracle {wanted is None}")
    else:
        report.append(f"lost: {sorted(map(str, (wanted - actual).elements()))[:5]}")
        report.append(f"extra: {sorted(map(str, (actual - wanted).elements()))[:5]}")
    smallest = case if plan is None else shrink(case, _fails_by(plan))
    raise AssertionError("\n".join([*report, str(smallest)]))


def _fails_by(plan: Plan) -> Callable[[QueryCase], bool]:
    def fails(case: QueryCase) -> bool:
        try:
            return collect_groups(case, plan) != expected_groups(case)
        except WatersmeetError:  # the plan names a source that the smaller case lacks
            return False

    return fails


def _some_plan(seed: int, case: QueryCase) -> Plan:
    return Random(seed).choice(early_plans(case))


def _seeds(chunk: int, size: int) -> range:
    return range(FIRST_SEED + chunk * size, FIRST_SEED + (chunk + 1) * size)

"""State of a window join: it survives serialization, it is a value, and it does not depend on the plan."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from tests.properties.engine import Rows, expected_rows
from tests.properties.generators.arrival_orders import arrive_in_any_batches
from tests.properties.generators.cases import QueryCase
from tests.properties.generators.join_cases import generate_case
from tests.properties.generators.random_plans import random_plans
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.runtime.embedded.run import EmbeddedRun

SEEDS = scale_volume(15)


@pytest.mark.parametrize("chunk", range(4))
def test_serializing_state_after_every_batch_changes_nothing(chunk: int) -> None:
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        case = generate_case(seed)
        run, rounds = start_run(case, Random(seed))
        found: list[pa.RecordBatch] = []
        for tables in rounds:
            found += run.advance(tables)
            run.restore_state(run.save_state())
        assert result_rows(run, found + run.finish()) == expected_rows(case), f"seed {seed}"


@pytest.mark.parametrize("chunk", range(4))
def test_changing_the_plan_after_every_batch_changes_no_result(chunk: int) -> None:
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        case = generate_case(seed)
        rng = Random(seed)
        plans = [Plan(), *random_plans(rng, case)]
        run, rounds = start_run(case, rng)
        used: list[str] = []
        found: list[pa.RecordBatch] = []
        for tables in rounds:
            plan = rng.choice(plans)
            used.append(plan.algorithm)
            run.replan(plan)
            found += run.advance(tables)
        assert result_rows(run, found + run.finish()) == expected_rows(case), f"seed {seed}, plans {used}"


def test_a_batch_does_not_modify_the_state_before_it() -> None:
    for seed in range(scale_volume(50)):
        case = generate_case(seed)
        run, rounds = start_run(case, Random(seed))
        for tables in rounds:
            before, state = run.save_state(), run.state
            run.advance(tables)
            run.state = state
            assert run.save_state() == before, f"seed {seed}"
            run.advance(tables)


def start_run(case: QueryCase, rng: Random) -> tuple[EmbeddedRun, list[dict[str, pa.Table]]]:
    """Return a run to feed by hand, and its input in rounds of batches without late rows."""
    arrivals = arrive_in_any_batches(rng, case)
    sources: dict[str, wm.Stream | wm.Relation] = {
        each.name: wm.relation(each.table) for each in case.sources if each.time is None
    }
    for name, arrival in arrivals.items():
        sources[name] = wm.stream(
            case.tables[name], time=arrival.time, unit=arrival.unit, lateness=f"{arrival.lateness_us} microseconds"
        )
    longest = max((len(arrival.batches) for arrival in arrivals.values()), default=0)
    rounds = [
        {name: pa.table(arrival.batches[r]) for name, arrival in arrivals.items() if r < len(arrival.batches)}
        for r in range(longest)
    ]
    used = {source.schema.name for source in case.bound.sources}
    return wm.run(case.text, sources), [
        {name: table for name, table in tables.items() if name in used} for tables in rounds
    ]


def result_rows(run: EmbeddedRun, batches: list[pa.RecordBatch]) -> Rows:
    return as_multiset(table_rows(pa.Table.from_batches(batches, run.config.result)))

"""Shedding: the results are those over the kept rows, for every plan and every split into batches.

Every row is accounted for.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import admit
from tests.properties.generators.arrival_orders import arrive_in_any_batches, arrive_with_late_rows
from tests.properties.generators.cases import QueryCase
from tests.properties.generators.join_cases import generate_case, generate_timed_case
from tests.properties.generators.random_plans import random_plans
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.operators.shed.sampling import DropBox

from .engine import add_failure_note, assert_same, collect, collect_arriving, expected_rows

CHUNKS = 10
SEEDS_PER_CHUNK = scale_volume(6)

FIRST_SEED = int(os.environ.get("WATERSMEET_SEED", "0"))


def choose_drop_plan(rng: Random, case: QueryCase) -> Plan:
    """Choose a drop rate for some of the streams, edges included."""
    alias_of = {item.name: item.alias for item in case.items if item.name in case.streams}
    drop = tuple((alias, rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))) for alias in alias_of.values() if rng.random() < 0.8)
    return Plan(drop=drop, drop_seed=rng.randrange(5))


def list_drop_boxes(case: QueryCase, plan: Plan) -> dict[str, DropBox]:
    """Return the drop boxes by stream, from the plan alone."""
    named = {item.alias: item.name for item in case.items}
    return {named[alias]: DropBox(named[alias], 1 - share, plan.drop_seed) for alias, share in plan.drop}


def keep_rows(case: QueryCase, plan: Plan, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    boxes = list_drop_boxes(case, plan)
    return {
        name: table.filter(pa.array(boxes[name].select_kept(table))) if name in boxes else table
        for name, table in tables.items()
    }


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_plan_that_drops_gives_exactly_the_results_over_the_kept_rows(chunk: int) -> None:
    for seed in range(FIRST_SEED + chunk * SEEDS_PER_CHUNK, FIRST_SEED + (chunk + 1) * SEEDS_PER_CHUNK):
        rng, case = Random(seed), generate_case(seed) if seed % 2 else generate_timed_case(seed)
        shed = choose_drop_plan(rng, case)
        wanted = expected_rows(case.with_tables(keep_rows(case, shed, case.tables)))
        for plan in random_plans(rng, case):
            dropped = replace(plan, drop=shed.drop, drop_seed=shed.drop_seed)
            with add_failure_note(f"plan {dropped.to_dict()}"):
                whole = rng.random() < 0.5
                answer = (
                    collect(case, dropped)
                    if whole
                    else collect_arriving(case, arrive_in_any_batches(rng, case), dropped)
                )
                assert_same(case, answer.rows, wanted)
                assert all(
                    entry["arrived"] == entry["kept"] + entry["shed"] + entry["late"]
                    for entry in answer.ledger.values()
                )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_late_rows_are_counted_and_the_ledger_balances(chunk: int) -> None:
    for seed in range(FIRST_SEED + chunk * SEEDS_PER_CHUNK, FIRST_SEED + (chunk + 1) * SEEDS_PER_CHUNK):
        rng, case = Random(seed), generate_case(seed)
        shed, arrivals = choose_drop_plan(rng, case), arrive_with_late_rows(rng, case)
        admission = admit(arrivals)
        kept = keep_rows(case, shed, case.tables | admission.tables)
        answer = collect_arriving(case, arrivals, shed)
        for name, entry in answer.ledger.items():
            arrived = sum(batch.num_rows for batch in arrivals[name].batches)
            timely = arrived - admission.late[name]
            wanted = {
                "arrived": arrived,
                "kept": kept[name].num_rows,
                "shed": timely - kept[name].num_rows,
                "late": admission.late[name],
            }
            assert entry == wanted, f"seed {seed}"
        assert_same(case, answer.rows, expected_rows(case.with_tables(kept)))


def test_keeping_everything_sheds_nothing_and_a_larger_share_keeps_more() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + scale_volume(50)):
        case = generate_case(seed)
        names = [item.alias for item in case.items if item.name in case.streams and not _read_twice(case, item.name)]
        nothing, little, much = (Plan(drop=tuple((name, share) for name in names)) for share in (0.0, 0.3, 0.6))
        assert_same(case, collect(case, nothing).rows, collect(case).rows)
        if not case.bound.waits_for_watermark and not _has_counted_windows(case):
            some, few = collect(case, little).rows, collect(case, much).rows
            assert not few - some
            assert not some - collect(case).rows


def test_the_ledger_balances_after_every_batch() -> None:
    table = pa.table({"ts": list(range(100)), "k": [n % 7 for n in range(100)]})
    streams = {name: wm.stream([table.slice(at, 10) for at in range(0, 100, 10)], time="ts") for name in "ab"}
    query = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 20 MICROSECONDS], b [RANGE 20 MICROSECONDS] WHERE a.k = b.k"
    run = wm.run(query, streams, plan=wm.plan(drop={"a": 0.3}))
    totals = {name: [0, 0, 0, 0] for name in "ab"}
    for _ in run.batches():
        for name, entry in run.batch_ledger.items():
            assert entry.arrived == entry.kept + entry.shed + entry.late
            counts = (entry.arrived, entry.kept, entry.shed, entry.late)
            totals[name] = [total + count for total, count in zip(totals[name], counts, strict=True)]
    assert totals == {name: [entry.arrived, entry.kept, entry.shed, entry.late] for name, entry in run.ledger.items()}
    assert 0 < run.ledger["a"].shed < 100
    assert run.ledger["b"].shed == 0


def _read_twice(case: QueryCase, name: str) -> bool:
    return sum(item.name == name for item in case.items) > 1


def _has_counted_windows(case: QueryCase) -> bool:
    return any("ROWS" in item.window for item in case.items)

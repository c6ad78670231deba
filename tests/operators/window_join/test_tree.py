"""A tree of two-input joins: every shape gives the same rows, and node results can be lost at any time."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.operators.window_join.test_state_between_batches import result_rows, start_run
from tests.properties.engine import expected_rows
from tests.properties.generators.join_cases import generate_case
from tests.properties.generators.random_plans import random_tree_plan
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.sources.declarations import Stream

QUERY = (
    "SELECT a.id AS a, b.id AS b, c.id AS c FROM a [RANGE 10 SECONDS], b [ROWS 2], c [TUMBLE 10 SECONDS] "
    "WHERE a.k = b.k AND b.k = c.k AND a.id <= c.id + 5"
)

SEEDS = scale_volume(50)


def streams() -> dict[str, Stream]:
    rows = pa.table(
        {
            "ts": pa.array([s * 1_000_000 for s in range(30)]),
            "k": pa.array([s % 3 for s in range(30)]),
            "id": pa.array(range(30)),
        }
    )
    return {name: wm.stream(rows, time="ts") for name in "abc"}


def test_every_tree_gives_the_rows_of_grouped_runs() -> None:
    expected = sorted(wm.collect(QUERY, streams(), plan=wm.plan("runs")).to_pylist(), key=str)
    assert expected
    for tree in ((("a", "b"), "c"), ("a", ("b", "c")), (("a", "c"), "b"), ("c", ("b", "a"))):
        assert sorted(wm.collect(QUERY, streams(), plan=wm.plan(tree=tree)).to_pylist(), key=str) == expected


@pytest.mark.parametrize("chunk", range(2))
def test_losing_node_results_after_every_other_batch_changes_nothing(chunk: int) -> None:
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        case, rng = generate_case(seed), Random(seed)
        run, rounds = start_run(case, rng)
        run.replan(random_tree_plan(rng, "tree", [item.alias for item in case.items]))
        found: list[pa.RecordBatch] = []
        for number, tables in enumerate(rounds):
            found += run.advance(tables)
            if number % 2:
                run.restore_state(run.save_state())
        assert result_rows(run, found + run.finish()) == expected_rows(case), f"seed {seed}"


@pytest.mark.parametrize("chunk", range(2))
def test_plans_change_between_trees_and_runs_between_batches(chunk: int) -> None:
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        case, rng = generate_case(seed), Random(seed)
        run, rounds = start_run(case, rng)
        aliases = [item.alias for item in case.items]
        found: list[pa.RecordBatch] = []
        plan = random_tree_plan(rng, "tree", aliases)
        for tables in rounds:
            run.replan(rng.choice((plan, plan, random_tree_plan(rng, "tree", aliases), Plan())))
            found += run.advance(tables)
        assert result_rows(run, found + run.finish()) == expected_rows(case), f"seed {seed}"


def test_a_tree_counts_its_work() -> None:
    run = wm.run(QUERY, streams(), plan=wm.plan(tree=(("a", "b"), "c")))
    rows = run.collect().num_rows
    assert run.tally.probes.sum() > 0
    assert run.tally.comparisons.sum() >= run.tally.touched.sum() >= rows
    assert run.tally.inserts.sum() > 0


def test_trees_that_do_not_fit_the_query_are_refused() -> None:
    for tree in (("a", "b"), (("a", "b"), ("c", "d"))):
        with pytest.raises(PlanError, match="each source as a leaf once: a, b, c"):
            wm.run(QUERY, streams(), plan=wm.plan(tree=tree))
    with pytest.raises(PlanError, match="not a tree of joins"):
        wm.run(QUERY, streams(), plan=wm.plan("eager-nlj", tree=(("a", "b"), "c")))
    with pytest.raises(PlanError, match="has no orders"):
        wm.run(QUERY, streams(), plan=wm.plan("tree", order={"a": ["b", "c"]}))

"""Memory of plans: rows, expired rows, stored results and indexes, against the paper and against what a run holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Index
from watersmeet.operators.window_join.tactics import nested_loops
from watersmeet.planner.memory import index_bytes

EXAMPLE_1 = "SELECT A.a, B.b, C.c FROM A [ROWS 10], B [ROWS 10], C [ROWS 10] WHERE A.a = B.a AND B.b = C.b"
STATS = {
    "A": wm.stats(rate=10, predicates={"A.a = B.a": 0.5}),
    "B": wm.stats(rate=20, predicates={"B.b = C.b": 0.2}),
    "C": wm.stats(rate=70),
}
SMALLEST: Any = ("A", ("B", "C"))
LEAST_MEMORY = wm.Budget(objective="memory")


@pytest.mark.parametrize(("tree", "rows"), [((("A", "B"), "C"), 80), (SMALLEST, 50), ((("A", "C"), "B"), 130)])
def test_the_buffers_of_example_1(tree: Any, rows: int) -> None:
    cost = wm.explain(EXAMPLE_1, STATS, plan=wm.plan("tree", tree=tree)).chosen.cost
    assert cost.state_rows == pytest.approx(rows)


def test_the_objective_decides_which_tree_fills_a_pinned_plan() -> None:
    assert wm.explain(EXAMPLE_1, STATS, plan=wm.plan("tree")).plan.tree == (("A", "B"), "C")
    assert wm.explain(EXAMPLE_1, STATS, plan=wm.plan("tree"), budget=LEAST_MEMORY).plan.tree == SMALLEST


def test_the_objective_memory_tells_plans_apart_and_offers_the_smallest_tree() -> None:
    about = wm.explain(EXAMPLE_1, STATS, budget=LEAST_MEMORY)
    found = [about.chosen, *about.others]
    sizes = [each.cost.state_bytes for each in found]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 10
    assert next(each.plan.tree for each in found if each.plan.algorithm == "tree") == SMALLEST
    kinds = {part["kind"] for part in about.to_dict()["cost"]["memory"]}
    assert kinds == {"rows", "indexes"}
    assert "memory: rows 1.28 kB, indexes " in str(about)


def test_a_lazy_plan_holds_the_rows_that_wait_for_expiration() -> None:
    query = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
    stats = {name: wm.stats(rate=1000, distinct={"k": 100}, row_bytes=16) for name in ("a", "b")}
    sizes = {
        expire: wm.explain(query, stats, plan=wm.plan("lazy-nlj", evaluate=2, expire=expire)).chosen.cost
        for expire in (2, 6)
    }
    more = sizes[6].state_bytes - sizes[2].state_bytes
    width = sum(part.size_bytes for part in sizes[2].memory if part.kind == "rows") / 20_000
    assert more == pytest.approx(2 * 1000 * 2 * width)  # per stream, half of the 4 seconds more
    assert sizes[2].state_rows == sizes[6].state_rows


def test_buckets_share_the_memory_that_rows_and_indexes_leave() -> None:
    query = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
    stats = {name: wm.stats(rate=1000, distinct={"k": 5000}, row_bytes=8) for name in ("a", "b")}

    def eager_hash(memory_bytes: float | None = None) -> wm.CostedPlan:
        about = wm.explain(query, stats, budget=wm.Budget(memory_bytes=memory_bytes))
        assert any(line == "share out buckets: resized" for line in about.trace) == (memory_bytes is not None)
        return next(each for each in about.others if each.plan.algorithm == "eager-hash")

    needed = eager_hash().cost.state_bytes
    tight = eager_hash(needed - 72 * 9000)
    assert [index.size for _, index in tight.plan.indexes] == [500, 500]
    assert tight.cost.state_bytes <= needed - 72 * 9000


WINDOW_S, RATE = 10, 2000
QUERY = f"SELECT a.v, b.v AS w FROM a [RANGE {WINDOW_S} SECONDS], b [RANGE {WINDOW_S} SECONDS] WHERE a.k = b.k"


def _generate(seed: int, batch_s: float, distinct: int = 50_000) -> Iterator[pa.Table]:
    rng, rows = np.random.default_rng(seed), int(RATE * batch_s)
    for number in range(int(4 * WINDOW_S / batch_s)):
        times = number * rows + np.arange(rows)
        yield pa.table(
            {
                "ts": pa.array(times * (1_000_000 // RATE)),
                "k": pa.array(rng.integers(0, distinct, rows)),
                "v": pa.array(times),
            }
        )


def _predict(plan: wm.Plan) -> wm.PlanCost:
    stats = {name: wm.stats(rate=RATE, distinct={"k": 50_000}, row_bytes=24) for name in ("a", "b")}
    return wm.explain(QUERY, stats, plan=plan).chosen.cost


def _size(parts: wm.PlanCost, *kinds: str) -> float:
    return sum(part.size_bytes for part in parts.memory if part.kind in kinds)


@pytest.mark.parametrize("batch_s", [0.5, 1.0])
def test_predicted_rows_and_runs_match_the_state_of_a_run(batch_s: float) -> None:
    streams = {name: wm.stream(_generate(i, batch_s), time="ts", unit="us") for i, name in enumerate("ab")}
    run = wm.run(QUERY, streams, plan=wm.plan("runs"))
    rows_bytes, run_bytes = [], []
    for batch in run.batches():
        for _ in batch:
            pass
        panes = [pane for each in run.state.inputs for pane in each.panes]
        rows_bytes.append(run.state_bytes)
        run_bytes.append(
            sum(
                getattr(path, each.name).nbytes
                for pane in panes
                for path in pane._runs.values()
                for each in fields(path)
            )
        )
    steady = slice(len(rows_bytes) // 2, -2)  # full windows; the last batches end the streams
    predicted = _predict(wm.plan("runs"))
    assert np.mean(rows_bytes[steady]) == pytest.approx(_size(predicted, "rows", "expired rows"), rel=0.2)
    assert np.mean(run_bytes[steady]) == pytest.approx(_size(predicted, "indexes"), rel=0.35)


@pytest.mark.parametrize("kind", ["list", "hash(5000)", "btree(100)", "ttree(100)"])
def test_predicted_indexes_match_the_arrays_of_the_kernels(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    runner: Any = vars(nested_loops)["StageRunner"]

    def record(*args: Any, **named: Any) -> Any:
        groups = [each for each in (*args, *named.values()) if type(each).__name__ in {"LoopWindows", "LoopIndexes"}]
        sizes.append(sum(array.nbytes for group in groups for array in group))
        return runner(*args, **named)

    monkeypatch.setattr(nested_loops, "StageRunner", record)
    plan = wm.plan("window-join", indexes={"a": kind, "b": kind})
    streams = {name: wm.stream(_generate(i, 1.0), time="ts", unit="us") for i, name in enumerate("ab")}
    for batch in wm.run(QUERY, streams, plan=plan).batches():
        for _ in batch:
            pass
    # The arrays also hold the expired rows of panes.
    assert np.mean(sizes[len(sizes) // 2 : -2]) == pytest.approx(_size(_predict(plan), "indexes"), rel=0.25)
    assert np.mean(sizes[len(sizes) // 2 : -2]) > _size(_predict(plan), "indexes")


def test_a_tree_index_holds_any_history_and_a_hash_index_five_words_per_row() -> None:
    per_row = {kind: index_bytes(Index.parse(kind), 100_000) / 100_000 for kind in ("hash(1)", "btree", "ttree")}
    assert per_row["hash(1)"] == pytest.approx(40, rel=0.01)
    assert per_row["ttree"] < per_row["btree"] < per_row["hash(1)"]

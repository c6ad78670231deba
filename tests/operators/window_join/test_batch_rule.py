"""The batch rule orders inputs by their new rows: it finds every pair once and builds only runs that are probed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join import pane
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.driver import join_batch
from watersmeet.operators.window_join.pane import GroupedRun, Pane
from watersmeet.operators.window_join.state import empty_state
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
AFTER = "SELECT a.id AS a, b.id AS b FROM a, b DWINDOW (a, b) = 3 SECONDS WHERE a.k = b.k"
BATCH_US, KEPT_US = 10_000_000, 3_000_000


def build_config() -> JoinConfig:
    return compile_join_config(bind(parse(AFTER), {name: StreamSchema(name, FIELDS, "ts") for name in "ab"}), Plan())


def input_batch(batch: int, number: int, rows: int) -> InputBatch:
    rng = np.random.default_rng([batch, number, rows])
    times = np.sort(rng.integers(batch * BATCH_US, (batch + 1) * BATCH_US, rows))
    return InputBatch(
        pa.table(
            {
                "ts": pa.array(times),
                "k": pa.array(rng.integers(0, 5, rows)),
                "id": pa.array(batch * 1000 + np.arange(rows)),
            }
        ),
        times,
    )


@pytest.mark.parametrize(
    "sizes", [[(40, 300), (300, 40), (40, 300)], [(100, 100)] * 3, [(0, 50), (50, 0), (20, 20), (0, 30)]]
)
def test_every_pair_is_found_once_whichever_input_has_more_rows(sizes: list[tuple[int, int]]) -> None:
    config, found = build_config(), []
    state = empty_state(config)
    batches = [
        {number: input_batch(batch, number, rows) for number, rows in enumerate(each)}
        for batch, each in enumerate(sizes)
    ]
    for batch, new_rows in enumerate(batches):
        joined = join_batch(config, state, new_rows, batch * BATCH_US, (batch + 1) * BATCH_US)
        state = joined.state
        found += [(row["a"], row["b"]) for result in joined.results for row in result.to_pylist()]
    a, b = ([row for new_rows in batches for row in new_rows[number].table.to_pylist()] for number in (0, 1))
    expected = [(x["id"], y["id"]) for x in a for y in b if x["k"] == y["k"] and 0 <= y["ts"] - x["ts"] <= KEPT_US]
    assert sorted(found) == sorted(expected)


def test_no_run_is_built_of_rows_that_are_never_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    build = pane.build_run

    def record_build(rows: Pane, classes: tuple[int, ...]) -> GroupedRun:
        built.append(len(rows))
        return build(rows, classes)

    monkeypatch.setattr(pane, "build_run", record_build)
    config = build_config()
    state = empty_state(config)
    for batch in range(3):
        new_rows = {0: input_batch(batch, 0, 40), 1: input_batch(batch, 1, 300)}
        state = join_batch(config, state, new_rows, batch * BATCH_US, (batch + 1) * BATCH_US).state
    assert built
    assert max(built) <= 80, "runs of a only: b has more rows, and they are not stored"

"""Eviction of expired rows from panes before a checkpoint: the same results from less state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.window_join import state
from watersmeet.operators.window_join.driver import join_batch
from watersmeet.operators.window_join.state import JoinState, empty_state, evict_expired_rows
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
QUERIES = {
    "a short window": "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 SECOND], b [RANGE 2 SECONDS] WHERE a.k = b.k",
    "a very short window": (
        "SELECT a.id AS a, b.id AS b FROM a [RANGE 100 MILLISECONDS], b [RANGE 200 MILLISECONDS] WHERE a.k = b.k"
    ),
    "only after": "SELECT a.id AS a, b.id AS b FROM a, b DWINDOW (a, b) = 3 SECONDS WHERE a.k = b.k",
    "counted rows": "SELECT a.id AS a, b.id AS b FROM a [ROWS 3], b [RANGE 1 SECOND] WHERE a.k = b.k",
}
BATCH_US = 10_000_000


def input_batches(batch: int) -> dict[int, InputBatch]:
    """Return rows of ten seconds, some of them up to one second older than the batch; none is late."""
    batches = {}
    for number in (0, 1):
        rng = np.random.default_rng([batch, number])
        times = np.sort(rng.integers(max(0, batch * BATCH_US - 1_000_000), (batch + 1) * BATCH_US, 300))
        batches[number] = InputBatch(
            pa.table(
                {
                    "ts": pa.array(times),
                    "k": pa.array(rng.integers(0, 5, 300)),
                    "id": pa.array(batch * 300 + np.arange(300)),
                }
            ),
            times,
        )
    return batches


@pytest.mark.parametrize("kind", QUERIES)
def test_eviction_before_a_checkpoint_keeps_the_results(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EVICT_BELOW_SHARE", 0.0)
    config = compile_join_config(
        bind(parse(QUERIES[kind]), {name: StreamSchema(name, FIELDS, "ts") for name in "ab"}), Plan()
    )
    all_rows = evicted = empty_state(config)
    for batch in range(5):
        watermark_us, future_us = max(0, batch * BATCH_US - 1_000_000), (batch + 1) * BATCH_US - 1_000_000
        from_all = join_batch(config, all_rows, input_batches(batch), watermark_us, future_us)
        from_evicted = join_batch(config, evicted, input_batches(batch), watermark_us, future_us)
        assert _rows(from_all.results) == _rows(from_evicted.results)
        before, all_rows = evicted, from_all.state
        evicted = evict_expired_rows(config, from_evicted.state, before, future_us)
        assert evicted.rows < 0.8 * all_rows.rows
        assert _shared_panes(before, evicted) == _shared_panes(before, from_evicted.state), (
            "a pane that was written is not written again"
        )


@pytest.mark.parametrize("kind", QUERIES)
def test_expired_rows_of_a_new_pane_are_evicted_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compile_join_config(
        bind(parse(QUERIES[kind]), {name: StreamSchema(name, FIELDS, "ts") for name in "ab"}), Plan()
    )
    all_rows = evicted = empty_state(config)
    for batch in range(5):
        times_us = max(0, batch * BATCH_US - 1_000_000), (batch + 1) * BATCH_US - 1_000_000
        with monkeypatch.context() as patch:
            patch.setattr(state, "EVICT_BELOW_SHARE", 0.0)
            from_all = join_batch(config, all_rows, input_batches(batch), *times_us)
        from_evicted = join_batch(config, evicted, input_batches(batch), *times_us)
        assert _rows(from_all.results) == _rows(from_evicted.results)
        all_rows, evicted = from_all.state, from_evicted.state
        assert evicted.rows <= all_rows.rows
        if kind == "a very short window":
            assert evicted.rows < 0.25 * all_rows.rows


def _rows(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return sorted((row["a"], row["b"]) for batch in batches for row in batch.to_pylist())


def _shared_panes(before: JoinState, after: JoinState) -> set[int]:
    return {id(pane) for each in before.inputs for pane in each.panes} & {
        id(pane) for each in after.inputs for pane in each.panes
    }

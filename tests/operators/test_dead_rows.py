"""Panes cut to their living rows before they are written down: the same results from less state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.schema import StreamSchema
from watersmeet.operators.window_join import state
from watersmeet.operators.window_join.admission import InputBatch
from watersmeet.operators.window_join.driver import join_batch
from watersmeet.operators.window_join.state import JoinState, empty_state, evict_expired_rows
from watersmeet.operators.window_join.tactics.registry import compile_join_config
from watersmeet.sql import bind, parse

FIELDS = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
QUERIES = {
    "a short window": "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 SECOND], b [RANGE 2 SECONDS] WHERE a.k = b.k",
    "a very short window": "SELECT a.id AS a, b.id AS b FROM a [RANGE 100 MILLISECONDS], b [RANGE 200 MILLISECONDS] WHERE a.k = b.k",
    "only after": "SELECT a.id AS a, b.id AS b FROM a, b DWINDOW (a, b) = 3 SECONDS WHERE a.k = b.k",
    "counted rows": "SELECT a.id AS a, b.id AS b FROM a [ROWS 3], b [RANGE 1 SECOND] WHERE a.k = b.k",
}
BATCH_US = 10_000_000


def deltas(batch: int) -> dict[int, InputBatch]:
    """Rows of ten seconds, some of them up to a second older than the batch: nothing is late."""
    found = {}
    for number in (0, 1):
        rng = np.random.default_rng([batch, number])
        times = np.sort(rng.integers(max(0, batch * BATCH_US - 1_000_000), (batch + 1) * BATCH_US, 300))
        found[number] = InputBatch(
            pa.table({"ts": times, "k": rng.integers(0, 5, 300), "id": batch * 300 + np.arange(300)}), times
        )
    return found


@pytest.mark.parametrize("asked", QUERIES)
def test_the_same_results_from_less_state(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EVICT_BELOW_SHARE", 0.0)
    config = compile_join_config(
        bind(parse(QUERIES[asked]), {name: StreamSchema(name, FIELDS, "ts") for name in "ab"}), Plan()
    )
    plain = cut = empty_state(config)
    for batch in range(5):
        watermark_us, future_us = max(0, batch * BATCH_US - 1_000_000), (batch + 1) * BATCH_US - 1_000_000
        whole = join_batch(config, plain, deltas(batch), watermark_us, future_us)
        from_less = join_batch(config, cut, deltas(batch), watermark_us, future_us)
        assert _rows(whole.results) == _rows(from_less.results)
        before, plain = cut, whole.state
        cut = evict_expired_rows(config, from_less.state, before, future_us)
        assert cut.rows < 0.8 * plain.rows
        assert _known(before, cut) == _known(before, from_less.state), "what was written is not written again"


@pytest.mark.parametrize("asked", QUERIES)
def test_a_new_pane_that_is_mostly_dead_is_cut_at_once(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compile_join_config(
        bind(parse(QUERIES[asked]), {name: StreamSchema(name, FIELDS, "ts") for name in "ab"}), Plan()
    )
    plain = cut = empty_state(config)
    for batch in range(5):
        times_us = max(0, batch * BATCH_US - 1_000_000), (batch + 1) * BATCH_US - 1_000_000
        with monkeypatch.context() as never:
            never.setattr(state, "EVICT_BELOW_SHARE", 0.0)
            whole = join_batch(config, plain, deltas(batch), *times_us)
        from_less = join_batch(config, cut, deltas(batch), *times_us)
        assert _rows(whole.results) == _rows(from_less.results)
        plain, cut = whole.state, from_less.state
        assert cut.rows <= plain.rows
        if asked == "a very short window":
            assert cut.rows < 0.25 * plain.rows


def _rows(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return sorted((row["a"], row["b"]) for batch in batches for row in batch.to_pylist())


def _known(before: JoinState, after: JoinState) -> set[int]:
    return {id(pane) for each in before.inputs for pane in each.panes} & {
        id(pane) for each in after.inputs for pane in each.panes
    }

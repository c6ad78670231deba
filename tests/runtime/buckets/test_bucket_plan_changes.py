"""Buckets change their plan between batches through the operator's protocol, whichever operator they hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from tests.runtime.buckets.spark_host import (
    BATCHES,
    BUCKETS,
    EQUI_JOIN,
    GROUPED,
    WORKERS,
    build_host,
    build_stream_sources,
    generate_streams,
)

PLANS = {
    EQUI_JOIN: (None, wm.plan("eager-nlj"), wm.plan(), wm.plan("eager-nlj", order=["b", "a"])),
    GROUPED: (None, wm.plan(early=["a"]), wm.plan(early=["b"]), wm.plan()),
}


@pytest.mark.parametrize("query", [EQUI_JOIN, GROUPED])
@pytest.mark.parametrize("seed", range(3))
def test_every_batch_may_have_its_own_plan(
    query: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    streams, rng = generate_streams(seed), Random(seed)
    host = build_host(query, streams, monkeypatch)
    embedded = wm.run(query, build_stream_sources(streams), plan=wm.plan())
    for batch, plan in zip(range(BATCHES), PLANS[query], strict=True):
        host.next_plan = plan
        tables = {name: each[batch] for name, each in streams.items()}
        # A worker that ran the bucket before has decoded state of the plan before; another restores it.
        outcome = host.advance(host.pack(batch, tables), [rng.randrange(WORKERS) for _ in range(BUCKETS)])
        expected = pa.Table.from_batches(embedded.advance(tables), embedded.result)
        assert outcome.rows == Counter(as_multiset(table_rows(expected)))


def test_an_aggregation_refuses_a_plan_that_sheds_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    streams, shedding = generate_streams(0), wm.plan(drop={"a": 0.5})
    host = build_host(GROUPED, streams, monkeypatch)
    host.next_plan = shedding
    with pytest.raises(wm.PlanError, match="cannot change its drop rates while it runs"):
        host.advance(host.pack(0, {name: each[0] for name, each in streams.items()}), [0] * BUCKETS)
    with pytest.raises(wm.PlanError, match="cannot change its drop rates while it runs"):
        wm.run(GROUPED, build_stream_sources(streams), plan=wm.plan()).replan(shedding)

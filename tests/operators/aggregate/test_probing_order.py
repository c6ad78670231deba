"""The input that a change probes first, if the plan names none."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.operators.aggregate.config import build_aggregate_config
from watersmeet.sources.declarations import bind_query

QUERY = """SELECT SUM(a.v) AS total FROM a [RANGE 3 SECONDS], b [RANGE 1 SECOND], c [RANGE 2 SECONDS]
WHERE a.k = b.k AND a.k = c.k GROUP BY a.v"""
TABLE = pa.table(
    {"ts": pa.array([1, 2], pa.int64()), "k": pa.array([1, 1], pa.int64()), "v": pa.array([5, 6], pa.int64())}
)
SOURCES = {name: wm.stream(TABLE, time="ts") for name in "abc"}


@pytest.mark.parametrize(
    ("plan", "order"),
    [
        (wm.plan(), "bc"),  # the shorter window first
        (wm.plan(early=["c"]), "cb"),
        (wm.plan(early=["b"]), "bc"),
        (wm.plan(early=["b", "c"]), "bc"),
        (wm.plan(early=["a"]), "bc"),
        (wm.plan(early=["c"], order=["a", "b", "c"]), "bc"),
    ],
)
def test_inputs_aggregated_early_are_probed_first(plan: wm.Plan, order: str) -> None:
    config = build_aggregate_config(bind_query(QUERY, SOURCES), plan)
    assert "".join(config.inputs[step.target].alias for step in config.join.orders[0]) == order
    rows, default = (sorted(map(repr, wm.collect(QUERY, SOURCES, plan=each).to_pylist())) for each in (plan, wm.plan()))
    assert rows == default

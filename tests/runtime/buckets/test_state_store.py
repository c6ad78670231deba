"""The state of a bucket: state of an earlier version and damaged bytes are refused with one sentence and a remedy."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.framing import encode_frame
from watersmeet.runtime.buckets.execution_plan import build_execution_plan
from watersmeet.runtime.buckets.state_store import HEADER_FRAME, StatefulStep, StateStore
from watersmeet.sources.declarations import bind_query

from .spark_host import FakeMapState, FakeValueState

QUERY = "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
INTACT = encode_frame(HEADER_FRAME, {"signature": {}})[0].decode()


@pytest.mark.parametrize(
    ("header", "problem", "remedy"),
    [
        ('{"signature": {}, "token": "ab"}', "was written by an earlier version of Watersmeet", "a new checkpoint"),
        (INTACT.replace("signature", "signaturE"), "its checksum does not match", "an earlier copy"),
        ("", "does not begin as a file of Watersmeet", "an earlier copy"),
    ],
)
def test_state_that_cannot_be_read_is_refused_with_a_remedy(header: str, problem: str, remedy: str) -> None:
    rows = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))})
    sources = {name: wm.stream(rows, time="ts") for name in ("a", "b")}
    plan = build_execution_plan(bind_query(QUERY, sources), sources, wm.plan(), 1, 1)
    step = StatefulStep("run", "buckets")
    store = StateStore(FakeValueState((header,)), FakeMapState({}), plan.bucket, plan.signature, step, False)
    with pytest.raises(wm.InputError, match=problem) as refused:
        store.load(plan.bucket.labels[0])
    assert remedy in (refused.value.hint or "")

"""State between batches: as large as the windows, the same after serialization, and refused for a different query."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import InputError
from watersmeet.operators.aggregate import state, tables
from watersmeet.operators.protocol import SavedPart
from watersmeet.runtime.embedded.run import EmbeddedRun

QUERY = """SELECT a.k, COUNT(*) AS n, MAX(b.s) AS last FROM a [RANGE 5 MILLISECONDS], b [RANGE 5 MILLISECONDS]
           WHERE a.k = b.k GROUP BY a.k EVERY 1 MILLISECOND"""


def running(query: str = QUERY, early: tuple[str, ...] = ("b",)) -> EmbeddedRun:
    fields: dict[str, pa.DataType] = {"ts": pa.int64(), "k": pa.string(), "s": pa.string()}
    nothing = pa.schema(fields).empty_table()
    return wm.run(query, {name: wm.stream([nothing], time="ts") for name in ("a", "b")}, plan=wm.plan(early=early))


def batch(number: int) -> dict[str, pa.Table]:
    """Ten milliseconds with ten keys that never come again."""
    times = [10_000 * number + 1_000 * i for i in range(10)]
    table = pa.table({"ts": times, "k": [f"key {time}" for time in times], "s": [f"value {time}" for time in times]})
    return {"a": table, "b": table}


def test_state_does_not_grow_with_expired_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_GARBAGE", 50)
    monkeypatch.setattr(tables, "_GARBAGE_ROWS", 50)
    run, sizes = running(), list[int]()
    for number in range(60):
        run.advance(batch(number))
        sizes.append(sum(len(part.blob) for part in run.save_state()))
    assert max(sizes[30:]) <= 1.2 * max(sizes[:30])
    assert run.state.result.group_numbering.used < 300


def test_a_run_resumes_from_bytes() -> None:
    one, other = running(), running()
    for number in range(5):
        other.restore_state(other.save_state())
        assert one.advance(batch(number)) == other.advance(batch(number))


def test_bytes_of_a_different_query_are_refused() -> None:
    run = running()
    other = running("SELECT COUNT(*) AS n FROM a [LANDMARK]", ())
    with pytest.raises(InputError, match="belongs to a different query"):
        other.restore_state(run.save_state())
    first, *rest = run.save_state()
    damaged = SavedPart(first.input_number, first.kind, bytes(first.blob)[:-1] + b"?")
    with pytest.raises(InputError, match="damaged"):
        run.restore_state([damaged, *rest])

"""State is saved part by part: a small batch leaves most parts unchanged, and a host writes only the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.operators.protocol import SavedPart, StatePart
from watersmeet.runtime.embedded.run import EmbeddedRun

MANY_ROWS, FEW_ROWS, BATCHES = 20_000, 100, 8
#: Batch 0 takes 20 seconds, so every batch expires some of its rows.
WINDOWS = "FROM a [RANGE 15 SECONDS], b [RANGE 15 SECONDS] WHERE a.k = b.k"


def read_batch(number: int) -> dict[str, pa.Table]:
    """Return many rows as batch 0, few as any other: one row per millisecond, each with its own key."""
    start = 0 if number == 0 else MANY_ROWS + (number - 1) * FEW_ROWS
    keys = list(range(start, start + (MANY_ROWS if number == 0 else FEW_ROWS)))
    table = pa.table({"ts": pa.array([1_000 * key for key in keys]), "k": keys, "v": [key % 7 for key in keys]})
    return {"a": table, "b": table}


def start_join() -> EmbeddedRun:
    return start_run(f"SELECT a.v AS x, b.v AS y {WINDOWS}", wm.plan())


def start_aggregation() -> EmbeddedRun:
    return start_run(f"SELECT a.v, COUNT(*) AS n, SUM(b.k) AS s {WINDOWS} GROUP BY a.v", wm.plan())


def start_shedding_aggregation() -> EmbeddedRun:
    return start_run(f"SELECT COUNT(*) AS n, SUM(b.k) AS s {WINDOWS}", wm.plan(drop={"a": 0.1}))


def start_run(query: str, plan: wm.Plan) -> EmbeddedRun:
    empty = read_batch(0)["a"].slice(0, 0)
    return wm.run(query, {name: wm.stream([empty], time="ts") for name in "ab"}, plan=plan)


@dataclass
class PartStore:
    """A store that writes each part once, as it is when it is new."""

    written: dict[int, tuple[StatePart, bytes]] = field(default_factory=dict)  # by identity; holds the part itself

    def save(self, run: EmbeddedRun) -> int:
        """Write new parts and delete removed ones; return the bytes written."""
        parts = run.operator.parts(run.state)
        new = {id(part.value): (part, part.to_bytes()) for part in parts if id(part.value) not in self.written}
        self.written = {id(part.value): (self.written | new)[id(part.value)] for part in parts}
        return sum(len(blob) for _, blob in new.values())

    @property
    def size(self) -> int:
        return sum(len(blob) for _, blob in self.written.values())

    def load(self) -> list[SavedPart]:
        return [SavedPart(part.input_number, part.kind, blob) for part, blob in self.written.values()]


def test_estimates_that_an_earlier_version_saved_as_one_part_are_refused_with_a_remedy() -> None:
    run = start_shedding_aggregation()
    earlier = [SavedPart(0, "estimates", b""), *run.save_state()[1:]]
    with pytest.raises(wm.InputError, match="written by an earlier version"):
        run.restore_state(earlier)


each_operator = pytest.mark.parametrize("start", [start_join, start_aggregation, start_shedding_aggregation])


@each_operator
def test_a_small_batch_changes_few_bytes_of_a_large_state(start: Callable[[], EmbeddedRun]) -> None:
    run, store = start(), PartStore()
    run.advance(read_batch(0))
    assert store.save(run) == store.size > 20 * MANY_ROWS
    for number in range(1, BATCHES):
        run.advance(read_batch(number))
        assert 0 < store.save(run) < store.size / 20


@each_operator
def test_parts_that_were_written_in_different_batches_restore_the_state(start: Callable[[], EmbeddedRun]) -> None:
    run, store = start(), PartStore()
    for number in range(BATCHES):
        run.advance(read_batch(number))
        store.save(run)
    resumed = start()
    resumed.watermark = run.watermark
    resumed.restore_state(store.load())
    assert resumed.state_rows == run.state_rows
    for number in range(BATCHES, BATCHES + 2):
        expected = run.advance(read_batch(number))
        assert sum(batch.num_rows for batch in expected) > 0
        assert resumed.advance(read_batch(number)) == expected

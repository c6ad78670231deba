"""Checkpoints of every released format: `python -m tests.runtime.stored_checkpoints` writes those of this version.

Each holds the state after three batches and the record of a fourth one in flight. A new format gets a new folder. The
folders of older formats stay as they are, because a version reads the format of the version before it.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet import framing
from watersmeet.runtime.embedded import incremental
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

FOLDER = Path(__file__).parents[1] / "data" / "checkpoints"
_FROM = "FROM a [RANGE 10 SECONDS], b [RANGE 8 SECONDS] WHERE a.k = b.k"
_GROUPS = "GROUP BY a.k EVERY 2 SECONDS"
QUERIES = {
    "join": f"SELECT a.id AS left_id, b.id AS right_id {_FROM}",
    "rows": "SELECT a.id AS left_id, b.id AS right_id FROM a [RANGE 10 SECONDS], b [ROWS 4] WHERE a.k = b.k",
    "aggregation": f"SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total, MAX(a.v) AS top {_FROM} {_GROUPS}",
    "shedding": f"SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total {_FROM} {_GROUPS}",
}
PLANS = {"shedding": wm.plan(drop={"a": 0.3})}
COMMITTED, BATCHES = 3, 6


@dataclass
class ListSink:
    """Rows of each batch, as text. It stops the process, as a crash would, before it writes the rows of `crash_at`."""

    crash_at: int | None = None
    batches: dict[int, list[str]] = field(default_factory=dict)

    def write_batch(self, batch: int, rows: pa.Table) -> None:
        if batch == self.crash_at:
            raise KeyboardInterrupt
        self.batches[batch] = sorted(map(str, rows.to_pylist()))


def run_query(name: str, folder: Path, sink: ListSink, batches: range) -> None:
    """Add one file per stream and run a batch, again and again."""
    for number in batches:
        add_files(folder, number)
        sources: dict[str, Stream | Relation] = {
            each: Stream(FileSource(folder / each, "ts"), "ts", lateness_us=2_000_000) for each in ("a", "b")
        }
        job = IncrementalJob(
            wm.sql(QUERIES[name]), sources, sink, False, folder / "ckpt", choose_plan=lambda: PLANS.get(name)
        )
        with name_streams_by_folder():
            run_incremental(job, threading.Event(), lambda metrics: None)


def add_files(folder: Path, number: int) -> None:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        seconds = [5 * number + 0.6 * i for i in range(10)]
        rows: dict[str, pa.Array[Any]] = {
            "ts": pa.array([round(each * 1_000_000) for each in seconds], pa.int64()),
            "k": pa.array([round(each) % 3 for each in seconds], pa.int64()),
            "v": pa.array([(7 * number + 3 * i) % 11 for i in range(10)], pa.int64()),
            "id": pa.array([f"{name}{number}-{i}" for i in range(10)]),
        }
        pq.write_table(pa.table(rows), folder / name / f"{number:03d}.parquet")


@contextmanager
def name_streams_by_folder() -> Iterator[None]:
    """Leave the place of a folder out of the identity of a run: a stored checkpoint is resumed in another place."""
    describe = incremental._describe_stream

    def describe_by_name(source: Stream | Relation) -> dict[str, Any]:
        described = describe(source)
        return {**described, "path": Path(described["path"]).name}

    with mock.patch.object(incremental, "_describe_stream", describe_by_name):
        yield


def store(name: str, target: Path) -> None:
    """Write the checkpoint of a query whose fourth batch is in flight."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        run_query(name, folder, ListSink(), range(COMMITTED))
        try:
            run_query(name, folder, ListSink(crash_at=COMMITTED), range(COMMITTED, COMMITTED + 1))
        except KeyboardInterrupt:
            shutil.copytree(folder / "ckpt", target)


if __name__ == "__main__":
    for each in QUERIES:
        store(each, FOLDER / f"format-{framing.FORMAT_VERSION}" / "embedded" / each)

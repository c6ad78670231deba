"""A commit writes what is new: its bytes follow the batch, and the size of a checkpoint follows the state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.volume import scale_volume
from watersmeet.checkpoint.contents import RunIdentity, SavedState
from watersmeet.checkpoint.store import FILES_PART, Checkpoint, FileLog
from watersmeet.operators.protocol import StatePart
from watersmeet.runtime.embedded.incremental import describe_run, restore_run
from watersmeet.runtime.embedded.run import EmbeddedRun, start_run
from watersmeet.sources.directories import InputFile

SECOND_US = 1_000_000
MEGABYTE = 1_000_000
JOIN = "SELECT a.v AS x, b.v AS y FROM a [RANGE {s} SECONDS], b [RANGE {s} SECONDS] WHERE a.k = b.k"
THREE_WAY = (
    "SELECT a.v AS x, b.v AS y, c.v AS z FROM a [RANGE {s} SECONDS], b [RANGE 2 SECONDS], c [TUMBLE {s} SECONDS] "
    "WHERE a.k = b.k AND b.k = c.k"
)
AGGREGATION = (
    "SELECT COUNT(*) AS n, SUM(b.v) AS total FROM a [RANGE {s} SECONDS], b [RANGE {s} SECONDS] WHERE a.k = b.k "
    "EVERY {s} SECONDS"
)


@pytest.fixture(autouse=True)
def _skip_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no power failure in these tests, and a slow disk would make thousands of commits slow."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


@dataclass
class CheckpointedRun:
    """A run that is fed by hand and saved after every batch."""

    query: str
    folder: Path
    rows_per_s: int
    files: FileLog = field(default_factory=lambda: FileLog.start(1))
    batch: int = 0
    now_us: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(21)
        self.run, self.checkpoint = self.open()
        self.checkpoint.write_manifest({}, None)

    def open(self) -> tuple[EmbeddedRun, Checkpoint]:
        sources = {name: wm.stream([self._rows(0)], time="ts") for name in "abc" if f" {name} [" in self.query}
        run = start_run(self.query, sources, wm.plan(), saved_every_batch=True)
        return run, Checkpoint(self.folder, RunIdentity(self.query, {}, None))

    def advance(self, rows: int) -> tuple[int, int]:
        """Run one batch of this many rows per stream; return its result rows and the bytes that its commit wrote."""
        tables = {name: self._rows(rows) for name in self.run.sources}
        self.now_us += rows * SECOND_US // self.rows_per_s
        name = f"part-{self.batch:010d}.parquet"
        self.checkpoint.log_batch_inputs(self.batch, {"a": (InputFile(name, 1, 1),)})
        results = sum(each.num_rows for each in self.run.advance(tables))
        self.files = self.files.add(0, [name])
        written = self.checkpoint.commit(self.batch, describe_run(self.run), self.parts())
        self.batch += 1
        return results, written

    def parts(self) -> list[StatePart]:
        return [*self.files.parts(), *self.run.operator.parts(self.run.state)]

    def restart(self) -> SavedState:
        """Forget everything but the checkpoint, and resume from it."""
        self.checkpoint.close()
        self.run, self.checkpoint = self.open()
        saved = self.checkpoint.latest_state()
        assert saved is not None
        assert saved.batch == self.batch - 1
        self.files = FileLog.restore(1, saved.parts)
        restore_run(self.run, saved.facts, [part for part in saved.parts if part.kind != FILES_PART])
        self.checkpoint.adopt(saved, self.parts())
        return saved

    @property
    def disk_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def _rows(self, rows: int) -> pa.Table:
        """Return rows in time order, whose keys rarely match."""
        times = self.now_us + np.arange(rows) * SECOND_US // self.rows_per_s
        keys = self._rng.integers(0, 1 << 40, rows)
        return pa.table({"ts": pa.array(times), "k": pa.array(keys), "v": pa.array(keys % 7)})


StartJob = Callable[[str], CheckpointedRun]


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[StartJob]:
    """Return a function that starts a job, and close the checkpoints of all jobs at the end."""
    jobs: list[CheckpointedRun] = []

    def start(query: str) -> CheckpointedRun:
        jobs.append(CheckpointedRun(query, tmp_path / str(len(jobs)), rows_per_s=1000))
        return jobs[-1]

    yield start
    for job in jobs:
        job.checkpoint.close()


@pytest.mark.parametrize(("query", "seconds"), [(JOIN, 1800), (AGGREGATION, 200)], ids=["join", "aggregation"])
def test_a_batch_of_2000_rows_writes_at_most_a_megabyte_however_many_rows_are_in_state(
    query: str, seconds: int, start_job: StartJob
) -> None:
    job = start_job(query.format(s=seconds))
    rows = 1000 * seconds  # 1.8 million per stream for the join
    for _ in range(scale_volume(18)):
        job.advance(rows // scale_volume(18))
    assert job.run.state_rows >= 1.99 * rows
    written = [job.advance(2000)[1] for _ in range(20)]
    assert max(written) <= MEGABYTE, written
    assert job.run.state_rows >= 1.99 * rows


@pytest.mark.parametrize("query", [JOIN, THREE_WAY, AGGREGATION], ids=["join", "three-way join", "aggregation"])
def test_the_size_of_a_checkpoint_follows_its_state_and_not_its_age(query: str, start_job: StartJob) -> None:
    job = start_job(query.format(s=20))
    batches = scale_volume(300)
    for _ in range(batches):
        job.advance(200)
    saved = job.restart()
    state_bytes = sum(len(part.blob) for part in saved.parts)
    assert job.disk_bytes <= 2 * state_bytes
    assert list(job.files.names(0)) == [f"part-{number:010d}.parquet" for number in range(batches)]


def test_a_restart_writes_no_part_again_and_gives_the_same_results(start_job: StartJob) -> None:
    whole, restarted = start_job(JOIN.format(s=2)), start_job(JOIN.format(s=2))
    for each in (whole, restarted):
        each.advance(100_000)
    for batch in range(60):
        if batch % 7 == 3:
            restarted.restart()
        assert restarted.advance(50)[0] == whole.advance(50)[0]
    assert max(restarted.advance(50)[1] for _ in range(5)) < 100_000

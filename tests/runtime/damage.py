"""Job with a checkpoint whose files can be damaged one by one.

It has four committed batches and one in flight. More input follows.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from tests.volume import scale_volume
from watersmeet.checkpoint.owner import OWNER_FILE
from watersmeet.checkpoint.store import Checkpoint
from watersmeet.runtime.embedded.incremental import IncrementalJob, JobProgress, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

SECOND = 1_000_000
COMMITTED_BATCHES = 4
#: Bits of each file that are flipped, one at a time.
FLIPPED_BITS = min(64, scale_volume(16))

JOIN = "SELECT a.k, a.id AS left_id, b.id AS right_id FROM a [RANGE 10 SECONDS], b [ROWS 4] WHERE a.k = b.k"
AGGREGATION = (
    "SELECT a.k, COUNT(*) AS n, SUM(b.v) AS total, MAX(a.v) AS top FROM a [RANGE 10 SECONDS], b [RANGE 8 SECONDS] "
    "WHERE a.k = b.k GROUP BY a.k EVERY 2 SECONDS"
)

LOCK = "ckpt/lock"
LEFTOVER = "ckpt/states/.0000000004.run.4711"
OLDER_STATE = f"ckpt/states/{COMMITTED_BATCHES - 2:010d}.run"
COMMITTED_RECORD = f"ckpt/batches/{COMMITTED_BATCHES - 1:010d}.json"
PARTS = "ckpt/parts/"
NEWEST_STATE = f"ckpt/states/{COMMITTED_BATCHES - 1:010d}.run"
IN_FLIGHT_RECORD = f"ckpt/batches/{COMMITTED_BATCHES:010d}.json"
OWNER = f"out/{OWNER_FILE}"

Tree = dict[str, bytes]


class SimulatedCrash(BaseException):
    """Simulated end of the process."""


@dataclass(frozen=True, slots=True)
class DamageCase:
    """One damage: its kind, a label, and the files to write instead (None removes a file)."""

    damage: str
    label: str
    changes: dict[str, bytes | None]

    @property
    def damaged(self) -> set[str]:
        return set(self.changes)

    @property
    def may_be_harmless(self) -> bool:
        """Whether the job can resume with the same rows.

        It reads none of the files, or a crash leaves the same files. A file of parts may have parts that the newest
        state does not need.
        """
        if all(
            name in {LOCK, LEFTOVER, OLDER_STATE, COMMITTED_RECORD} or name.startswith(PARTS) for name in self.damaged
        ):
            return True
        return self.damage == "removed" and self.damaged <= {IN_FLIGHT_RECORD, NEWEST_STATE, OWNER}


@dataclass(frozen=True, slots=True)
class CheckpointedJob:
    """Query over two directories, with a checkpoint and an output next to them."""

    path: Path
    query: str

    @property
    def checkpoint(self) -> Path:
        return self.path / "ckpt"

    @property
    def out(self) -> Path:
        return self.path / "out"

    def incremental_job(self) -> IncrementalJob:
        sources: dict[str, Stream | Relation] = {
            name: Stream(FileSource(self.path / name, "ts"), "ts", lateness_us=2 * SECOND) for name in ("a", "b")
        }
        return IncrementalJob(
            wm.sql(self.query), sources, PartFileSink(self.out), False, self.checkpoint, str(self.out)
        )

    def run(self) -> JobProgress:
        return run_incremental(self.incremental_job(), threading.Event(), lambda figures: None)

    def rows(self) -> Counter[Any]:
        files = sorted(self.out.glob("part-*.parquet"))
        return (
            as_multiset(table_rows(pa.concat_tables([pq.read_table(file) for file in files]))) if files else Counter()
        )

    def add_files(self, number: int) -> None:
        """Add one file per stream. Times of neighbouring files overlap by less than the lateness."""
        for name in ("a", "b"):
            directory = self.path / name
            directory.mkdir(exist_ok=True)
            seconds = [5 * number + 0.6 * i for i in range(10)]
            rows: dict[str, pa.Array[Any]] = {
                "ts": pa.array([round(each * SECOND) for each in seconds], pa.int64()),
                "k": pa.array([round(each) % 3 for each in seconds], pa.int64()),
                "v": pa.array([(7 * number + 3 * i) % 11 for i in range(10)], pa.int64()),
                "id": pa.array([f"{name}{number}-{i}" for i in range(10)]),
            }
            pq.write_table(pa.table(rows), directory / f"{number:03d}.parquet")

    def tree(self) -> Tree:
        """Read all files of the checkpoint and the output, by path."""
        found = (file for folder in (self.checkpoint, self.out) for file in sorted(folder.rglob("*")) if file.is_file())
        return {str(file.relative_to(self.path)): file.read_bytes() for file in found}

    def restore(self, tree: Tree, changes: dict[str, bytes | None] | None = None) -> None:
        """Restore checkpoint and output, except for the changed files."""
        expected, found = {**tree, **(changes or {})}, self.tree()
        for name in found:
            if expected.get(name) is None:
                (self.path / name).unlink()
        for name, content in expected.items():
            if content is not None and content != found.get(name):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                (self.path / name).write_bytes(content)


def make_earlier_run(path: Path, query: str) -> Tree:
    """Return the files of a run that was started, read other files in its last batch, and was deleted."""
    job = CheckpointedJob(path, query)
    for number in range(COMMITTED_BATCHES):
        job.add_files(number)
        job.run()
    job.add_files(COMMITTED_BATCHES + 5)
    job.run()
    tree = job.tree()
    for folder in ("a", "b", "ckpt", "out"):
        shutil.rmtree(path / folder)
    return tree


def make_interrupted_job(
    path: Path, query: str, monkeypatch: pytest.MonkeyPatch, *, rows_written: bool
) -> CheckpointedJob:
    """Run four batches, and a fifth that stops before its rows are written or just before its commit.

    More files follow.
    """
    job = CheckpointedJob(path, query)
    for number in range(COMMITTED_BATCHES):
        job.add_files(number)
        job.run()
    job.add_files(COMMITTED_BATCHES)
    with monkeypatch.context() as patched:
        if rows_written:
            patched.setattr(Checkpoint, "commit", crash)
        else:
            patched.setattr(PartFileSink, "write_batch", crash)
        with pytest.raises(SimulatedCrash):
            job.run()
    job.add_files(COMMITTED_BATCHES + 1)
    (path / LEFTOVER).write_bytes(b"a write that was never finished, of another process")
    return job


def crash(*_: object) -> None:
    raise SimulatedCrash


def collect_uninterrupted_rows(path: Path, query: str) -> Counter[Any]:
    job = CheckpointedJob(path, query)
    for number in range(COMMITTED_BATCHES + 2):
        job.add_files(number)
        job.run()
    return job.rows()


def list_checkpoint_files(tree: Tree) -> list[str]:
    """List the files of the checkpoint, and the marker of the output's owner."""
    return [name for name in tree if name.startswith("ckpt/") or name.endswith(OWNER_FILE)]


def generate_damages(tree: Tree, foreign: Tree, seed: int, flipped_bits: int = FLIPPED_BITS) -> Iterator[DamageCase]:
    """Yield cases in which one file is removed, truncated, flipped in one bit, or older, or two files are swapped.

    Older versions are those of an earlier batch, and those of an earlier run of the same query in the same directories
    (`foreign`).
    """
    random = Random(seed)
    names = list_checkpoint_files(tree)
    for name in names:
        content = tree[name]
        yield DamageCase("removed", f"{name} removed", {name: None})
        for length in sorted({0, 1, len(content) // 2, len(content) - 1} - {len(content), -1}):
            yield DamageCase("truncated", f"{name} truncated to {length} bytes", {name: content[:length]})
        for bit in random.sample(range(8 * len(content)), min(flipped_bits, 8 * len(content))):
            yield DamageCase("flipped", f"{name} with bit {bit} flipped", {name: _flip_bit(content, bit)})
    for older, newer in _pair_versions(names):
        yield DamageCase("older", f"{newer} replaced by {older}", {newer: tree[older]})
    for name in names:
        if name in foreign and foreign[name] != tree[name]:
            yield DamageCase("foreign", f"{name} of an earlier run", {name: foreign[name]})
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            yield DamageCase("swapped", f"{first} and {second} swapped", {first: tree[second], second: tree[first]})


def _flip_bit(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _pair_versions(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of an older and a newer file of the same kind.

    A disk or a backup may leave the newer file with the older content.
    """
    for folder in ("ckpt/batches/", PARTS, "ckpt/states/"):
        same = [name for name in names if name.startswith(folder) and "/." not in name]
        yield from ((older, newer) for i, newer in enumerate(same) for older in same[:i])

"""Laws of a job with a checkpoint.

Each check builds a job in an empty directory and raises `AssertionError` if a law is broken.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from watersmeet import framing
from watersmeet.checkpoint.contents import batch_path, state_path
from watersmeet.checkpoint.owner import OWNER_FILE
from watersmeet.checkpoint.repair import find_problems
from watersmeet.errors import InputError, WatersmeetError
from watersmeet.runtime.embedded.incremental import IncrementalJob, JobProgress, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

from .damage import (
    COMMITTED_BATCHES,
    JOIN,
    LEFTOVER,
    SECOND,
    CheckpointedJob,
    SimulatedCrash,
    collect_uninterrupted_rows,
    generate_damages,
    make_earlier_run,
    make_interrupted_job,
)

Check = Callable[[Path, pytest.MonkeyPatch], None]


def resume_and_get_refusal(job: CheckpointedJob) -> str | None:
    """Resume the job; return the error message if it refuses."""
    with fail_on_foreign_errors():
        try:
            job.run()
        except WatersmeetError as error:
            return str(error)
    return None


def run_without_refusal(job: CheckpointedJob) -> None:
    message = resume_and_get_refusal(job)
    assert message is None, message


@contextmanager
def fail_on_foreign_errors() -> Iterator[None]:
    """Count an error that is not one of ours as a broken law: a user would see a stack trace."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"not an error of ours: {error!r}") from error


def check_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that run and repair name the damaged file, or that no row changes. Fixes change no row either."""
    monkeypatch.setattr(os, "fsync", lambda number: None)  # no power failure in this test
    for rows_written in (False, True):
        (path / f"whole{rows_written}").mkdir()
        (path / f"job{rows_written}").mkdir()
        expected = collect_uninterrupted_rows(path / f"whole{rows_written}", JOIN)
        foreign = make_earlier_run(path / f"job{rows_written}", JOIN)
        job = make_interrupted_job(path / f"job{rows_written}", JOIN, monkeypatch, rows_written=rows_written)
        tree = job.tree()
        for case in generate_damages(tree, foreign, seed=18, flipped_bits=3):
            if LEFTOVER in case.damaged:
                continue
            job.restore(tree, case.changes)
            with fail_on_foreign_errors():
                found = find_problems(job.checkpoint)
            message = resume_and_get_refusal(job)
            if message is None:
                assert case.may_be_harmless, case.label
                assert job.rows() == expected, case.label
                continue
            assert any(str(job.path / name) in message for name in case.damaged), (case.label, message)
            messages = [f"{each.path} {each.problem}" for each in found]
            assert any(str(job.path / name) in each for name in case.damaged for each in messages), (
                case.label,
                messages,
            )
            if all(each.is_fixable for each in found):
                for each in found:
                    each.fix()
                assert resume_and_get_refusal(job) is None, case.label
                assert job.rows() == expected, case.label


def check_fixes_keep_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a fix moves a damaged file aside and keeps its bytes."""
    job = make_interrupted_job(path, JOIN, monkeypatch, rows_written=False)
    place = state_path(job.checkpoint, COMMITTED_BATCHES - 1)
    place.write_bytes(place.read_bytes()[:-3])
    damaged = place.read_bytes()
    for each in find_problems(job.checkpoint):
        each.fix()
    assert damaged in [file.read_bytes() for file in place.parent.iterdir() if file.name.startswith(".")]


def check_older_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a checkpoint older than its output is refused: its batches would be chosen differently."""
    job = CheckpointedJob(path, JOIN)
    trees = []
    for number in range(4):
        job.add_files(number)
        job.run()
        trees.append(job.tree())
    older = {name: content for name, content in trees[1].items() if name.startswith("ckpt/")}
    job.restore({**{name: content for name, content in trees[3].items() if name.startswith("out/")}, **older})
    message = resume_and_get_refusal(job)
    assert message is not None
    assert batch_path(job.checkpoint, 2).name in message


def check_versions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that files of another version, and checkpoints of another query or other streams, are refused as such."""
    job = CheckpointedJob(path, JOIN)
    job.add_files(0)
    with monkeypatch.context() as newer:
        newer.setattr(framing, "FORMAT_VERSION", 5)
        newer.setattr(framing, "READABLE_VERSIONS", (5,))
        job.run()
    assert "another version of Watersmeet: format 5" in (resume_and_get_refusal(job) or "")
    with pytest.raises(InputError, match="another version of Watersmeet"):
        find_problems(job.checkpoint)
    (path / "fresh").mkdir()
    fresh = CheckpointedJob(path / "fresh", JOIN)
    fresh.add_files(0)
    fresh.run()
    other = CheckpointedJob(path / "fresh", JOIN.replace("10 SECONDS", "11 SECONDS"))
    assert "was created by a different query" in (resume_and_get_refusal(other) or "")
    (fresh.checkpoint / "about.json").write_text('{"format": 1, "query": "", "streams": {}, "out": null}')
    assert "was written by an older version" in (resume_and_get_refusal(fresh) or "")


def check_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an output belongs to one checkpoint, even after its deletion; other rows are not mixed in."""
    job = CheckpointedJob(path, JOIN)
    job.add_files(0)
    job.run()
    before = job.rows()
    second = CheckpointedJob(path, JOIN.replace("10 SECONDS", "11 SECONDS"))
    message = _run_and_get_refusal(_make_incremental_job(second, path / "ckpt2", job.out))
    assert str(job.checkpoint) in message
    assert job.rows() == before
    job.checkpoint.rename(path / "gone")
    assert "a second time" in (resume_and_get_refusal(job) or "")
    assert job.rows() == before
    (path / "others").mkdir()
    pq.write_table(pa.table({"k": [1]}), path / "others" / "part-0000000007.parquet")
    assert "part-0000000007.parquet" in _run_and_get_refusal(
        _make_incremental_job(job, path / "ckpt3", path / "others")
    )


def _make_incremental_job(job: CheckpointedJob, checkpoint: Path, out: Path) -> IncrementalJob:
    incremental_job = job.incremental_job()
    return IncrementalJob(
        incremental_job.query, incremental_job.sources, PartFileSink(out), False, checkpoint, str(out)
    )


def _run_and_get_refusal(incremental_job: IncrementalJob) -> str:
    try:
        run_incremental(incremental_job, threading.Event(), lambda metrics: None)
    except WatersmeetError as error:
        return str(error)
    return ""


def check_inputs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a batch does not run again over other files, and that repair does not promise it."""
    job = make_interrupted_job(path, JOIN, monkeypatch, rows_written=True)
    tree = job.tree()
    lost = path / "a" / f"{COMMITTED_BATCHES:03d}.parquet"
    content, times = lost.read_bytes(), lost.stat()
    changes: tuple[Callable[[], None], ...] = (
        lost.unlink,
        lambda: pq.write_table(pq.read_table(lost).slice(3), lost),
    )
    for change in changes:
        change()
        message = resume_and_get_refusal(job)
        assert message is not None
        assert f'"{lost}" of batch {COMMITTED_BATCHES}' in message
        assert lost in [each.path for each in find_problems(job.checkpoint)]
        lost.write_bytes(content)
        os.utime(lost, ns=(times.st_atime_ns, times.st_mtime_ns))
        job.restore(tree)
    state = state_path(job.checkpoint, COMMITTED_BATCHES - 1)
    state.write_bytes(state.read_bytes()[:-3])
    (path / "b" / f"{COMMITTED_BATCHES - 1:03d}.parquet").unlink()
    found = {each.path: each for each in find_problems(job.checkpoint)}
    assert not found[state].is_fixable
    assert f"{COMMITTED_BATCHES - 1:03d}.parquet" in found[state].consequence


def check_crashes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a crash at any write, before or after the file is moved into place, changes no row."""
    (path / "whole").mkdir()
    whole = CheckpointedJob(path / "whole", JOIN)
    for number in range(4):
        whole.add_files(number)
        run_without_refusal(whole)
    for after_the_write in (False, True):
        crashed = 0
        for crash_at in range(1, 60):
            place = path / f"{after_the_write}{crash_at}"
            place.mkdir()
            if not _crash_once(CheckpointedJob(place, JOIN), monkeypatch, crash_at, after_the_write=after_the_write):
                break
            crashed += 1
            assert CheckpointedJob(place, JOIN).rows() == whole.rows(), (crash_at, after_the_write)
        assert crashed >= 11, crashed  # manifest, owner, three records, parts and states


def _crash_once(job: CheckpointedJob, monkeypatch: pytest.MonkeyPatch, crash_at: int, *, after_the_write: bool) -> bool:
    """Run three rounds of new files and stop the process at one of its writes; more files exist when it restarts."""
    writes = 0

    def fragile(write: Callable[..., Any]) -> Callable[..., Any]:
        def crash_at_write(*arguments: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == crash_at and not after_the_write:
                raise SimulatedCrash
            result = write(*arguments)
            if writes == crash_at:
                raise SimulatedCrash
            return result

        return crash_at_write

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fragile(Path.replace))
        patched.setattr(os, "link", fragile(os.link))
        for number in range(3):
            job.add_files(number)
            with suppress(SimulatedCrash):
                run_without_refusal(job)
    job.add_files(3)
    run_without_refusal(job)
    return writes >= crash_at


@dataclass
class Disk:
    """Recorder of flushes.

    A file has to be on disk before it gets its name, and the name before the next file gets its own.
    """

    moved: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _flushed: set[int] = field(default_factory=set)
    _unflushed_directories: set[int] = field(default_factory=set)

    def watch(self, patched: pytest.MonkeyPatch) -> None:
        fsync, replace, link = os.fsync, Path.replace, os.link

        def watched_fsync(number: int) -> None:
            inode = os.fstat(number).st_ino
            self._flushed.add(inode)
            self._unflushed_directories.discard(inode)
            fsync(number)

        def watched_replace(source: Path, target: Path) -> Path:
            self._name(source, Path(target))
            return replace(source, target)

        def watched_link(source: Path, target: Path) -> None:
            self._name(Path(source), Path(target))
            link(source, target)

        patched.setattr(os, "fsync", watched_fsync)
        patched.setattr(Path, "replace", watched_replace)
        patched.setattr(os, "link", watched_link)

    def _name(self, source: Path, target: Path) -> None:
        if source.stat().st_ino not in self._flushed:
            self.problems.append(f"{target.name} is not flushed before it gets its name")
        if self._unflushed_directories:
            self.problems.append(f"a name is not flushed before {target.name} is written")
        self._unflushed_directories.add(target.parent.stat().st_ino)
        self.moved.append(target.name)


def check_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the order: manifest, owner, then record, rows, parts and state of each batch, each on disk in time."""
    job = CheckpointedJob(path, JOIN)
    disk = Disk()
    with monkeypatch.context() as patched:
        disk.watch(patched)
        for number in range(3):
            job.add_files(number)
            job.run()
    batches = [[f"{n:010d}.json", f"part-{n:010d}.parquet", f"{n:010d}.parts", f"{n:010d}.run"] for n in range(3)]
    assert disk.moved == ["about.json", OWNER_FILE, *(name for each in batches for name in each)]
    assert not disk.problems, disk.problems


def check_restarts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that restarts change neither which rows are late or idle, nor the ledger."""
    #  s      batch 0    batch 1   batch 2   batch 3
    #  a      0..10      12..50              30
    #  b      0..100               20, 49
    #  c      silent from the start: idle after 5 s
    a = [(0, range(11)), (1, range(12, 51)), (3, [30])]
    b = [(0, range(0, 101, 5)), (2, [20, 49])]
    rounds = [
        {"a": a, "b": b, "c": [(0, [])]},
        {"a": [(0, range(4)), (1, range(18, 21)), (2, [3, 20])], "b": [(0, [])], "c": [(0, [])]},
    ]
    for number, files in enumerate(rounds):
        expected = _run_with_late_rows(path / f"{number}-once", files, restarts=False)
        found = _run_with_late_rows(path / f"{number}-again", files, restarts=True)
        assert found == expected
        assert any(entry["late"] for entry in expected[1].values())


def _run_with_late_rows(path: Path, files: dict[str, Any], *, restarts: bool) -> tuple[Any, dict[str, dict[str, int]]]:
    query = (
        "SELECT a.id AS one, b.id AS other FROM a [RANGE 60 SECONDS], b [RANGE 60 SECONDS], c [ROWS 2] "
        "WHERE a.k = b.k AND a.k <> c.k"
    )
    both = (
        "SELECT a.id AS one, b.id AS other FROM a [RANGE 60 SECONDS], a [RANGE 60 SECONDS] AS b, c [ROWS 2] "
        "WHERE a.k = b.k OR c.k = 1"
    )
    path.mkdir()
    stop = threading.Event()
    text = query if files["b"][0][1] else both
    job = _job_with_idle_streams(path, text)
    rounds = range(4)
    if restarts:
        for number in rounds:
            _write_round(path, files, number)
            progress = run_incremental(job(), stop, lambda metrics: None)
    else:
        progress = _run_without_restart(path, files, job())
    parts = sorted((path / "out").glob("part-*.parquet"))
    rows = as_multiset(table_rows(pa.concat_tables([pq.read_table(file) for file in parts]))) if parts else None
    assert progress.run is not None
    return rows, {name: asdict(entry) for name, entry in progress.run.ledger.items()}


def _job_with_idle_streams(path: Path, text: str) -> Callable[[], IncrementalJob]:
    def incremental_job() -> IncrementalJob:
        sources: dict[str, Stream | Relation] = {
            name: Stream(
                FileSource(path / name, "ts"), "ts", lateness_us=2 * SECOND, idle_us=5 * SECOND if name == "c" else None
            )
            for name in ("a", "b", "c")
        }
        return IncrementalJob(
            wm.sql(text), sources, PartFileSink(path / "out"), False, path / "ckpt", str(path / "out")
        )

    return incremental_job


def _run_without_restart(path: Path, files: dict[str, Any], job: IncrementalJob) -> JobProgress:
    """Run once and follow the directories; the next files appear after each batch."""
    stop = threading.Event()
    _write_round(path, files, 0)

    def next_round(metrics: Any) -> None:
        if metrics.batch == 3:
            stop.set()
        else:
            _write_round(path, files, metrics.batch + 1)

    return run_incremental(
        IncrementalJob(job.query, job.sources, job.sink, True, job.checkpoint, job.out), stop, next_round
    )


def _write_round(path: Path, files: dict[str, Any], number: int) -> None:
    """Write the files of one round, at least one, so that every round is a batch."""
    for name, listed in files.items():
        for batch, seconds in [*listed, *([(number, [])] if name == "c" and number else [])]:
            if batch == number:
                (path / name).mkdir(exist_ok=True)
                table: dict[str, pa.Array[Any]] = {
                    "ts": pa.array([each * SECOND for each in seconds], pa.int64()),
                    "k": pa.array([each % 2 for each in seconds], pa.int64()),
                    "id": pa.array([f"{name}{batch}-{each}" for each in seconds], pa.string()),
                }
                hidden = path / name / f".{batch}"
                pq.write_table(pa.table(table), hidden)
                hidden.rename(path / name / f"{batch:03d}.parquet")


def check_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that of two runs on one checkpoint, the second is refused."""
    job = CheckpointedJob(path, JOIN)
    job.add_files(0)
    messages: list[str] = []
    incremental_job = job.incremental_job()
    run_incremental(
        incremental_job, threading.Event(), lambda metrics: messages.append(resume_and_get_refusal(job) or "")
    )
    assert messages
    assert all("in use by another process" in each for each in messages)


CHECKS: tuple[Check, ...] = (
    check_damage,
    check_fixes_keep_files,
    check_older_checkpoint,
    check_versions,
    check_owner,
    check_inputs,
    check_crashes,
    check_order,
    check_restarts,
    check_lock,
)

"""Growing directories: every file is read once, and a crash at any write loses nothing and doubles nothing."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, join_rows, table_rows
from watersmeet.checkpoint.repair import find_problems
from watersmeet.errors import InputError
from watersmeet.metrics.batch import BatchMetrics
from watersmeet.runtime.embedded.incremental import IncrementalJob, JobProgress, run_incremental
from watersmeet.runtime.embedded.run import bind_query
from watersmeet.sinks.result_files import PartFileSink
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

QUERY = "SELECT a.k, a.id AS left_id, b.id AS right_id FROM a [RANGE 10 SECONDS], b [ROWS 4] WHERE a.k = b.k"
SECOND = 1_000_000


class Crash(BaseException):
    """The process is gone."""


def write(directory: Path, number: int, name: str, seconds: list[float]) -> pa.Table:
    rows = pa.table(
        {
            "ts": pa.array([round(each * SECOND) for each in seconds], pa.int64()),
            "k": pa.array([round(each) % 3 for each in seconds], pa.int64()),
            "id": pa.array([f"{name}{number}-{i}" for i in range(len(seconds))]),
        }
    )
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{number:03d}"
    pq.write_table(rows, hidden)
    hidden.rename(directory / f"{number:03d}.parquet")  # a job that follows the directory never sees half a file
    return rows


@pytest.fixture
def filled(tmp_path: Path) -> dict[str, pa.Table]:
    """Four files on one side, three on the other."""
    #  s   0    5    10   15   20
    #  a   |000 |001 |002 |003 |
    #  b   |000   |001   |002  |
    a = [write(tmp_path / "a", n, "a", [5 * n + 0.5 * i for i in range(10)]) for n in range(4)]
    b = [write(tmp_path / "b", n, "b", [6.5 * n + 0.7 * i for i in range(9)]) for n in range(3)]
    return {"a": pa.concat_tables(a), "b": pa.concat_tables(b)}


def job(path: Path, *, follow: bool = False, checkpoint: bool = True, query: str = QUERY) -> IncrementalJob:
    sources: dict[str, Stream | Relation] = {
        name: Stream(FileSource(path / name, "ts"), "ts", lateness_us=2 * SECOND) for name in ("a", "b")
    }
    return IncrementalJob(
        wm.sql(query),
        sources,
        PartFileSink(path / "out"),
        follow,
        path / "ckpt" if checkpoint else None,
        str(path / "out"),
    )


def ran(growing: IncrementalJob) -> JobProgress:
    return run_incremental(growing, threading.Event(), lambda figures: None)


def written(path: Path) -> Counter[Any]:
    files = sorted((path / "out").glob("part-*.parquet"))
    return as_multiset(table_rows(pa.concat_tables([pq.read_table(file) for file in files]))) if files else Counter()


def wanted(tables: dict[str, pa.Table]) -> Counter[Any]:
    streams = {name: wm.stream(table, time="ts") for name, table in tables.items()}
    return as_multiset(join_rows(bind_query(QUERY, streams), tables))


def closed(path: Path, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """A last file on each side, far in the future, so that the watermark passes everything before it."""
    found = {}
    for name, table in tables.items():
        last = write(path / name, 999, name, [1000.0])
        found[name] = pa.concat_tables([table, last.slice(0, 0)])
    return found


def test_files_are_joined_as_if_they_had_been_one_table(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    tables = closed(tmp_path, filled)
    assert ran(job(tmp_path)).batches == 1
    assert written(tmp_path) == wanted(tables)


def test_a_second_run_reads_only_what_is_new(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    first = ran(job(tmp_path))
    assert (first.batches, first.resumed_after) == (1, None)
    assert ran(job(tmp_path)).batches == 0
    tables = closed(tmp_path, filled)
    second = ran(job(tmp_path))
    assert (second.batches, second.resumed_after) == (1, 0)
    assert written(tmp_path) == wanted(tables)


def test_a_crash_at_any_write_loses_nothing_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = 0
    for before_the_move in (True, False):
        for crash_at in range(1, 40):
            path = tmp_path / f"{before_the_move}{crash_at}"
            path.mkdir()
            crashed = _three_runs_with_a_crash(path, monkeypatch, crash_at, before_the_move=before_the_move)
            if not crashed:
                break
            moves += 1
    assert moves >= 16  # about, three batches, three states and parts, either way


def _three_runs_with_a_crash(
    path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int, *, before_the_move: bool
) -> bool:
    """Three rounds of new files; the process dies at one of the moves of files into place, and is started again."""
    counted = 0
    move = Path.replace

    def fragile(self: Path, target: Path) -> Path:
        nonlocal counted
        counted += 1
        if counted == crash_at and before_the_move:
            raise Crash
        moved = move(self, target)
        if counted == crash_at:
            raise Crash
        return moved

    tables: dict[str, list[pa.Table]] = {"a": [], "b": []}
    crashed = False
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fragile)
        for n in range(3):
            for name, files in tables.items():
                files.append(write(path / name, n, name, [5 * n + 0.5 * i for i in range(8)]))
            try:
                ran(job(path))
            except Crash:
                crashed = True
                ran(job(path))
    whole = closed(path, {name: pa.concat_tables(each) for name, each in tables.items()})
    ran(job(path))
    assert written(path) == wanted(whole)
    return crashed


def test_a_query_that_follows_goes_on_with_files_that_appear_until_it_is_stopped(
    tmp_path: Path, filled: dict[str, pa.Table]
) -> None:
    stop, seen = threading.Event(), Batches()
    thread = threading.Thread(target=run_incremental, args=(job(tmp_path, follow=True), stop, seen.observe))
    thread.start()
    try:
        rows = sum(table.num_rows for table in filled.values())
        seen.wait_for_rows(rows)
        tables = closed(tmp_path, filled)
        seen.wait_for_rows(rows + len(tables))  # one batch or two: the last files appear one after the other
    finally:
        stop.set()
        thread.join()
    assert written(tmp_path) == wanted(tables)


class Batches:
    """Rows of all batches so far; a test can wait for more of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.changed = threading.Condition()

    def observe(self, figures: BatchMetrics) -> None:
        with self.changed:
            self.rows += sum(figures.rows_in.values())
            self.changed.notify_all()

    def wait_for_rows(self, rows: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.rows >= rows)


def test_an_empty_directory_is_waited_for_or_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="has no data files"):
        ran(job(tmp_path))
    stop = threading.Event()
    stop.set()
    assert run_incremental(job(tmp_path, follow=True), stop, lambda figures: None).waiting_for == ["a", "b"]


def test_a_file_that_does_not_fit_is_named_and_nothing_is_lost(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    ran(job(tmp_path))
    pq.write_table(
        pa.table({"ts": pa.array([1], pa.int64()), "k": ["one"], "id": ["x"]}), tmp_path / "a" / "050.parquet"
    )
    for _ in range(2):
        with pytest.raises(InputError, match=r"050\.parquet.*does not match") as raised:
            ran(job(tmp_path))
    assert "resumes where it stopped" in str(raised.value)


def test_two_processes_on_one_checkpoint_are_refused(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    stop, seen = threading.Event(), Batches()
    thread = threading.Thread(target=run_incremental, args=(job(tmp_path, follow=True), stop, seen.observe))
    thread.start()
    try:
        seen.wait_for_rows(1)
        with pytest.raises(InputError, match="in use by another process"):
            ran(job(tmp_path))
    finally:
        stop.set()
        thread.join()


def test_a_checkpoint_of_another_query_is_refused(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    ran(job(tmp_path))
    with pytest.raises(InputError, match="was created by a different query"):
        ran(job(tmp_path, query=QUERY.replace("10 SECONDS", "11 SECONDS")))


# --- repair
# -----------------------------------------------------------------------------------------------------------------------------


def test_a_whole_checkpoint_is_in_order(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    ran(job(tmp_path))
    assert find_problems(tmp_path / "ckpt") == []


def test_a_damaged_state_costs_a_batch_and_no_row(tmp_path: Path, filled: dict[str, pa.Table]) -> None:
    ran(job(tmp_path))
    tables = closed(tmp_path, filled)
    ran(job(tmp_path))
    state = tmp_path / "ckpt" / "states" / "0000000001.run"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(InputError, match="watersmeet repair"):
        ran(job(tmp_path))
    (found,) = find_problems(tmp_path / "ckpt")
    found.fix()
    assert find_problems(tmp_path / "ckpt") == []
    assert ran(job(tmp_path)).resumed_after == 0
    assert written(tmp_path) == wanted(tables)


def test_a_torn_decision_is_mended_and_a_lost_one_is_said_to_be_lost(
    tmp_path: Path, filled: dict[str, pa.Table]
) -> None:
    ran(job(tmp_path))
    batches = tmp_path / "ckpt" / "batches"
    (batches / "0000000001.json").write_text('{"files": {"a"')
    (found,) = find_problems(tmp_path / "ckpt")
    assert found.is_fixable
    found.fix()
    (batches / "0000000000.json").unlink()
    (lost,) = find_problems(tmp_path / "ckpt")
    assert not lost.is_fixable
    assert "read twice" in lost.consequence


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a checkpoint"):
        find_problems(tmp_path)
    with pytest.raises(InputError, match="there is no directory"):
        find_problems(tmp_path / "nothing")


def _spark_checkpoint(path: Path, batches: int) -> Path:
    for log in ("offsets", "commits"):
        (path / log).mkdir(parents=True)
        for number in range(batches):
            text = (
                'v1\n{"batchWatermarkMs":0}\n{"logOffset":0}\n'
                if log == "offsets"
                else 'v1\n{"nextBatchWatermarkMs":0}'
            )
            (path / log / str(number)).write_text(text)
    (path / "metadata").write_text('{"id":"1e5a"}')
    return path


def test_the_newest_entries_of_a_spark_checkpoint_can_be_mended_older_ones_not(tmp_path: Path) -> None:
    path = _spark_checkpoint(tmp_path / "spark", 3)
    assert find_problems(path) == []
    (path / "commits" / "2").write_text("")
    (torn,) = find_problems(path)
    assert torn.is_fixable
    torn.fix()
    (path / "offsets" / "3").write_text("v1\n{")
    (torn,) = find_problems(path)
    torn.fix()
    assert find_problems(path) == []
    (path / "offsets" / "1").write_text("v1\n{")
    (old,) = find_problems(path)
    assert not old.is_fixable
    (path / "offsets" / "1").unlink()
    assert [each.problem for each in find_problems(path)] == ["is missing"]

"""Growing directories: every file is read once, and a crash at any write loses and duplicates no row."""

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
from watersmeet.metrics import BatchMetrics
from watersmeet.runtime.embedded.incremental import IncrementalJob, JobProgress, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream, bind_query
from watersmeet.sources.directories import FileSource

QUERY = "SELECT a.k, a.id AS left_id, b.id AS right_id FROM a [RANGE 10 SECONDS], b [ROWS 4] WHERE a.k = b.k"
SECOND = 1_000_000


class SimulatedProcessExit(BaseException):
    """Simulated end of the process."""


def write_file(directory: Path, number: int, name: str, seconds: list[float]) -> pa.Table:
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
def tables_of_files(tmp_path: Path) -> dict[str, pa.Table]:
    """Four files on one side, three on the other."""
    #  s   0    5    10   15   20
    #  a   |000 |001 |002 |003 |
    #  b   |000   |001   |002  |
    a = [write_file(tmp_path / "a", n, "a", [5 * n + 0.5 * i for i in range(10)]) for n in range(4)]
    b = [write_file(tmp_path / "b", n, "b", [6.5 * n + 0.7 * i for i in range(9)]) for n in range(3)]
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


def run_job(incremental_job: IncrementalJob) -> JobProgress:
    return run_incremental(incremental_job, threading.Event(), lambda metrics: None)


def read_written_rows(path: Path) -> Counter[Any]:
    files = sorted((path / "out").glob("part-*.parquet"))
    return as_multiset(table_rows(pa.concat_tables([pq.read_table(file) for file in files]))) if files else Counter()


def expected_rows(tables: dict[str, pa.Table]) -> Counter[Any]:
    streams = {name: wm.stream(table, time="ts") for name, table in tables.items()}
    return as_multiset(join_rows(bind_query(QUERY, streams), tables))


def write_closing_files(path: Path, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Write a last row on each side, far in the future, so that the watermark passes everything before it.

    Return the tables without these rows: the watermark does not pass them, so they are never joined.
    """
    found = {}
    for name, table in tables.items():
        last = write_file(path / name, 999, name, [1000.0])
        found[name] = pa.concat_tables([table, last.slice(0, 0)])
    return found


def test_files_are_joined_as_if_they_had_been_one_table(tmp_path: Path, tables_of_files: dict[str, pa.Table]) -> None:
    tables = write_closing_files(tmp_path, tables_of_files)
    assert run_job(job(tmp_path)).batches == 1
    assert read_written_rows(tmp_path) == expected_rows(tables)


def test_a_second_run_reads_only_new_files(tmp_path: Path, tables_of_files: dict[str, pa.Table]) -> None:
    first = run_job(job(tmp_path))
    assert (first.batches, first.resumed_after) == (1, None)
    assert run_job(job(tmp_path)).batches == 0
    tables = write_closing_files(tmp_path, tables_of_files)
    second = run_job(job(tmp_path))
    assert (second.batches, second.resumed_after) == (1, 0)
    assert read_written_rows(tmp_path) == expected_rows(tables)


def test_a_crash_at_any_write_loses_and_duplicates_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = 0
    for before_the_move in (True, False):
        for crash_at in range(1, 40):
            path = tmp_path / f"{before_the_move}{crash_at}"
            path.mkdir()
            crashed = _three_runs_with_a_crash(path, monkeypatch, crash_at, before_the_move=before_the_move)
            if not crashed:
                break
            moves += 1
    assert moves >= 16  # manifest, three records, states and parts, before and after each move


def _three_runs_with_a_crash(
    path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int, *, before_the_move: bool
) -> bool:
    """Run three rounds of new files; the process dies when it moves one file into place, and is started again."""
    moves = 0
    move = Path.replace

    def move_or_crash(self: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves == crash_at and before_the_move:
            raise SimulatedProcessExit
        moved = move(self, target)
        if moves == crash_at:
            raise SimulatedProcessExit
        return moved

    tables: dict[str, list[pa.Table]] = {"a": [], "b": []}
    crashed = False
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", move_or_crash)
        for n in range(3):
            for name, files in tables.items():
                files.append(write_file(path / name, n, name, [5 * n + 0.5 * i for i in range(8)]))
            try:
                run_job(job(path))
            except SimulatedProcessExit:
                crashed = True
                run_job(job(path))
    all_tables = write_closing_files(path, {name: pa.concat_tables(each) for name, each in tables.items()})
    run_job(job(path))
    assert read_written_rows(path) == expected_rows(all_tables)
    return crashed


def test_a_following_query_reads_new_files_until_it_is_stopped(
    tmp_path: Path, tables_of_files: dict[str, pa.Table]
) -> None:
    stop, seen = threading.Event(), SeenRows()
    thread = threading.Thread(target=run_incremental, args=(job(tmp_path, follow=True), stop, seen.observe))
    thread.start()
    try:
        rows = sum(table.num_rows for table in tables_of_files.values())
        seen.wait_for_rows(rows)
        tables = write_closing_files(tmp_path, tables_of_files)
        seen.wait_for_rows(rows + len(tables))  # one batch or two: the two last files do not appear at once
    finally:
        stop.set()
        thread.join()
    assert read_written_rows(tmp_path) == expected_rows(tables)


class SeenRows:
    """Rows of all batches so far; a test can wait for more of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.changed = threading.Condition()

    def observe(self, metrics: BatchMetrics) -> None:
        with self.changed:
            self.rows += sum(metrics.rows_in.values())
            self.changed.notify_all()

    def wait_for_rows(self, rows: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.rows >= rows)


def test_an_empty_directory_is_refused_unless_the_job_follows_it_and_then_the_job_waits(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="has no data files"):
        run_job(job(tmp_path))
    stop = threading.Event()
    stop.set()
    assert run_incremental(job(tmp_path, follow=True), stop, lambda metrics: None).waiting_for == ["a", "b"]


def test_a_file_with_another_schema_is_named_and_no_row_is_lost(
    tmp_path: Path, tables_of_files: dict[str, pa.Table]
) -> None:
    run_job(job(tmp_path))
    pq.write_table(
        pa.table({"ts": pa.array([1], pa.int64()), "k": ["one"], "id": ["x"]}), tmp_path / "a" / "050.parquet"
    )
    for _ in range(2):
        with pytest.raises(InputError, match=r"050\.parquet.*does not match") as raised:
            run_job(job(tmp_path))
    assert "resumes where it stopped" in str(raised.value)


def test_two_processes_on_one_checkpoint_are_refused(tmp_path: Path, tables_of_files: dict[str, pa.Table]) -> None:
    stop, seen = threading.Event(), SeenRows()
    thread = threading.Thread(target=run_incremental, args=(job(tmp_path, follow=True), stop, seen.observe))
    thread.start()
    try:
        seen.wait_for_rows(1)
        with pytest.raises(InputError, match="in use by another process"):
            run_job(job(tmp_path))
    finally:
        stop.set()
        thread.join()


def test_a_checkpoint_of_another_query_is_refused(tmp_path: Path, tables_of_files: dict[str, pa.Table]) -> None:
    run_job(job(tmp_path))
    with pytest.raises(InputError, match="was created by a different query"):
        run_job(job(tmp_path, query=QUERY.replace("10 SECONDS", "11 SECONDS")))


# --- repair ---


def test_an_intact_checkpoint_has_no_problems(tmp_path: Path, tables_of_files: dict[str, pa.Table]) -> None:
    run_job(job(tmp_path))
    assert find_problems(tmp_path / "ckpt") == []


def test_a_damaged_state_costs_a_batch_and_no_row(tmp_path: Path, tables_of_files: dict[str, pa.Table]) -> None:
    run_job(job(tmp_path))
    tables = write_closing_files(tmp_path, tables_of_files)
    run_job(job(tmp_path))
    state = tmp_path / "ckpt" / "states" / "0000000001.run"
    state.write_bytes(state.read_bytes()[:-7])
    with pytest.raises(InputError, match="watersmeet repair"):
        run_job(job(tmp_path))
    (found,) = find_problems(tmp_path / "ckpt")
    found.fix()
    assert find_problems(tmp_path / "ckpt") == []
    assert run_job(job(tmp_path)).resumed_after == 0
    assert read_written_rows(tmp_path) == expected_rows(tables)


def test_a_torn_record_is_fixed_and_the_record_of_a_committed_batch_is_not_needed(
    tmp_path: Path, tables_of_files: dict[str, pa.Table]
) -> None:
    run_job(job(tmp_path))
    batches = tmp_path / "ckpt" / "batches"
    (batches / "0000000001.json").write_text('{"files": {"a"')
    (found,) = find_problems(tmp_path / "ckpt")
    assert found.is_fixable
    found.fix()
    (batches / "0000000000.json").unlink()
    assert find_problems(tmp_path / "ckpt") == []
    assert run_job(job(tmp_path)).batches == 0


def test_a_directory_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
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


def test_the_newest_entries_of_a_spark_checkpoint_can_be_fixed_and_older_ones_cannot(tmp_path: Path) -> None:
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

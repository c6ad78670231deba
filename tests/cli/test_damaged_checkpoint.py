"""Damaged checkpoints and shared output directories: `run` and `repair` name the file and the remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from typer.testing import CliRunner

from watersmeet.cli import main as cli

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 2 MINUTES], b [RANGE 2 MINUTES] WHERE a.k = b.k"
BATCHES = 3


def add(path: Path, number: int) -> None:
    """Add ten rows per stream. Keys repeat, so rows join with those of the file before."""
    for name in ("a", "b"):
        (path / name).mkdir(exist_ok=True)
        rows = "".join(f"{i},{1_700_000_000_000_000 + number * 90_000_000 + i * 1000}\n" for i in range(10))
        (path / name / f"{number}.csv").write_text("k,ts\n" + rows)


def run(path: Path, checkpoint: str = "ckpt", out: str = "out", query: str = "query.sql") -> Any:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={path / name},time=ts,lateness=1s")]
    return CliRunner().invoke(
        cli.app,
        [
            "run",
            str(path / query),
            *streams,
            "--checkpoint",
            str(path / checkpoint),
            "--out",
            str(path / out),
            "--format",
            "jsonl",
        ],
    )


def repair(path: Path, *more: str) -> Any:
    return CliRunner().invoke(cli.app, ["repair", str(path / "ckpt"), *more])


def rows(path: Path, out: str = "out") -> list[str]:
    return sorted(line for file in (path / out).glob("part-*.jsonl") for line in file.read_text().splitlines())


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job after three batches."""
    (tmp_path / "query.sql").write_text(QUERY)
    (tmp_path / "other.sql").write_text(QUERY.replace("2 MINUTES", "3 MINUTES"))
    for number in range(BATCHES):
        add(tmp_path, number)
        assert run(tmp_path).exit_code == 0
    return tmp_path


def record(job: Path, batch: int) -> Path:
    return job / "ckpt" / "batches" / f"{batch:010d}.json"


def state(job: Path, batch: int) -> Path:
    return job / "ckpt" / "states" / f"{batch:010d}.run"


def flip_bit(place: Path, what: bytes) -> None:
    """Flip the lowest bit of the first byte of a text in a file."""
    content = bytearray(place.read_bytes())
    content[content.index(what)] ^= 1
    place.write_bytes(content)


def remove(place: Path) -> None:
    place.unlink()


def one_flipped_bit(place: Path) -> None:
    flip_bit(place, b".csv")


@pytest.mark.parametrize("spoil", [one_flipped_bit, remove])
def test_a_damaged_batch_record_stops_the_job_and_repair_names_it(job: Path, spoil: Callable[[Path], None]) -> None:
    last = BATCHES - 1
    state(job, last).unlink()  # the batch has to run again, over the files of its record
    spoil(record(job, last))
    add(job, BATCHES)
    before = rows(job)
    refused = run(job)
    assert refused.exit_code == 1
    assert str(record(job, last)) in refused.stderr
    assert "Traceback" not in refused.output
    assert rows(job) == before
    found = repair(job, "--json")
    assert found.exit_code == 1
    assert [each["file"] for each in json.loads(found.stdout)["findings"]] == [str(record(job, last))]


# --- the manifest


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'"query"', b'{"format": 2, "query": 5}'])
def test_a_damaged_manifest_is_called_damaged(job: Path, content: bytes) -> None:
    (job / "ckpt" / "about.json").write_bytes(content)
    refused = run(job)
    assert refused.exit_code == 1
    assert f'"{job / "ckpt" / "about.json"}" is damaged' in refused.stderr
    assert "start again with a new checkpoint and a new output directory" in refused.stderr
    assert "Traceback" not in refused.output
    assert "about.json" in repair(job).stdout


def test_a_flipped_bit_in_the_manifest_is_not_taken_for_a_different_query(job: Path) -> None:
    flip_bit(job / "ckpt" / "about.json", b"MINUTES")
    refused = run(job)
    assert "is damaged" in refused.stderr
    assert "different query" not in refused.stderr


def test_the_manifest_of_another_run_is_not_taken_for_a_different_query(job: Path) -> None:
    assert run(job, "ckpt2", "out2", "other.sql").exit_code == 0
    (job / "ckpt" / "about.json").write_bytes((job / "ckpt2" / "about.json").read_bytes())
    refused = run(job)
    assert "about.json" in refused.stderr
    assert "different query" not in refused.stderr


def test_a_different_query_is_called_a_different_query(job: Path) -> None:
    refused = run(job, query="other.sql")
    assert refused.exit_code == 1
    assert "was created by a different query" in refused.stderr
    assert "use a new checkpoint directory" in refused.stderr


def test_a_checkpoint_of_an_older_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    (tmp_path / "ckpt" / "batches").mkdir(parents=True)
    (tmp_path / "ckpt" / "about.json").write_text(
        json.dumps({"format": 1, "query": QUERY, "streams": {}, "out": None}, indent=2)
    )
    (tmp_path / "ckpt" / "batches" / "0000000000.json").write_text('{"files": {"a": ["0.csv"], "b": ["0.csv"]}}')
    for message in (run(tmp_path).stderr, repair(tmp_path).stderr):
        assert "was written by an older version of Watersmeet: start again with a new checkpoint" in message


# --- the output directory


def test_two_jobs_cannot_share_an_output_directory(job: Path) -> None:
    before = rows(job)
    refused = run(job, "ckpt2", query="other.sql")
    assert refused.exit_code == 1
    assert f'belongs to checkpoint "{job / "ckpt"}"' in refused.stderr
    assert "use another output directory" in refused.stderr
    assert rows(job) == before
    assert run(job, "ckpt2", "out2", "other.sql").exit_code == 0  # the refused checkpoint is still usable


def test_a_deleted_checkpoint_leaves_an_output_that_is_not_written_twice(job: Path) -> None:
    before = rows(job)
    (job / "ckpt").rename(job / "gone")
    for checkpoint in ("ckpt", "ckpt2"):
        refused = run(job, checkpoint)
        assert refused.exit_code == 1
        assert f'checkpoint "{job / "ckpt"}"' in refused.stderr
        assert "a second time" in refused.stderr
        assert "delete this one to start again" in refused.stderr
        assert rows(job) == before


def test_an_output_directory_that_was_deleted_is_claimed_again(job: Path) -> None:
    for file in (job / "out").iterdir():
        file.unlink()
    (job / "out").rmdir()
    add(job, BATCHES)
    assert run(job).exit_code == 0
    assert rows(job)
    assert "belongs to checkpoint" in run(job, "ckpt2").stderr


def test_an_output_directory_may_be_moved(job: Path) -> None:
    add(job, BATCHES)
    whole = run(job, "other-ckpt", "whole")
    assert whole.exit_code == 0
    (job / "out").rename(job / "moved")
    refused = run(job, out="elsewhere")
    assert refused.exit_code == 1
    assert "writes its rows to" in refused.stderr
    assert run(job, out="moved").exit_code == 0
    assert rows(job, "moved") == rows(job, "whole")


def test_a_copy_of_an_output_directory_is_not_taken_for_the_moved_one(job: Path) -> None:
    (job / "copy").mkdir()
    for file in (job / "out").iterdir():
        (job / "copy" / file.name).write_bytes(file.read_bytes())
    refused = run(job, out="copy")
    assert refused.exit_code == 1
    assert "writes its rows to" in refused.stderr


def test_a_directory_with_rows_of_others_is_refused_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README").write_text("rows of the evening")
    (tmp_path / "out" / "yesterday.csv").write_text("k,first,second\n1,2,3\n")
    for refused in (run(tmp_path), run_without_checkpoint(tmp_path)):
        assert refused.exit_code == 1
        assert "yesterday.csv" in refused.stderr
        assert "use an empty output directory" in refused.stderr
    (tmp_path / "out" / "yesterday.csv").unlink()
    assert run(tmp_path).exit_code == 0


def run_without_checkpoint(path: Path) -> Any:
    """Run without a checkpoint; it is refused before it waits for files."""
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={path / name},time=ts")]
    return CliRunner().invoke(
        cli.app, ["run", str(path / "query.sql"), *streams, "--follow", "--out", str(path / "out")]
    )


def test_a_run_without_a_checkpoint_does_not_write_into_the_output_of_another(job: Path) -> None:
    refused = run_without_checkpoint(job)
    assert refused.exit_code == 1
    assert f'belongs to checkpoint "{job / "ckpt"}"' in refused.stderr


def test_readers_of_the_output_do_not_see_the_owner(job: Path) -> None:
    # The stubs do not list JSON among the formats.
    found = pyarrow.dataset.dataset(job / "out", format="json")  # type: ignore[call-overload]
    assert found.count_rows() == len(rows(job))


def test_another_format_does_not_leave_the_rows_of_a_batch_twice(job: Path) -> None:
    state(job, BATCHES - 1).unlink()  # as if the process had stopped before the commit
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={job / name},time=ts,lateness=1s")]
    again = CliRunner().invoke(
        cli.app,
        [
            "run",
            str(job / "query.sql"),
            *streams,
            "--checkpoint",
            str(job / "ckpt"),
            "--out",
            str(job / "out"),
            "--format",
            "csv",
        ],
    )
    assert again.exit_code == 0, again.output
    assert [file.name for file in (job / "out").glob(f"part-*{BATCHES - 1}.*")] == [f"part-{BATCHES - 1:010d}.csv"]


# --- input files of a batch that runs again


@pytest.mark.parametrize("option", ["--fix", "--mend"])
def test_repair_does_not_fix_a_state_whose_batch_has_lost_its_input(job: Path, option: str) -> None:
    newest = state(job, BATCHES - 1)
    newest.write_bytes(newest.read_bytes()[:-7])
    lost = job / "a" / f"{BATCHES - 1}.csv"
    content, times = lost.read_bytes(), lost.stat()
    lost.unlink()
    found = repair(job, option)
    assert found.exit_code == 1
    assert str(lost) in found.stdout
    assert "is missing" in found.stdout
    assert newest.exists()
    lost.write_bytes(content + b"9,1700000000000000\n")
    changed = repair(job, option)
    assert changed.exit_code == 1
    assert "has changed since" in changed.stdout
    lost.write_bytes(content)
    os.utime(lost, ns=(times.st_atime_ns, times.st_mtime_ns))
    before = rows(job)
    assert repair(job, option).exit_code == 0
    assert run(job).exit_code == 0
    assert rows(job) == before


def test_a_batch_in_flight_without_its_input_is_reported_by_the_input(job: Path) -> None:
    state(job, BATCHES - 1).unlink()  # as if the process had stopped before the commit
    lost = job / "b" / f"{BATCHES - 1}.csv"
    lost.unlink()
    before = rows(job)
    refused = run(job)
    assert refused.exit_code == 1
    assert f'input file "{lost}" of batch {BATCHES - 1}' in refused.stderr
    assert rows(job) == before
    found = repair(job, "--fix")
    assert found.exit_code == 1
    assert str(lost) in found.stdout

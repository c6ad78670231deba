"""`watersmeet run` on directories that grow, as a process: it keeps up, stops on Ctrl-C, survives kill -9, and goes on
where it stopped.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from watersmeet.cli import main as cli

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    return tmp_path


def add(path: Path, number: int) -> None:
    """A file of ten rows on each side, moved into place whole; each key meets itself once in every file."""
    for name in ("a", "b"):
        rows = [f"{number * 100 + i},{1_700_000_000_000_000 + number * 60_000_000 + i * 1000}" for i in range(10)]
        hidden = path / name / f".{number}"
        hidden.write_text("\n".join(["k,ts", *rows]) + "\n")
        hidden.rename(path / name / f"{number}.csv")


def arguments(path: Path, *more: object) -> list[str]:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={path / name},time=ts,lateness=1s")]
    return [
        "run",
        str(path / "query.sql"),
        *streams,
        "--checkpoint",
        str(path / "ckpt"),
        "--out",
        str(path / "out"),
        *map(str, more),
    ]


def started(path: Path, *more: object) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        "from watersmeet.cli.main import main; main()",
        *arguments(path, "--format", "jsonl", "--json", *more),
    ]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def next_batch(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return json.loads(line)


def batch_that_completes(process: subprocess.Popen[str], rows: int) -> int:
    """Return the number of the batch with which so many rows have come: files that appear one after the other may come
    in two batches.
    """
    while rows > 0:
        figures = next_batch(process)
        rows -= sum(figures["rows_in"].values())
    assert rows == 0
    return int(figures["batch"])


def keys(path: Path) -> list[int]:
    lines = [line for file in sorted((path / "out").glob("part-*.jsonl")) for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["k"] for line in lines)


def expected(*numbers: int) -> list[int]:
    return sorted(number * 100 + i for number in numbers for i in range(10))


def test_it_keeps_up_stops_cleanly_on_ctrl_c_and_goes_on_where_it_stopped(growing: Path) -> None:
    first = started(growing, "--follow")
    assert next_batch(first)["rows_out"] == 10
    add(growing, 1)
    last = batch_that_completes(first, 20)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate()
    assert first.returncode == 130
    assert "stopped: 20 rows" in said
    assert "rerun the same command to resume" in said
    assert "Traceback" not in said
    assert keys(growing) == expected(0, 1)

    add(growing, 2)
    second = started(growing, "--follow")
    assert next_batch(second)["batch"] == last + 1
    second.terminate()
    _, said = second.communicate()
    assert f"resumed after batch {last}" in said
    assert keys(growing) == expected(0, 1, 2)


def test_a_kill_loses_nothing_and_doubles_nothing(growing: Path) -> None:
    numbers = [0]
    for number in range(1, 4):
        process = started(growing, "--follow")
        next_batch(process)
        add(growing, number)
        numbers.append(number)
        process.kill()  # somewhere between seeing the new files and having committed them, or before
        process.communicate()
    last = started(growing)  # without --follow: what is there, and no more
    _, said = last.communicate()
    assert last.returncode == 0, said
    assert keys(growing) == expected(*numbers)


def test_without_follow_it_ends_when_all_files_are_read(growing: Path) -> None:
    result = CliRunner().invoke(cli.app, arguments(growing, "--format", "csv"))
    assert result.exit_code == 0, result.output
    assert "all files processed: 10 rows in 1 batch" in result.stderr
    assert sorted(file.name for file in (growing / "out").iterdir()) == [
        "_watersmeet_owner.json",
        "part-0000000000.csv",
    ]


def test_a_job_file_says_it_all(growing: Path) -> None:
    (growing / "job.toml").write_text(
        """
        query = "query.sql"
        out = "out"
        format = "jsonl"
        checkpoint = "ckpt"

        [streams.a]
        path = "a"
        time = "ts"
        lateness = "1 second"

        [streams.b]
        path = "b"
        time = "ts"
        """
    )
    result = CliRunner().invoke(cli.app, ["run", "--config", str(growing / "job.toml")])
    assert result.exit_code == 0, result.output
    assert keys(growing) == expected(0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("query = ", "is not TOML"),
        ("folow = true", 'no setting "folow"'),
        ("query = 5", "query must be text"),
        ('follow = "yes"', "follow must be true or false"),
        ('[streams.a]\npath = "a"', "streams.a needs its time"),
        ('[streams.a]\npath = "a"\ntime = "ts"\nlatenes = "5s"', 'no setting "latenes"'),
        ("streams = 5", "must be a section"),
    ],
)
def test_a_mistake_in_a_job_file_is_named(growing: Path, text: str, words: str) -> None:
    (growing / "job.toml").write_text(text)
    result = CliRunner().invoke(cli.app, ["run", str(growing / "query.sql"), "--config", str(growing / "job.toml")])
    assert result.exit_code == 1, result.output
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_repair_says_what_is_wrong_and_mends_it_and_the_run_goes_on(growing: Path) -> None:
    lines = arguments(growing, "--format", "jsonl")
    CliRunner().invoke(cli.app, lines)
    add(growing, 1)
    CliRunner().invoke(cli.app, lines)
    fine = CliRunner().invoke(cli.app, ["repair", str(growing / "ckpt")])
    assert fine.exit_code == 0
    assert "has no problems" in fine.stdout
    state = growing / "ckpt" / "states" / "0000000001.run"
    state.write_bytes(state.read_bytes()[:-7])
    refused = CliRunner().invoke(cli.app, lines)
    assert refused.exit_code == 1
    assert "watersmeet repair" in refused.stderr
    broken = CliRunner().invoke(cli.app, ["repair", str(growing / "ckpt"), "--json"])
    assert broken.exit_code == 1
    assert json.loads(broken.stdout)["findings"][0]["can_be_mended"]
    mended = CliRunner().invoke(cli.app, ["repair", str(growing / "ckpt"), "--mend"])
    assert mended.exit_code == 0, mended.output
    add(growing, 2)
    again = CliRunner().invoke(cli.app, lines)
    assert again.exit_code == 0, again.output
    assert keys(growing) == expected(0, 1, 2)

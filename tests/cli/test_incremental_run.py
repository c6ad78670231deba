"""`watersmeet run` on growing directories, as a process: it stops on Ctrl-C, survives kill -9, and resumes."""

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
def input_directory(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "query.sql").write_text(QUERY)
    add_files(tmp_path, 0)
    return tmp_path


def add_files(path: Path, number: int) -> None:
    """Move a complete file of ten rows into each directory; each key of the file matches itself once."""
    for name in ("a", "b"):
        rows = [f"{number * 100 + i},{1_700_000_000_000_000 + number * 60_000_000 + i * 1000}" for i in range(10)]
        hidden = path / name / f".{number}"
        hidden.write_text("\n".join(["k,ts", *rows]) + "\n")
        hidden.rename(path / name / f"{number}.csv")


def run_arguments(path: Path, *more: object) -> list[str]:
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


def start_run(path: Path, *more: object) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        "from watersmeet.cli.main import main; main()",
        *run_arguments(path, "--format", "jsonl", "--json", *more),
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
    """Return the number of the batch that completes `rows` input rows: two new files may arrive in two batches."""
    while rows > 0:
        figures = next_batch(process)
        rows -= sum(figures["rows_in"].values())
    assert rows == 0
    return int(figures["batch"])


def read_keys(path: Path) -> list[int]:
    lines = [line for file in sorted((path / "out").glob("part-*.jsonl")) for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["k"] for line in lines)


def expected_keys(*numbers: int) -> list[int]:
    return sorted(number * 100 + i for number in numbers for i in range(10))


def test_a_run_stops_cleanly_on_ctrl_c_and_resumes(input_directory: Path) -> None:
    first = start_run(input_directory, "--follow")
    assert next_batch(first)["rows_out"] == 10
    add_files(input_directory, 1)
    last = batch_that_completes(first, 20)
    first.send_signal(signal.SIGINT)
    _, stderr = first.communicate()
    assert first.returncode == 130
    assert "stopped: 20 result rows" in stderr
    assert "rerun the same command to resume" in stderr
    assert "Traceback" not in stderr
    assert read_keys(input_directory) == expected_keys(0, 1)

    add_files(input_directory, 2)
    second = start_run(input_directory, "--follow")
    assert next_batch(second)["batch"] == last + 1
    second.terminate()
    _, stderr = second.communicate()
    assert f"resumed after batch {last}" in stderr
    assert read_keys(input_directory) == expected_keys(0, 1, 2)


def test_a_killed_run_loses_and_duplicates_no_rows(input_directory: Path) -> None:
    numbers = [0]
    for number in range(1, 3):
        process = start_run(input_directory, "--follow")
        next_batch(process)
        add_files(input_directory, number)
        numbers.append(number)
        process.kill()  # before the commit of the new files, at a random point
        process.communicate()
    last = start_run(input_directory)  # without --follow, it processes the available files and exits
    _, stderr = last.communicate()
    assert last.returncode == 0, stderr
    assert read_keys(input_directory) == expected_keys(*numbers)


def test_without_follow_the_run_exits_after_all_files(input_directory: Path) -> None:
    result = CliRunner().invoke(cli.app, run_arguments(input_directory, "--format", "csv"))
    assert result.exit_code == 0, result.output
    assert "all files processed: 10 result rows in 1 batch" in result.stderr
    assert sorted(file.name for file in (input_directory / "out").iterdir()) == [
        "_watersmeet_owner.json",
        "part-0000000000.csv",
    ]


def test_a_job_file_replaces_all_options(input_directory: Path) -> None:
    (input_directory / "job.toml").write_text(
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
    result = CliRunner().invoke(cli.app, ["run", "--config", str(input_directory / "job.toml")])
    assert result.exit_code == 0, result.output
    assert read_keys(input_directory) == expected_keys(0)


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
def test_an_error_in_a_job_file_is_reported(input_directory: Path, text: str, words: str) -> None:
    (input_directory / "job.toml").write_text(text)
    result = CliRunner().invoke(
        cli.app, ["run", str(input_directory / "query.sql"), "--config", str(input_directory / "job.toml")]
    )
    assert result.exit_code == 1, result.output
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_repair_reports_and_fixes_a_damaged_state_and_the_run_resumes(input_directory: Path) -> None:
    lines = run_arguments(input_directory, "--format", "jsonl")
    CliRunner().invoke(cli.app, lines)
    add_files(input_directory, 1)
    CliRunner().invoke(cli.app, lines)
    fine = CliRunner().invoke(cli.app, ["repair", str(input_directory / "ckpt")])
    assert fine.exit_code == 0
    assert "has no problems" in fine.stdout
    state = input_directory / "ckpt" / "states" / "0000000001.run"
    state.write_bytes(state.read_bytes()[:-7])
    refused = CliRunner().invoke(cli.app, lines)
    assert refused.exit_code == 1
    assert "watersmeet repair" in refused.stderr
    broken = CliRunner().invoke(cli.app, ["repair", str(input_directory / "ckpt"), "--json"])
    assert broken.exit_code == 1
    assert json.loads(broken.stdout)["findings"][0]["can_be_mended"]
    mended = CliRunner().invoke(cli.app, ["repair", str(input_directory / "ckpt"), "--mend"])
    assert mended.exit_code == 0, mended.output
    add_files(input_directory, 2)
    again = CliRunner().invoke(cli.app, lines)
    assert again.exit_code == 0, again.output
    assert read_keys(input_directory) == expected_keys(0, 1, 2)

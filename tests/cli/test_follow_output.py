"""`watersmeet run --follow` says at once what it waits for, and then what it does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.cli.conftest import QUERY

PROGRESS_LINE = re.compile(
    r"\d\d:\d\d:\d\d  1 batch, 20 rows in \(\S+ rows/s\), 10 rows out, 0 late, 0 shed, "
    r"state 20 rows \(\S+ \w+\), lag 0 s"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "query.sql").write_text(QUERY)
    return tmp_path


def add_file(directory: Path, name: str) -> None:
    rows = "".join(f"{i},{1_700_000_000_000_000 + i * 1000}\n" for i in range(10))
    hidden = directory / name / ".new"
    hidden.write_text("k,ts\n" + rows)
    hidden.rename(directory / name / "0.csv")


def follow(directory: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "watersmeet", "run", "query.sql", "--follow", *more]
    streams = ["--stream", "a=a,time=ts", "--stream", "b=b,time=ts"]
    return subprocess.Popen(
        [*command, *streams],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(stream: IO[str] | None, last: str | re.Pattern[str]) -> list[str]:
    """Read lines up to the first one that matches."""
    assert stream is not None
    lines: list[str] = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if re.fullmatch(last, lines[-1]):
            return lines
    raise AssertionError(f"the command ended with {lines}")


def test_it_says_at_once_what_it_waits_for(directory: Path) -> None:
    add_file(directory, "a")
    process = follow(directory)
    assert read_until(process.stderr, "Ctrl-C .*") == [
        "query.sql joins new files as they appear:",
        "  a  a  1 file",
        "  b  b  no file yet",
        "dashboard: add --ui to open it",
        "Ctrl-C finishes the current batch and stops.",
    ]
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr == "stopped while waiting for the first file of b\n"


def test_it_reports_the_first_batch_and_the_end(directory: Path) -> None:
    process = follow(directory)
    read_until(process.stderr, "Ctrl-C .*")
    for name in ("a", "b"):
        add_file(directory, name)
    read_until(process.stderr, PROGRESS_LINE)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr == "stopped: 10 result rows in 1 batch\n"
    assert len(stdout.splitlines()) == 11


def test_a_misspelt_stream_is_reported_before_the_first_file(directory: Path) -> None:
    (directory / "query.sql").write_text(QUERY.replace("b [RANGE", "c [RANGE").replace("b.k", "c.k"))
    process = follow(directory)
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert stderr.startswith('watersmeet: there is no stream or relation "c"')
    assert "declared: a, b" in stderr


def test_quiet_prints_rows_only(directory: Path) -> None:
    for name in ("a", "b"):
        add_file(directory, name)
    process = follow(directory, "--quiet", "--json")
    read_until(process.stdout, '{"k": 9}')
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert stderr == ""
    assert process.returncode == 130

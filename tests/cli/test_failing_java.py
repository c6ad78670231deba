"""Java that does not start or exits at once: one paragraph that quotes Java, and no stack trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.progress_lines import remove_progress_lines
from tests.cli.test_usage_errors import run_failing, stream_options

ANSWERS_ITS_VERSION = """if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi"""


def fake_java(folder: Path, *lines: str) -> Path:
    java = folder / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    java.chmod(0o755)
    return java.parent.parent


def run_on_spark(files: Path, home: Path | None, job: str = "") -> str:
    """Run the command in a separate process, because an active session of this process would be reused."""
    (files / "job.toml").write_text(f'query = "query.sql"\n{job}')
    command = [
        sys.executable,
        "-m",
        "watersmeet",
        "run",
        "--config",
        str(files / "job.toml"),
        *stream_options(files),
        "--engine",
        "spark",
    ]
    environment = {**os.environ, "TMPDIR": str(files)} | ({} if home is None else {"JAVA_HOME": str(home)})
    found = subprocess.run(
        command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
    )
    assert found.returncode == 1, found.stderr
    assert remove_progress_lines(found.stderr).startswith("watersmeet: ")
    assert "Traceback" not in found.stderr
    assert len(found.stderr) < 900
    return found.stderr


@pytest.mark.parametrize("code", [0, 1, 134])
def test_a_java_that_ends_at_once_is_refused_before_spark_starts(
    files: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(files, "echo no room >&2", f"exit {code}")))
    words = run_failing("run", files / "query.sql", *stream_options(files), "--engine", "spark")
    assert f"exited with code {code} and printed no room" in words


def test_a_java_that_cannot_be_executed_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(files)
    (home / "bin" / "java").write_text("no program")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert "cannot be started" in run_failing("run", files / "query.sql", *stream_options(files), "--engine", "spark")


def test_a_java_on_the_path_that_ends_at_once_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake_java(files, "exit 3") / "bin"))
    assert "exited with code 3 and printed nothing" in run_failing(
        "run", files / "query.sql", *stream_options(files), "--engine", "spark"
    )


@pytest.mark.parametrize("code", [0, 1])
def test_a_java_process_that_dies_while_spark_starts_is_reported(files: Path, code: int) -> None:
    home = fake_java(files, ANSWERS_ITS_VERSION, "echo no room for a heap >&2", f"exit {code}")
    assert "Spark did not start: no room for a heap" in run_on_spark(files, home)


def test_a_java_process_that_ends_without_an_error_is_not_waited_for(files: Path) -> None:
    options = 'spark.driver.extraJavaOptions = "-version"'  # Java prints its version and ends with code 0
    assert "Spark did not start: openjdk version" in run_on_spark(files, None, options)


def test_a_heap_of_no_size_is_reported_in_the_words_of_java(files: Path) -> None:
    words = run_on_spark(files, None, '[spark]\ndriver.memory = "bogus"')
    assert "Spark did not start: Invalid maximum heap size: -Xmxbogus" in words

"""Common mistakes of new users: each is reported in one paragraph with a remedy, and no stack trace."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import QUERY
from tests.cli.progress_lines import remove_progress_lines
from watersmeet.cli import main as cli


def run_failing(*args: object) -> str:
    result: Any = CliRunner().invoke(cli.app, [str(arg) for arg in args])
    assert result.exit_code == 1, result.output
    stderr = remove_progress_lines(result.stderr)
    assert stderr.startswith("watersmeet: ")
    assert "Traceback" not in result.output
    assert len(stderr) < 900
    return stderr


def stream_options(files: Path, **changed: str) -> list[str]:
    given = {"a": f"{files}/a.csv,time=ts", "b": f"{files}/b.csv,time=ts", **changed}
    return [part for name, text in given.items() for part in ("--stream", f"{name}={text}")]


def test_a_wrong_path(files: Path) -> None:
    words = run_failing("run", files / "query.sql", *stream_options(files, a=f"{files}/c.csv,time=ts"))
    assert f'no file or directory "{files}/c.csv"' in words


def test_a_wrong_path_with_follow(files: Path) -> None:
    words = run_failing("run", files / "query.sql", *stream_options(files, a=f"{files}/c,time=ts"), "--follow")
    assert "create the directory first" in words


def test_a_missing_time_column_setting(files: Path) -> None:
    assert "--stream a=PATH,time=COLUMN" in run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{files}/a.csv")
    )


def test_a_time_column_that_does_not_exist(files: Path) -> None:
    words = run_failing("run", files / "query.sql", *stream_options(files, a=f"{files}/a.csv,time=when"))
    assert '"when"' in words
    assert "existing columns: k, ts" in words


def test_a_misspelt_column(files: Path) -> None:
    (files / "query.sql").write_text(QUERY.replace("a.k = b.k", "a.kk = b.k"))
    words = run_failing("run", files / "query.sql", *stream_options(files))
    assert "^^^^" in words
    assert "existing columns: k, ts" in words


def test_a_misspelt_stream(files: Path) -> None:
    (files / "query.sql").write_text(QUERY.replace("FROM a", "FROM aa AS a"))
    words = run_failing("run", files / "query.sql", *stream_options(files))
    assert "aa" in words
    assert "a, b" in words


def test_a_missing_window(files: Path) -> None:
    (files / "query.sql").write_text(QUERY.replace(" [RANGE 10 SECONDS],", ","))
    (files / "query.sql").write_text("SELECT a.k FROM a, b WHERE a.k = b.k")
    words = run_failing("run", files / "query.sql", *stream_options(files))
    assert "has no window" in words
    assert "[RANGE 10 SECONDS]" in words


@pytest.mark.parametrize("content", [b"", b"PAR1 this is no parquet file"])
def test_a_file_that_cannot_be_read(files: Path, content: bytes) -> None:
    (files / "a.parquet").write_bytes(content)
    assert f"{files}/a.parquet" in run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{files}/a.parquet,time=ts")
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_read_permission(files: Path) -> None:
    (files / "a.csv").chmod(0)
    assert "Permission denied" in run_failing("run", files / "query.sql", *stream_options(files))


def test_a_file_as_the_output_of_an_incremental_run(files: Path) -> None:
    words = run_failing("run", files / "query.sql", *stream_options(files), "--follow", "--out", files / "rows.csv")
    assert f"--out {files}/rows --format csv" in words


def test_an_unknown_format(files: Path) -> None:
    assert "formats: parquet, csv, jsonl" in run_failing(
        "run", files / "query.sql", *stream_options(files), "--follow", "--format", "xml"
    )


@pytest.mark.parametrize("command", ["ui", "run"])
def test_a_port_that_is_taken(files: Path, command: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        more = ["--ui"] if command == "run" else []
        words = run_failing(command, files / "query.sql", *stream_options(files), "--port", port, *more)
    assert f"cannot listen on port {port}" in words
    assert "--port 0" in words


@pytest.mark.parametrize("home", ["/nowhere", None])
def test_no_java(files: Path, monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", home)
    words = run_failing("run", files / "query.sql", *stream_options(files), "--engine", "spark")
    assert "Spark needs Java 17 or newer" in words
    assert "apt-get install" in words
    assert "--engine embedded" in words


def test_a_java_that_is_too_old(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "bin").mkdir()
    java = files / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(files))
    assert f'"{java}" is Java 11' in run_failing(
        "run", files / "query.sql", *stream_options(files), "--engine", "spark"
    )


def test_a_stream_of_the_query_that_is_not_declared(files: Path) -> None:
    words = run_failing("run", files / "query.sql", "--stream", f"a={files}/a.csv,time=ts")
    assert 'there is no stream or relation "b"' in words
    assert "declared: a" in words


def test_invalid_times(files: Path) -> None:
    (files / "a.csv").write_text("k,ts\n1,yesterday\n")
    words = run_failing("run", files / "query.sql", *stream_options(files))
    assert "row 1 has a time that cannot be read" in words
    assert "2024-01-31T12:00:00Z" in words


def test_a_text_column_as_the_time(files: Path) -> None:
    (files / "a.csv").write_text("k,ts\nx,2024-01-01T00:00:00Z\n")
    assert "column \"k\" is 'x'" in run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{files}/a.csv,time=k")
    )


@pytest.mark.parametrize(
    ("out", "words"), [("nowhere/x.csv", "there is no directory"), ("x.xml", "known formats: .parquet, .csv, .jsonl")]
)
def test_an_output_that_cannot_be_written(files: Path, out: str, words: str) -> None:
    assert words in run_failing("run", files / "query.sql", *stream_options(files), "--out", files / out)


def test_a_file_in_place_of_the_output_directory(files: Path) -> None:
    (files / "rows").write_text("")
    words = run_failing(
        "run", files / "query.sql", *stream_options(files), "--checkpoint", files / "ckpt", "--out", files / "rows"
    )
    assert "name a directory" in words


def test_an_input_of_an_unknown_format(files: Path) -> None:
    (files / "a.xyz").write_text("k,ts\n")
    assert ".parquet, .csv" in run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{files}/a.xyz,time=ts")
    )


def test_an_empty_directory_that_is_not_followed(files: Path) -> None:
    (files / "empty").mkdir()
    assert "has no data files" in run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{files}/empty,time=ts")
    )
    words = run_failing(
        "run", files / "query.sql", *stream_options(files, a=f"{files}/empty,time=ts"), "--checkpoint", files / "ckpt"
    )
    assert "--follow waits for them" in words


def test_follow_on_spark_needs_a_checkpoint(files: Path) -> None:
    assert "--checkpoint DIR" in run_failing(
        "run", files / "query.sql", *stream_options(files), "--engine", "spark", "--follow"
    )


def test_neither_a_query_nor_a_job_file() -> None:
    result = CliRunner().invoke(cli.app, ["run"])
    assert result.exit_code == 2
    assert "--config" in result.output

"""The query of a command is a file, or the text itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import QUERY
from watersmeet.cli import main as cli


def invoke(*args: object) -> Any:
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def stream_options(files: Path) -> list[str]:
    return ["--stream", f"a={files}/a.csv,time=ts", "--stream", f"b={files}/b.csv,time=ts"]


@pytest.mark.parametrize("query", [QUERY, f"\n  {QUERY.lower()}"])
def test_run_takes_the_text_of_a_query(files: Path, query: str) -> None:
    result = invoke("run", query, *stream_options(files))
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == ["k", "1", "1", "row"]


def test_explain_takes_the_text_of_a_query(files: Path) -> None:
    result = invoke("explain", QUERY, *stream_options(files))
    assert result.exit_code == 0, result.output
    assert "10 seconds apart" in result.stdout


def test_an_error_in_the_text_points_at_its_position(files: Path) -> None:
    result = invoke("run", QUERY.replace("SELECT", "SELEC"), *stream_options(files))
    assert result.exit_code == 1
    assert "1 | SELEC a.k" in result.stderr
    assert "^^^^^" in result.stderr


def test_an_existing_file_is_read_even_if_its_name_looks_like_sql(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    (files / "query.sql").rename(files / "select all from a")
    result = invoke("run", "select all from a", *stream_options(files))
    assert result.exit_code == 0, result.output


def test_a_misspelt_file_name_is_answered_with_the_similar_one(files: Path) -> None:
    result = invoke("run", files / "query1.sql", *stream_options(files))
    assert result.exit_code == 1
    assert f'query file "{files / "query1.sql"}" cannot be read: No such file or directory' in result.stderr
    assert f"did you mean {files / 'query.sql'}?" in result.stderr
    assert 'watersmeet run "SELECT ..."' in result.stderr


def test_a_missing_directory_is_named(files: Path) -> None:
    result = invoke("run", files / "nowhere" / "query.sql", *stream_options(files))
    assert result.exit_code == 1
    assert f'there is no directory "{files / "nowhere"}"' in result.stderr


def test_a_query_that_is_longer_than_any_file_name(files: Path) -> None:
    result = invoke("run", QUERY + " AND a.k < 10" * 1_000, *stream_options(files))
    assert result.exit_code == 0, result.output

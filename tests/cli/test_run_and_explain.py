"""`watersmeet run` and `watersmeet explain`: output, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.cli.progress_lines import remove_progress_lines
from watersmeet.cli import main as cli
from watersmeet.cli import run as job

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Write two streams of two rows each, and the query that joins them."""
    #  s      0    5    11
    #  a      1         1
    #  b           1    2
    second = 1_000_000
    for name, keys, seconds in [("a", [1, 1], [0, 11]), ("b", [1, 2], [5, 11])]:
        at = pa.array([each * second for each in seconds], pa.timestamp("us"))
        pacsv.write_csv(pa.table({"k": keys, "ts": at}), tmp_path / f"{name}.csv")
    (tmp_path / "query.sql").write_text(QUERY)
    return tmp_path


def invoke(*args: object) -> Any:
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def _streams(files: Path) -> list[str]:
    return ["--stream", f"a={files}/a.csv,time=ts", "--stream", f"b={files}/b.csv,time=ts,lateness=5s"]


def test_run_prints_the_rows_and_their_number(files: Path) -> None:
    result = invoke("run", files / "query.sql", *_streams(files))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["k", "first", "second"]
    assert lines[-1] == "2 rows"
    assert len(lines) == 4


def test_run_prints_at_most_limit_rows(files: Path) -> None:
    result = invoke("run", files / "query.sql", *_streams(files), "--limit", 1)
    assert result.stdout.splitlines()[-1] == "2 rows, the first 1 shown"
    assert len(result.stdout.splitlines()) == 3


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_run_writes_the_rows_to_a_file(files: Path, suffix: str) -> None:
    out = files / f"rows{suffix}"
    result = invoke("run", files / "query.sql", *_streams(files), "--out", out)
    assert result.exit_code == 0, result.output
    assert "2 rows written" in result.stdout
    table = wm.relation(out).batches()
    assert [row["k"] for batch in table for row in batch.to_pylist()] == [1, 1]
    assert not [path for path in files.iterdir() if path.name.startswith(".")]


def test_a_relation_joins_with_the_streams(files: Path) -> None:
    pq.write_table(pa.table({"k": [1], "name": ["one"]}), files / "names.parquet")
    (files / "query.sql").write_text("SELECT n.name FROM a [RANGE 1 SECOND] AS a, names AS n WHERE a.k = n.k")
    result = invoke("run", files / "query.sql", *_streams(files)[:2], "--relation", f"names={files}/names.parquet")
    assert result.exit_code == 0, result.output
    assert result.stdout.split()[:3] == ["name", "one", "one"]


def test_explain_prints_the_time_bounds(files: Path) -> None:
    result = invoke("explain", files / "query.sql", *_streams(files))
    assert result.exit_code == 0, result.output
    assert "10 seconds apart" in result.stdout


def test_explain_prints_json(files: Path) -> None:
    result = invoke("explain", files / "query.sql", *_streams(files), "--json")
    assert json.loads(result.stdout)["pairs"][0]["within_us"] == 10_000_000


def test_shells_can_complete_the_command() -> None:
    assert "--install-completion" in invoke("--help").stdout
    script = subprocess.run(
        [sys.executable, "-c", "from watersmeet.cli.main import main; main()"],
        env={**os.environ, "_WATERSMEET_COMPLETE": "complete_bash", "COMP_WORDS": "watersmeet re", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "repair" in script.stdout


def test_version() -> None:
    assert invoke("--version").stdout == f"watersmeet {wm.__version__}\n"


# --- errors


def read_error(result: Any) -> str:
    assert result.exit_code == 1, result.output
    stderr = remove_progress_lines(result.stderr)
    assert stderr.startswith("watersmeet: ")
    assert "Traceback" not in stderr
    return stderr


def test_an_error_in_the_query_points_at_its_position(files: Path) -> None:
    (files / "query.sql").write_text(QUERY.replace("a.k = b.k", "a.prize = b.k"))
    error = read_error(invoke("run", files / "query.sql", *_streams(files)))
    assert "prize" in error
    assert "^^^" in error


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("a", "does not name its source"),
        ("=x.csv", "does not name its source"),
        ("a=", '"a" has no path'),
        ("a=nothing.csv,time=ts", 'no file or directory "nothing.csv"'),
        ("a=nothing.csv", 'stream "a" has no time column'),
        ("a=nothing.csv,tme=ts", 'unknown setting "tme"'),
        ("a=nothing.csv,time=ts,time=ts", '"a" has time twice'),
        ("a=nothing.csv,time=ts,lateness=soon", "'soon' is not a lateness"),
    ],
)
def test_an_error_in_a_stream_option_is_reported_with_its_remedy(files: Path, stream: str, words: str) -> None:
    assert words in read_error(invoke("run", files / "query.sql", "--stream", stream))


def test_a_source_declared_twice_is_refused(files: Path) -> None:
    assert 'source "a" is declared twice' in read_error(
        invoke("run", files / "query.sql", *_streams(files), *_streams(files))
    )


def test_a_path_may_contain_commas_and_equals_signs(files: Path) -> None:
    odd = files / "x=1,y=2.csv"
    (files / "a.csv").rename(odd)
    result = invoke("run", files / "query.sql", "--stream", f"a={odd},time=ts", *_streams(files)[2:])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["rows.xlsx", "rows", "nowhere/rows.csv"])
def test_an_unwritable_output_is_refused_before_the_query_runs(
    files: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wm, "run", lambda *_: pytest.fail("the query ran"))
    read_error(invoke("run", files / "query.sql", *_streams(files), "--out", files / name))


def test_a_missing_or_binary_query_file_is_named(files: Path) -> None:
    assert 'query file "nothing.sql" cannot be read' in read_error(invoke("run", "nothing.sql"))
    (files / "query.sql").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in read_error(invoke("run", files / "query.sql"))


def test_without_java_spark_is_refused_with_a_remedy(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(files))
    words = read_error(invoke("run", files / "query.sql", *_streams(files), "--engine", "spark"))
    assert "Spark needs Java 17 or newer" in words
    assert "openjdk-17-jre-headless" in words


def test_wrong_usage_exits_with_code_two(files: Path) -> None:
    assert invoke("run").exit_code == 2
    assert invoke("run", files / "query.sql", "--engine", "abacus").exit_code == 2
    assert invoke("fly").exit_code == 2


def test_an_interrupt_exits_quietly_with_code_130(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wm, "run", interrupt)
    result = invoke("run", files / "query.sql", *_streams(files))
    assert result.exit_code == 130
    assert result.output == ""


def test_late_rows_are_reported(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = json.dumps({"ledger": {"a": {"arrived": 10, "kept": 7, "shed": 0, "late": 3}}})
    monkeypatch.setattr(
        job, "collect_rows", lambda *_: pa.table({"k": [1]}).replace_schema_metadata({"watersmeet": ledger})
    )
    stderr = invoke("run", files / "query.sql", *_streams(files)).stderr
    assert remove_progress_lines(stderr) == "3 late rows dropped from a, of 10 that arrived\n"


def test_values_cannot_steer_the_terminal(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "collect_rows", lambda *_: pa.table({"[red]k\x1b[2J": ["\x1b[31m[bold]x[/bold]\x07\n"]}))
    shown = invoke("run", files / "query.sql", *_streams(files)).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert r"\x1b[31m[bold]x[/bold]\x07\n" in shown
    assert r"[red]k\x1b[2J" in shown


def test_the_installed_command_works_without_a_terminal(files: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from watersmeet.cli.main import main; main()",
        "run",
        str(files / "query.sql"),
        *_streams(files),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 rows"

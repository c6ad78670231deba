"""`watersmeet explain --checkpoint`: the verdict on a job that runs or ran, and where its first forecast was wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli import main as cli
from watersmeet.sources import directories

QUERY = "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


def _add_file(path: Path, number: int, rows: int) -> None:
    """Write a file that covers 60 seconds of event time."""
    for name in ("a", "b"):
        times = [1_700_000_000_000_000 + number * 60_000_000 + i * 60_000_000 // rows for i in range(rows)]
        lines = [f"{i},{time_us}" for i, time_us in enumerate(times)]
        (path / name).mkdir(exist_ok=True)
        (path / name / f"{number}.csv").write_text("\n".join(["k,ts", *lines]) + "\n")


def _invoke(*arguments: object) -> str:
    result = CliRunner().invoke(cli.app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_job_reports_its_verdict_and_the_rate_that_was_not_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "MAX_FILES_PER_BATCH", 1)
    for number, rows in enumerate([60, 600, 600, 600]):
        _add_file(tmp_path, number, rows)
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={tmp_path / name},time=ts")]
    out = ["--checkpoint", tmp_path / "ck", "--out", tmp_path / "out", "--json"]
    verdicts = [
        json.loads(line).get("verdict") for line in _invoke("run", QUERY, *streams, *out).splitlines() if line[0] == "{"
    ]
    assert verdicts == ["not known yet", "not known yet", "keeps up", "keeps up"]
    text = _invoke("explain", "--checkpoint", tmp_path / "ck")
    assert text.startswith("after batch 3: it keeps up: the next batch takes")
    assert "assumption that failed: rate of a: 1.02 rows/s (measured), measured 10 rows/s (9.8 times as many)" in text
    report = json.loads(_invoke("explain", "--checkpoint", tmp_path / "ck", "--json"))
    assert (report["batch"], report["verdict"]) == (3, "keeps up")


def test_a_directory_without_a_report_and_a_damaged_report_are_refused(tmp_path: Path) -> None:
    missing = CliRunner().invoke(cli.app, ["explain", "--checkpoint", str(tmp_path)])
    assert missing.exit_code == 1
    assert "has no report of a running job" in missing.stderr
    (tmp_path / "watersmeet").mkdir()
    (tmp_path / "watersmeet" / "live.json").write_text("[1]")
    damaged = CliRunner().invoke(cli.app, ["explain", "--checkpoint", str(tmp_path)])
    assert damaged.exit_code == 1
    assert "is damaged" in damaged.stderr

"""Events of a run: `--verbose`, `--log`, and Python's logging."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.cli.conftest import QUERY
from watersmeet.cli import main as cli


def invoke(files: Path, *args: object) -> Any:
    streams = ["--stream", f"a={files}/a.csv,time=ts", "--stream", f"b={files}/b.csv,time=ts"]
    return CliRunner().invoke(cli.app, ["run", QUERY, *streams, *map(str, args)])


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_log_is_one_object_per_event(files: Path) -> None:
    result = invoke(files, "--log", files / "run.jsonl", "--checkpoint", files / "ckpt", "--out", files / "out")
    assert result.exit_code == 0, result.output
    events = read_log(files / "run.jsonl")
    assert [each["event"] for each in events] == [
        "run_started",
        "plan_chosen",
        "batch_done",
        "checkpoint_written",
        "run_ended",
    ]
    assert all({"time", "level", "message"} <= set(each) for each in events)
    started, plan, batch, _, ended = events
    assert (started["engine"], started["sources"]["a"]) == ("embedded", f"{files}/a.csv")
    assert plan["plan"]["algorithm"] == "runs"
    assert (batch["level"], batch["rows_in"], batch["rows_out"]) == ("DEBUG", {"a": 1, "b": 1}, 1)
    assert ended["ledger"]["a"] == {"arrived": 1, "kept": 1, "shed": 0, "late": 0}
    assert "run started" not in result.stderr


def test_a_resumed_run_continues_its_log(files: Path) -> None:
    for _ in range(2):
        invoke(files, "--log", files / "run.jsonl", "--checkpoint", files / "ckpt", "--out", files / "out")
    assert [each["batch"] for each in read_log(files / "run.jsonl") if each["event"] == "run_resumed"] == [0]


def test_the_log_tells_of_a_failure(files: Path) -> None:
    (files / "b.csv").write_text("k,ts\n1,yesterday\n")
    assert invoke(files, "--log", files / "run.jsonl").exit_code == 1
    failure = read_log(files / "run.jsonl")[-1]
    assert (failure["event"], failure["level"]) == ("run_failed", "ERROR")
    assert "row 1 has a time that cannot be read" in failure["message"]


def test_a_log_that_cannot_be_written_is_refused(files: Path) -> None:
    result = invoke(files, "--log", files / "nowhere" / "run.jsonl")
    assert result.exit_code == 1
    assert 'run.jsonl" cannot be written: No such file or directory' in result.stderr


def test_verbose_prints_the_plan_and_the_batches(files: Path) -> None:
    stderr = invoke(files, "--verbose").stderr
    assert "plan: runs; a probes b; b probes a" in stderr
    assert "batch 0: 1 row of a, 1 row of b in, 1 row out" in stderr
    assert logging.getLogger("watersmeet").level == logging.NOTSET


def test_quiet_prints_rows_only(files: Path) -> None:
    result = invoke(files, "-q")
    assert (result.stdout.split(), result.stderr) == (["k", "1"], "")


def test_quiet_and_verbose_exclude_each_other(files: Path) -> None:
    assert invoke(files, "-q", "-v").exit_code == 2


# --- the library


def late_streams() -> dict[str, wm.Stream]:
    second = 1_000_000
    batches = [pa.table({"k": [1], "ts": pa.array([at * second], pa.timestamp("us"))}) for at in (100, 1)]
    return {name: wm.stream(batches, time="ts") for name in ("a", "b")}


def test_the_library_logs_its_events(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "watersmeet"):
        wm.collect(QUERY, late_streams())
    events = [(record.levelname, record.event) for record in caplog.records]  # type: ignore[attr-defined]
    assert events == [
        ("INFO", "run_started"),
        ("INFO", "plan_chosen"),
        ("DEBUG", "batch_done"),
        ("DEBUG", "batch_done"),
        ("INFO", "rows_late"),
        ("INFO", "run_ended"),
    ]
    assert "batch 1 dropped late rows: 1 of a, 1 of b" in caplog.messages


def test_without_a_handler_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    wm.collect(QUERY, late_streams())
    assert capfd.readouterr() == ("", "")

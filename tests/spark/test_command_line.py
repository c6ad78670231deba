"""`watersmeet run --engine spark` gives the rows of the embedded engine, on finite and growing data."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import watersmeet as wm
from tests.cli.progress_lines import remove_progress_lines
from watersmeet.cli import main as cli
from watersmeet.cli.spark import SparkJob, wait_for_columns
from watersmeet.runtime.spark.execution import collect_with_ledger
from watersmeet.runtime.spark.ui_names import watch_stages

from .sessions import quick_environment

QUERY = "SELECT a.k, a.ts AS first, b.ts AS second FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "query.sql").write_text(QUERY)
    add(tmp_path, 0)
    return tmp_path


def add(path: Path, number: int) -> None:
    for name in ("a", "b"):
        rows = "".join(
            f"{number * 100 + i},{1_700_000_000_000_000 + number * 60_000_000 + i * 1000}\n" for i in range(10)
        )
        (path / name / f"{number}.csv").write_text("k,ts\n" + rows)


def run_command(path: Path, *more: object) -> str:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={path / name},time=ts,lateness=1s")]
    result = CliRunner().invoke(
        cli.app, ["run", str(path / "query.sql"), *streams, "--engine", "spark", *map(str, more)]
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_follow_waits_for_the_first_files_and_ctrl_c_stops_cleanly_and_only_our_own_lines_reach_the_terminal(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={tmp_path / name},time=ts")]
    places = ["--checkpoint", str(tmp_path / "ckpt"), "--out", str(tmp_path / "out"), "--log", str(tmp_path / "log")]
    command = [sys.executable, "-m", "watersmeet", "run", QUERY, *streams, "--engine", "spark", "--follow", "--json"]
    with subprocess.Popen(
        [*command, *places],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=quick_environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        header = list(itertools.takewhile(lambda line: not line.startswith("dashboard"), process.stderr))
        assert header[1:] == [f"  {name}  {tmp_path / name}  no file yet\n" for name in ("a", "b")]
        while "waiting_for_files" not in (tmp_path / "log").read_text():  # Spark has started
            time.sleep(0.1)
        add(tmp_path, 0)
        assert json.loads(process.stdout.readline())["rows_out"] == 10
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    assert process.returncode == 130
    where = f"rerun the same command to resume; checkpoint: {tmp_path / 'ckpt'}"
    lines = remove_progress_lines(stderr).splitlines()
    hint = "Ctrl-C finishes the current batch and stops."  # it follows the address of the dashboard
    assert (stdout, lines) == ("", [hint, "stopped: 10 result rows", where])
    events = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert events[:4] == ["waiting_for_files", "run_started", "plan_chosen", "batch_done"]


def test_an_empty_directory_is_waited_for_only_with_follow(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    streams = {"a": wm.stream(tmp_path / "a", time="ts", follow=True)}
    stop = threading.Event()
    stop.set()
    waiting = SparkJob(wm.sql(QUERY), streams, tmp_path / "ckpt", None, "parquet", follow=True)
    assert wait_for_columns(waiting, stop, lambda names: None) == ["a"]
    with pytest.raises(wm.InputError, match="has no data files") as caught:
        wait_for_columns(replace(waiting, follow=False), stop, lambda names: None)
    assert caught.value.hint == "--follow waits for them"


def test_running_stages_are_described_from_another_thread(spark: SparkSession) -> None:
    describe = watch_stages()
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            seen.add(describe())

    watcher = threading.Thread(target=watch)
    watcher.start()
    spark.sparkContext.parallelize([0, 1], 2).foreach(lambda _: time.sleep(2))
    ended.set()
    watcher.join()
    assert any(re.fullmatch(r"running on Spark, stage \d+: \d of 2 tasks done", each) for each in seen), seen


def test_finite_data_gives_its_rows(growing: Path, spark: SparkSession) -> None:
    rows = [json.loads(line) for line in run_command(growing, "--json").splitlines()]
    assert sorted(row["k"] for row in rows) == list(range(10))


def test_the_ledger_of_finite_data_is_that_of_the_embedded_engine(growing: Path, spark: SparkSession) -> None:
    sources = {name: wm.stream(growing / name / "0.csv", time="ts") for name in ("a", "b")}
    plan = wm.Plan(drop=(("a", 0.5),))
    embedded, on_spark = wm.collect(QUERY, sources, plan=plan), collect_with_ledger(QUERY, sources, plan)
    ledger = json.loads(on_spark.schema.metadata[b"watersmeet"])
    assert ledger == json.loads(embedded.schema.metadata[b"watersmeet"])
    assert 0 < ledger["ledger"]["a"]["shed"] < 10
    summary = json.loads(run_command(growing, "--json", "--out", growing / "rows.parquet"))
    assert summary["ledger"] == {name: {"arrived": 10, "kept": 10, "shed": 0, "late": 0} for name in ("a", "b")}


def test_a_checkpoint_continues_with_new_files(growing: Path, spark: SparkSession) -> None:
    more = ("--checkpoint", growing / "ckpt", "--out", growing / "out", "--format", "jsonl", "--json")
    first = json.loads(run_command(growing, *more).splitlines()[0])
    assert (first["rows_out"], sum(first["rows_in"].values())) == (10, 20)
    assert first["newest_us"] == 1_700_000_000_009_000
    assert first["watermark_lag_s"] == 1.0
    assert {"ingest a", "store b", "probe", "spark: state", "spark: micro-batches"} <= set(first["operators_s"])
    add(growing, 1)
    (growing / "a" / "late.csv").write_text("k,ts\n3,1600000000000000\n")
    second = json.loads(run_command(growing, *more).splitlines()[0])
    assert second["late"] == {"a": 1, "b": 0}
    lines = [line for file in (growing / "out").glob("part-*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["k"] for line in lines) == [*range(10), *range(100, 110)]


def test_an_aggregation_beyond_its_budget_is_refused_on_both_engines(growing: Path) -> None:
    (growing / "query.sql").write_text(
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k "
        "GROUP BY a.k EVERY 1 SECOND"
    )
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={growing / name / '0.csv'},time=ts")]
    for engine in ("embedded", "spark"):
        command = ["run", str(growing / "query.sql"), *streams, "--engine", engine, "--processors", "1e-9"]
        result = CliRunner().invoke(cli.app, command)
        assert result.exit_code == 1
        assert "the query cannot keep up" in result.stderr

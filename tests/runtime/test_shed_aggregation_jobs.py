"""Shedding aggregations over growing directories.

Part files hold the estimates, and a restart after any batch changes no row.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli.main import app
from watersmeet.runtime.embedded.finite_input import read_input_streams, split_input
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource

SECOND = 1_000_000
BATCHES = 12
PLAN = wm.plan(drop={"a": 0.3, "b": 0.4}, drop_seed=5)
QUERIES = {
    "every second": """
        SELECT a.g, COUNT(*) AS n, SUM(a.x) AS total, AVG(b.y) AS mean, MIN(b.y) AS low
        FROM a [RANGE 7 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k GROUP BY a.g EVERY 1 SECOND
    """,
    "every batch": """
        SELECT a.g, COUNT(*) AS n, AVG(b.y) AS mean
        FROM a [RANGE 7 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k GROUP BY a.g
    """,
    "landmark": """
        SELECT COUNT(*) AS n, SUM(b.y) AS total
        FROM a [LANDMARK], b [RANGE 4 SECONDS] WHERE a.k = b.k EVERY 3 SECONDS
    """,
}


def write_file(path: Path, name: str, number: int) -> None:
    """Write one file of about three seconds of rows, out of order by up to a second."""
    rng = Random(f"{name}{number}")
    seconds = [3 * number + rng.random() * 4 for _ in range(30)]
    rows = pa.table(
        {
            "ts": pa.array([round(each * SECOND) for each in seconds], pa.int64()),
            "k": pa.array([rng.randrange(3) for _ in seconds], pa.int64()),
            "g": pa.array([rng.choice("xyz") for _ in seconds]),
            "x": pa.array([rng.randrange(50) for _ in seconds], pa.int64()),
            "y": pa.array([rng.random() for _ in seconds], pa.float64()),
        }
    )
    (path / name).mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path / name / f"{number:03d}.parquet")


def write_files(path: Path, number: int) -> None:
    for name in "ab":
        write_file(path, name, number)


def job(path: Path, query: str) -> IncrementalJob:
    sources: dict[str, Stream | Relation] = {
        name: Stream(FileSource(path / name, "ts"), "ts", lateness_us=SECOND) for name in "ab"
    }
    out = path / "out"
    return IncrementalJob(
        wm.sql(query), sources, PartFileSink(out), False, path / "ckpt", str(out), choose_plan=lambda: PLAN
    )


def run_uninterrupted(path: Path, query: str) -> None:
    """Run all batches in one process: the next files appear after each batch."""
    stop, files = threading.Event(), iter(range(1, BATCHES))

    def write_next(metrics: object) -> None:
        number = next(files, None)
        if number is None:
            stop.set()
        else:
            write_files(path, number)

    write_files(path, 0)
    run_incremental(replace(job(path, query), follow=True), stop, write_next)


def run_restarted(path: Path, query: str) -> None:
    """Run each batch as in a new process: all state comes from the checkpoint."""
    for number in range(BATCHES):
        write_files(path, number)
        assert run_incremental(job(path, query), threading.Event(), lambda metrics: None).batches == 1


def part_rows(path: Path) -> list[list[dict[str, Any]]]:
    return [pq.read_table(file).to_pylist() for file in sorted((path / "out").glob("part-*.parquet"))]


@pytest.mark.parametrize("evaluated", QUERIES)
def test_a_restart_after_every_batch_emits_the_rows_of_an_uninterrupted_run(tmp_path: Path, evaluated: str) -> None:
    run_uninterrupted(tmp_path / "whole", QUERIES[evaluated])
    run_restarted(tmp_path / "restarted", QUERIES[evaluated])
    whole = part_rows(tmp_path / "whole")
    assert sum(map(len, whole)) > 20 if evaluated != "landmark" else any(whole)
    assert all("n_stderr" in row for rows in whole for row in rows)
    assert part_rows(tmp_path / "restarted") == whole


def test_the_command_line_writes_estimates_over_directories_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "agg.sql").write_text(QUERIES["every second"])
    arguments = [
        "run",
        str(tmp_path / "agg.sql"),
        "--checkpoint",
        str(tmp_path / "ckpt"),
        "--out",
        str(tmp_path / "out"),
    ]
    arguments += ["--shed", "--memory", "1kB"]
    for name in "ab":
        arguments += ["--stream", f"{name}={tmp_path / name},time=ts"]
    for number in range(2):
        write_files(tmp_path, number)
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    rows = [row for part in part_rows(tmp_path) for row in part]
    assert rows
    assert all("n_stderr" in row for row in rows)


def test_a_shedding_aggregation_without_every_stays_one_batch_on_the_command_line() -> None:
    rows = 300_000
    table = pa.table(
        {"ts": pa.array(range(rows), pa.int64()), "k": pa.array([0] * rows), "g": ["x"] * rows, "y": [0.5] * rows}
    )
    streams = {name: wm.stream(table, time="ts") for name in "ab"}
    for plan in (PLAN, wm.plan()):
        run = wm.run(QUERIES["every batch"], streams, plan=plan)
        assert len(list(split_input(run, read_input_streams(run)))) == 1


def test_the_metrics_of_a_batch_count_the_matches_as_state(tmp_path: Path) -> None:
    found: list[Any] = []
    write_files(tmp_path, 0)
    progress = run_incremental(job(tmp_path, QUERIES["every second"]), threading.Event(), found.append)
    assert progress.run is not None
    assert found[0].state_rows > progress.run.state.join.rows
    assert found[0].state_bytes > progress.run.state.join.nbytes

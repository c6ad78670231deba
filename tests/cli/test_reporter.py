"""Reports of a run: lines in a pipe, a view on a terminal, nothing if quiet. Rows on stdout stay apart."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import QUERY
from watersmeet.cli import reporter as reports
from watersmeet.cli.reporter import LineReporter, TerminalReporter
from watersmeet.metrics import BatchMetrics


def batch(number: int, rows: int = 400) -> BatchMetrics:
    return BatchMetrics(
        number, time.time(), 0.5, {"a": rows}, 40, 900, 14_400, watermark_us=5_000_000, newest_us=7_000_000
    )


def wait_for_lines(output: io.StringIO, count: int) -> list[str]:
    while len(output.getvalue().splitlines()) < count:
        time.sleep(0.01)
    return [line[10:] for line in output.getvalue().splitlines()]  # without the time of day


def line_reporter(*, follow: bool) -> tuple[LineReporter, io.StringIO]:
    output = io.StringIO()
    return LineReporter(Console(file=output, width=200), "query.sql", follow=follow), output


def test_a_pipe_hears_of_a_finite_run_before_its_first_batch_and_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "FIRST_LINE_S", 0.0)
    reporter, output = line_reporter(follow=False)
    with reporter:
        reporter.enter_phase("reading a.csv")
        assert re.fullmatch(r"(starting|reading a\.csv), 0 s so far", wait_for_lines(output, 1)[0])
        reporter.expect_rows(400)
        reporter.observe(batch(0))
    assert wait_for_lines(output, 2)[1] == "400 of 400 rows (100 %), 800 rows/s, 40 rows out"


def test_a_short_finite_run_prints_no_line() -> None:
    reporter, output = line_reporter(follow=False)
    with reporter:
        reporter.observe(batch(0))
    assert output.getvalue() == ""


def test_an_idle_run_prints_fewer_and_fewer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "LINE_INTERVAL_S", 0.001)
    monkeypatch.setattr(reports, "_TICK_S", 0.001)
    reporter, output = line_reporter(follow=True)
    with reporter:
        reporter.observe(batch(0))
        while "no new rows" not in output.getvalue():
            time.sleep(0.001)
        printed = wait_for_lines(output, 5)
        interval_s = reporter._interval_s
        reporter.observe(batch(1))
        while "2 batches" not in output.getvalue():
            time.sleep(0.001)
    lines = [line for line in printed if not line.startswith("starting")]  # the first tick may come before the batch
    assert lines[0].startswith("1 batch, 400 rows in")
    assert lines[0].endswith("40 rows out, 0 late, 0 shed, state 900 rows (14.4 kB), lag 2 s")
    assert lines[-1].endswith("no new rows")
    assert interval_s >= 4 * reports.LINE_INTERVAL_S


def render_view(reporter: TerminalReporter) -> str:
    output = io.StringIO()
    Console(file=output, width=140, force_terminal=True, color_system=None).print(reporter)
    return output.getvalue()


def test_a_terminal_shows_the_share_done_and_the_time_left() -> None:
    reporter = TerminalReporter(Console(file=io.StringIO(), force_terminal=True), "query.sql")
    reporter.enter_phase("reading a.csv")
    assert "reading a.csv" in render_view(reporter)
    reporter.expect_rows(1_600)
    reporter.observe(batch(0))
    view = render_view(reporter)
    for words in ("query.sql", "25.0 %", "400 rows in", "800 rows/s", "40 out", "2 s left"):
        assert words in view


def test_a_terminal_shows_the_figures_of_a_run_without_an_end() -> None:
    reporter = TerminalReporter(Console(file=io.StringIO(), force_terminal=True), "query.sql", follow=True)
    reporter.observe(batch(3))
    view = render_view(reporter)
    for words in ("batch 3, 0 s ago", "800 rows/s", "900 rows", "14.4 kB", "2 s behind the newest row", "shed rows"):
        assert words in view


def run_on_terminal(command: list[str], directory: Path, rows: Path) -> str:
    """Run a command whose stderr is a terminal and whose stdout is a file; return what the terminal got."""
    terminal, its_end = pty.openpty()
    with (
        rows.open("wb") as opened,
        subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=its_end,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "140"},
        ) as process,
    ):
        os.close(its_end)
        shown = b""
        while True:
            try:
                piece = os.read(terminal, 10_000)
            except OSError:  # Linux reports the end of the other side as an error
                break
            if not piece:
                break
            shown += piece
    os.close(terminal)
    assert process.returncode == 0, shown
    return shown.decode()


def test_rows_that_go_to_a_file_do_not_mix_with_the_view_on_the_terminal(files: Path) -> None:
    streams = ["--stream", "a=a.csv,time=ts", "--stream", "b=b.csv,time=ts"]
    command = [sys.executable, "-m", "watersmeet", "run", QUERY, *streams, "--checkpoint", "ckpt", "--json"]
    shown = run_on_terminal(command, files, files / "rows.jsonl")
    assert (files / "rows.jsonl").read_text() == '{"k": 1}\n'
    assert "SELECT a.k FROM a" in shown  # the title of the live view
    assert '"k"' not in shown
    assert "all files processed: 1 result row in 1 batch" in shown

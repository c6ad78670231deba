"""The dashboard as the command line opens it: with a run, and without one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import OpenedPage
from watersmeet.dashboard.server import DashboardAddress

OpenDashboard = Callable[..., OpenedPage]


def start_command(*args: object) -> tuple[subprocess.Popen[str], DashboardAddress]:
    """Start the command and return it with the address of the dashboard that it printed."""
    command = [sys.executable, "-c", "from watersmeet.cli.main import main; main()", *map(str, args), "--port", "0"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    return process, read_address(process.stderr)


def read_address(stderr: IO[str]) -> DashboardAddress:
    """Read the lines of the command up to the one with the address of its dashboard."""
    lines = []
    for line in stderr:
        address = re.fullmatch(r"dashboard: http://127\.0\.0\.1:(\d+)/\?token=(\S+)\n", line)
        if address is not None:
            return DashboardAddress(int(address[1]), address[2])
        lines.append(line)
    raise AssertionError("".join(lines))


def interrupt(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    return stderr


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "query.sql").write_text("SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k")
    add(tmp_path, 0)
    return tmp_path


def add(path: Path, number: int) -> None:
    for name in ("a", "b"):
        rows = "".join(f"{i},{1_700_000_000_000_000 + number * 1_000_000 + i * 1000}\n" for i in range(100))
        hidden = path / name / f".{number}"
        hidden.write_text("k,ts\n" + rows)
        hidden.rename(path / name / f"{number}.csv")


def test_a_run_is_watched_while_files_appear(growing: Path, open_dashboard: OpenDashboard) -> None:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={growing / name},time=ts")]
    process, address = start_command(
        "run", growing / "query.sql", *streams, "--follow", "--ui", "--out", growing / "out"
    )
    try:
        seen = open_dashboard(address)
        expect(seen.page.locator('.tile[data-name="rows in"] .more')).to_have_text("200 in total")
        add(growing, 1)
        expect(seen.page.locator('.tile[data-name="rows in"] .more')).to_have_text("400 in total")
        assert seen.page.inner_text("#title") == "query.sql"
        assert seen.console_errors == []
    finally:
        stderr = interrupt(process)
    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_the_dashboard_of_a_finished_run_stays_until_ctrl_c(growing: Path, open_dashboard: OpenDashboard) -> None:
    streams = [part for name in ("a", "b") for part in ("--stream", f"{name}={growing / name},time=ts")]
    process, address = start_command("run", growing / "query.sql", *streams, "--ui", "--out", growing / "rows.csv")
    try:
        page = open_dashboard(address).page
        expect(page.locator("#status")).to_have_text("done")
        expect(page.locator('.tile[data-name="rows out"] .more')).to_have_text("100 in total")
    finally:
        stderr = interrupt(process)
    assert process.returncode == 0, stderr
    assert (growing / "rows.csv").exists()


def test_without_a_query_the_dashboard_is_about_an_example(open_dashboard: OpenDashboard) -> None:
    process, address = start_command("ui")
    try:
        page = open_dashboard(address).page
        expect(page.locator("#status")).to_have_text("waiting")
        assert "sales_a" in page.inner_text("#query")
        expect(page.locator("#chart-rates")).to_contain_text("no batches yet")
    finally:
        stderr = interrupt(process)
    assert process.returncode == 0, stderr

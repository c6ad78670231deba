"""The transcripts in `docs/transcripts` are what the command prints. `make transcripts` writes them again."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.progress_lines import remove_progress_lines
from watersmeet.cli import main as cli

TRANSCRIPTS = Path(__file__).parents[2] / "docs" / "transcripts"

QUERY = """SELECT orders.item, orders.ts AS ordered, trades.ts AS traded
FROM orders [RANGE 10 SECONDS], trades [RANGE 10 SECONDS]
WHERE orders.item = trades.item
"""
ORDERS = "item,ts\npen,2024-01-01T10:00:00Z\nink,2024-01-01T10:00:04Z\ncup,2024-01-01T10:00:09Z\n"
TRADES = "item,ts\nink,2024-01-01T10:00:05Z\ncup,2024-01-01T10:00:08Z\npen,2024-01-01T10:00:30Z\n"


def test_run_follow(tmp_path: Path) -> None:
    check_transcript("run-follow.txt", record_run_follow(tmp_path))


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_transcript("errors.txt", record_errors())


def check_transcript(name: str, text: str) -> None:
    place = TRANSCRIPTS / name
    if os.environ.get("WATERSMEET_TRANSCRIPTS") == "write":
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    assert mask_measurements(place.read_text()) == mask_measurements(text), "run `make transcripts`, and read the diff"


def mask_measurements(text: str) -> str:
    """Replace what differs from run to run: the time of day and rates."""
    without_clock = re.sub(r"^\d\d:\d\d:\d\d  ", "hh:mm:ss  ", text, flags=re.MULTILINE)
    return re.sub(r"[\d.,]+( M)? rows/s", "N rows/s", without_clock)


def record_run_follow(directory: Path) -> str:
    """Record a run that waits for the first file of a stream, joins it, and is stopped."""
    for name in ("orders", "trades"):
        (directory / name).mkdir()
    (directory / "query.sql").write_text(QUERY)
    (directory / "orders" / "1.csv").write_text(ORDERS)
    command = "watersmeet run query.sql --stream orders=orders,time=ts --stream trades=trades,time=ts"
    command += " --follow --checkpoint progress"
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = [f"$ {command}\n", *read_until(process, lambda line: line.startswith("Ctrl-C"))]
    (directory / "trades" / ".1.csv").write_text(TRADES)
    (directory / "trades" / ".1.csv").rename(directory / "trades" / "1.csv")
    lines += ["$ mv trades.csv trades/1.csv  # in another terminal\n"]
    lines += read_until(process, lambda line: "1 batch, " in line)
    process.send_signal(signal.SIGINT)
    lines += ["^C\n", process.communicate()[0]]
    return "".join(lines)


def read_until(process: subprocess.Popen[str], is_last: Callable[[str], bool]) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in iter(process.stdout.readline, ""):
        lines.append(line)
        if is_last(line):
            return lines
    raise AssertionError("".join(lines))


def record_errors() -> str:
    """Record one mistake after another."""
    Path("query.sql").write_text(QUERY)
    Path("orders.csv").write_text(ORDERS)
    Path("trades.csv").write_text(TRADES)
    orders, trades = "--stream orders=orders.csv,time=ts", "--stream trades=trades.csv,time=ts"
    return "\n".join(
        record_error(f"watersmeet run {arguments}")
        for arguments in (
            f"query1.sql {orders} {trades}",
            f"query.sql {orders} --stream trade=trades.csv,time=ts",
            f"query.sql {orders} --stream trades=trade.csv,time=ts",
            f"query.sql {orders} --stream trades=trades.csv",
            f"query.sql {orders} --stream trades=trades.csv,time=when",
            f'"SELECT orders.itm FROM orders [RANGE 1 HOUR]" {orders}',
            f'"SELECT orders.item FROM orders, trades WHERE orders.item = trades.item" {orders} {trades}',
        )
    )


def record_error(command: str) -> str:
    result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    return f"$ {command}\n{remove_progress_lines(result.stderr)}"

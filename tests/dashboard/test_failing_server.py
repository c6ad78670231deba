"""If the server of the dashboard fails, the command stops and names the failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import uvicorn
from typer.testing import CliRunner

from watersmeet.cli import main as cli


@pytest.fixture(autouse=True)
def _no_descriptors_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(server: uvicorn.Server, sockets: object = None) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(uvicorn.Server, "run", run)


@pytest.mark.parametrize("more", [["--follow"], []])
def test_a_run_stops_when_its_dashboard_fails(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "query.sql").write_text("SELECT a.k FROM a [RANGE 10 SECONDS]")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.csv").write_text("k,ts\n1,1700000000000000\n")
    streams = ["--stream", f"a={tmp_path / 'a'},time=ts"]
    out = tmp_path / ("out" if more else "out.csv")
    ran = CliRunner().invoke(
        cli.app, ["run", str(tmp_path / "query.sql"), *streams, *more, "--ui", "--port", "0", "--out", str(out)]
    )
    assert ran.exit_code == 1
    assert "the dashboard's server failed: OSError: [Errno 24] Too many open files" in ran.stderr


def test_the_dashboard_alone_ends_when_its_server_fails() -> None:
    ran = CliRunner().invoke(cli.app, ["ui", "--port", "0"])
    assert ran.exit_code == 1
    assert "the dashboard's server failed: OSError: [Errno 24] Too many open files" in ran.stderr

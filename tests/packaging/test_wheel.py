"""The wheel contains the product and nothing else, and without extras it runs in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

import pytest

from watersmeet.version import VERSION

from .core_environment import PROJECT, ROOT

MAX_INSTALLED_BYTES = 600_000_000

JOIN = """
import pyarrow as pa, watersmeet as wm
rows = pa.table({"k": [1, 2], "ts": pa.array([1, 2], pa.timestamp("us"))})
text = "SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
streams = {name: wm.stream(rows, time="ts") for name in "ab"}
print(wm.explain(text, streams).plan.algorithm, sorted(wm.collect(text, streams)["k"].to_pylist()))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this tree."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


def test_the_wheel_contains_the_product_and_nothing_else(wheel: Path) -> None:
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "watersmeet").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    files = {
        name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith(f"watersmeet-{VERSION}.dist-info/")
    }
    assert files == sources
    assert not [name for name in files if "oracle" in name or "lab/" in name or "tests/" in name]
    assert {"watersmeet/py.typed", "watersmeet/calibration/default_profile.json"} <= files


def test_the_wheel_names_its_extras_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        about = Parser().parsestr(archive.read(f"watersmeet-{VERSION}.dist-info/METADATA").decode())
        commands = archive.read(f"watersmeet-{VERSION}.dist-info/entry_points.txt").decode()
    assert set(about.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert commands.split() == ["[console_scripts]", "watersmeet", "=", "watersmeet.cli.main:main"]


@pytest.mark.skipif(
    "WATERSMEET_INSTALL" not in os.environ, reason="make test-long downloads and installs all packages of the core"
)
def test_the_core_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    run_tool(environment, ["pip", "install", "-q", str(wheel)])
    installed_bytes = measure_bytes(environment / "lib")
    print(f"installed without extras: {installed_bytes / 1e6:.0f} MB")
    assert installed_bytes <= MAX_INSTALLED_BYTES

    start = time.perf_counter()
    assert run_tool(environment, ["watersmeet", "--version"]).stdout == f"watersmeet {VERSION}\n"
    print(f"watersmeet --version: {time.perf_counter() - start:.2f} s")
    assert run_tool(environment, ["python", "-c", JOIN]).stdout == "runs [1, 2]\n"

    (tmp_path / "query.sql").write_text("SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k")
    (tmp_path / "a.csv").write_text("k,ts\n7,2024-01-01 00:00:00\n")
    run = ["watersmeet", "run", "query.sql", "--stream", "a=a.csv,time=ts", "--stream", "b=a.csv,time=ts"]
    assert run_tool(environment, [*run, "--json"]).stdout == '{"k": 7}\n'
    for arguments, extra in (
        ([*run, "--engine", "spark"], "spark"),
        ([*run, "--ui"], "ui"),
        (["watersmeet", "demo"], "demo"),
    ):
        refused = run_tool(environment, arguments, expected_exit_code=1)
        assert refused.stderr.endswith(f'install it with: pip install "watersmeet[{extra}]"\n')


def run_tool(
    environment: Path, command: Sequence[str], expected_exit_code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment next to it, without the settings of this process."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [environment / "bin" / command[0], *command[1:]],
        cwd=environment.parent,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expected_exit_code, done.stdout + done.stderr
    return done


def measure_bytes(directory: Path) -> int:
    """Return the size of all files in a directory on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))

"""`import watersmeet`, `--version` and `--help` load nothing heavy, and public names are found all the same."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import watersmeet as wm
import watersmeet.errors

HEAVY = {
    "numba",
    "numpy",
    "pandas",
    "plotly",
    "polars",
    "psutil",
    "pyarrow",
    "pyspark",
    "starlette",
    "uvicorn",
}

LIST_MODULES = "import json, sys; print(json.dumps(sorted(sys.modules)))"
RUN_COMMAND = """
import sys
from watersmeet.cli.main import app
app(sys.argv[1:], standalone_mode=False)
"""


def run_python(code: str, *arguments: str) -> str:
    """Run code in a fresh process and return what it printed."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def loaded_after(code: str, *arguments: str) -> set[str]:
    """Return the top-level modules that a fresh process has loaded after it ran the code."""
    listed = run_python(f"{code}\n{LIST_MODULES}", *arguments).splitlines()[-1]
    return {name.partition(".")[0] for name in json.loads(listed)}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_after("import watersmeet") & HEAVY


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"], ["explain", "--help"]])
def test_a_command_that_only_prints_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded_after(RUN_COMMAND, *arguments) & HEAVY


def test_a_query_in_this_process_loads_neither_spark_nor_the_dashboard() -> None:
    loaded = loaded_after(
        "import pyarrow as pa, watersmeet as wm\n"
        "rows = pa.table({'k': [1], 'ts': pa.array([1], pa.timestamp('us'))})\n"
        "text = 'SELECT a.k FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k'\n"
        "streams = {name: wm.stream(rows, time='ts') for name in 'ab'}\n"
        "print(wm.explain(text, streams))\n"
        "assert wm.collect(text, streams).num_rows == 1"
    )
    assert {"numba", "pyarrow"} <= loaded
    assert not loaded & {"google", "plotly", "psutil", "pyspark", "rich", "starlette", "typer", "uvicorn"}


def test_every_public_name_is_found() -> None:
    assert [name for name in wm.__all__ if getattr(wm, name, None) is None] == []
    assert set(wm.__all__) <= set(dir(wm))


def test_functions_keep_the_names_that_they_share_with_packages() -> None:
    printed = run_python(
        "import watersmeet as wm\n"
        "from watersmeet.sql.binder import bind\n"
        "from watersmeet.stats.stream_stats import stats\n"
        "from watersmeet import *\n"
        "print(wm.sql.__module__, wm.stats is stats, sql is wm.sql)"
    )
    assert printed.split() == ["watersmeet.api", "True", "True"]


def test_a_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AttributeError, match='module "watersmeet" has no attribute "colect"'):
        wm.colect  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_the_names_that_exist_at_run_time() -> None:
    assert wm.__file__ is not None
    tree = ast.parse(Path(wm.__file__).read_text(encoding="utf-8"))
    imported = {
        (node.module, name.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and isinstance(block.test, ast.Name)
        for name in node.names
    }
    errors = {name for name in wm.__all__ if hasattr(watersmeet.errors, name)}  # imported at once
    lazy = set(wm.__all__) - errors
    assert imported == {(wm._HOMES.get(name, "watersmeet.api"), name) for name in lazy}

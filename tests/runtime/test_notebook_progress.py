"""In a notebook `wm.collect` shows a progress bar that disappears; elsewhere it shows nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

#: Runs a cell in IPython and prints what the cell displayed. A notebook's shell has a kernel, a terminal's has none.
RUN_CELL = """
import json, sys
from types import SimpleNamespace
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(display_pub_class=CapturingDisplayPublisher, history_length=0)
if sys.argv[1] == "notebook":
    shell.kernel = SimpleNamespace()
shell.run_cell(sys.argv[2]).raise_error()
print(json.dumps(shell.display_pub.outputs))
"""

COLLECT = """
import numpy as np, pyarrow as pa, watersmeet as wm
table = pa.table({{"k": np.arange({rows}), "ts": pa.array(np.arange({rows}), pa.timestamp("us"))}})
streams = {{name: wm.stream({source}, time="ts") for name in ("a", "b")}}
query = "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
assert wm.collect(query, streams).num_rows == {rows}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ipython")


@cache
def run_cell(home: Path, shell: str, rows: int, source: str = "table") -> list[dict[str, Any]]:
    """Return the outputs of a cell that collects a query over two streams of `rows` rows."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELL, shell, COLLECT.format(rows=rows, source=source)],
        env={**os.environ, "IPYTHONDIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    outputs: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return outputs


@pytest.mark.parametrize("source", ["table", "[table.slice(0, 100_000), table.slice(100_000)]"])
def test_a_notebook_shows_a_bar_that_disappears(home: Path, source: str) -> None:
    outputs = run_cell(home, "notebook", rows=200_000, source=source)
    texts = [output["data"]["text/html"] for output in outputs]
    assert texts[0].startswith("<progress max=1")
    assert texts[-1] == ""
    assert all("rows/s" in text for text in texts[1:-1])
    assert len(texts) >= 4
    assert len({output["transient"]["display_id"] for output in outputs}) == 1
    assert [output["update"] for output in outputs] == [False] + [True] * (len(outputs) - 1)


def test_the_bar_moves_to_the_end(home: Path) -> None:
    texts = [output["data"]["text/plain"] for output in run_cell(home, "notebook", rows=200_000)]
    assert texts[0] == "joining 400,000 rows"
    assert texts[-2].startswith("400,000 of 400,000 rows (100 %)")


def test_a_short_query_shows_no_bar(home: Path) -> None:
    assert run_cell(home, "notebook", rows=1_000) == []


def test_a_terminal_shows_no_bar(home: Path) -> None:
    assert run_cell(home, "terminal", rows=200_000) == []

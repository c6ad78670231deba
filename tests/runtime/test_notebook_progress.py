"""In a notebook `wm.collect` shows a progress bar that disappears; elsewhere it shows nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

#: Runs cells in IPython and prints what each displayed. A notebook's shell has a kernel, a terminal's has none.
RUN_CELLS = """
import json, sys
from types import SimpleNamespace
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(display_pub_class=CapturingDisplayPublisher, history_length=0)
displayed = []
for kind, cell in json.loads(sys.argv[1]):
    shell.__dict__.pop("kernel", None)
    if kind == "notebook":
        shell.kernel = SimpleNamespace()
    shell.display_pub.outputs = []
    shell.run_cell(cell).raise_error()
    displayed.append(shell.display_pub.outputs)
print(json.dumps(displayed))
"""

COLLECT = """
import numpy as np, pyarrow as pa, watersmeet as wm
table = pa.table({{"k": np.arange({rows}), "ts": pa.array(np.arange({rows}), pa.timestamp("us"))}})
streams = {{name: wm.stream({source}, time="ts") for name in ("a", "b")}}
query = "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
assert wm.collect(query, streams).num_rows == {rows}
"""


#: The shell of each cell, the rows of its streams, and their source.
CELLS = {
    "table": ("notebook", 200_000, "table"),
    "two tables": ("notebook", 200_000, "[table.slice(0, 100_000), table.slice(100_000)]"),
    "few rows": ("notebook", 1_000, "table"),
    "terminal": ("terminal", 200_000, "table"),
}


@pytest.fixture(scope="module")
def outputs_by_cell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the outputs of the cells, which run in one process: each collects a query over two streams."""
    cells = [(shell, COLLECT.format(rows=rows, source=source)) for shell, rows, source in CELLS.values()]
    done = subprocess.run(
        [sys.executable, "-c", RUN_CELLS, json.dumps(cells)],
        env={**os.environ, "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython"))},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CELLS, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("cell", ["table", "two tables"])
def test_a_notebook_shows_a_bar_that_disappears(outputs_by_cell: dict[str, list[dict[str, Any]]], cell: str) -> None:
    outputs = outputs_by_cell[cell]
    texts = [output["data"]["text/html"] for output in outputs]
    assert texts[0].startswith("<progress max=1")
    assert texts[-1] == ""
    assert all("rows/s" in text for text in texts[1:-1])
    assert len(texts) >= 4
    assert len({output["transient"]["display_id"] for output in outputs}) == 1
    assert [output["update"] for output in outputs] == [False] + [True] * (len(outputs) - 1)


def test_the_bar_moves_to_the_end(outputs_by_cell: dict[str, list[dict[str, Any]]]) -> None:
    texts = [output["data"]["text/plain"] for output in outputs_by_cell["table"]]
    assert texts[0] == "joining 400,000 rows"
    assert texts[-2].startswith("400,000 of 400,000 rows (100 %)")


@pytest.mark.parametrize("cell", ["few rows", "terminal"])
def test_a_short_query_and_a_terminal_show_no_bar(outputs_by_cell: dict[str, list[dict[str, Any]]], cell: str) -> None:
    assert outputs_by_cell[cell] == []

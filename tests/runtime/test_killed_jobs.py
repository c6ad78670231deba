"""Kill -9 of an embedded job at a random instant loses and duplicates nothing.

`make test` kills each job a few times, `make faults` a hundred times in all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle import as_multiset, table_rows
from watersmeet.runtime.embedded.incremental import run_incremental

from . import killed_job
from .killed_job import QUERIES, build_job

KILLS = 34 if os.environ.get("WATERSMEET_FAULTS") == "1" else 2
ROWS_PER_FILE = 60
#: A run is killed within this time after its first batch has started. Most batches take a fraction of it.
MAX_DELAY_S = 0.1


@pytest.mark.parametrize("query", QUERIES)
def test_nothing_is_lost_or_duplicated(query: str, tmp_path: Path) -> None:
    for place in ("whole", "killed"):
        write_files(tmp_path / place, files=8 * KILLS)
    run_incremental(build_job(tmp_path / "whole", query), threading.Event(), lambda metrics: None)
    rng, kills = Random(query), 0
    while kills < KILLS and kill_once(tmp_path / "killed", query, rng.uniform(0, MAX_DELAY_S)):
        kills += 1
    run_incremental(build_job(tmp_path / "killed", query), threading.Event(), lambda metrics: None)
    expected, found = read_rows(tmp_path / "whole"), read_rows(tmp_path / "killed")
    print(f"\n{query}: {kills} kills, {(expected - found).total()} rows lost, {(found - expected).total()} duplicated")
    assert kills == KILLS, "the job ended before it was killed often enough"
    assert expected
    assert found == expected


def kill_once(folder: Path, query: str, delay_s: float) -> bool:
    """Start the job and kill it after this time; return whether it still ran."""
    process = subprocess.Popen(
        [sys.executable, "-m", killed_job.__name__, str(folder), query],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline().strip() == "started"
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait() != 0


def write_files(folder: Path, files: int) -> None:
    """Write files whose times overlap by less than the lateness, so that no row is late."""
    rng = np.random.default_rng(21)
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(files):
            times = number * 1_000_000 + rng.integers(-400_000, 1_000_000, ROWS_PER_FILE)
            columns: dict[str, Any] = {
                "ts": times,
                "k": rng.integers(0, 8, ROWS_PER_FILE),
                "v": rng.integers(0, 100, ROWS_PER_FILE),
                "id": np.arange(ROWS_PER_FILE) + number * ROWS_PER_FILE,
            }
            table = pa.table({column: pa.array(values) for column, values in columns.items()})
            pq.write_table(table, folder / name / f"{number:05d}.parquet")


def read_rows(folder: Path) -> Counter[Any]:
    return as_multiset(table_rows(pq.read_table(folder / "out")))

"""Processes of both hosts crash at any write, lose writes, run batches again and change plans: no row changes."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from tests.properties.test_against_the_oracle import FIRST_SEED
from tests.volume import scale_volume

from .driver import HOSTS, draw_schedule, run_schedule
from .scenario import QUERIES

#: Simulated runs per host, over all queries, in which a process crashed and another one continued: 400 together, and
#: 8,000 in `make test-long`.
CRASHED_RUNS = {"embedded": scale_volume(280), "buckets": scale_volume(120)}


@pytest.mark.parametrize("query", range(len(QUERIES)))
@pytest.mark.parametrize("host", HOSTS)
def test_no_row_is_lost_or_duplicated_by_crashes_and_replays(
    host: str, query: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed_runs = 0
    for seed in count(FIRST_SEED):
        folder = tmp_path / str(seed)
        folder.mkdir()
        crashed_runs += run_schedule(draw_schedule(host, query, seed), folder, monkeypatch) > 0
        shutil.rmtree(folder)
        if crashed_runs * len(QUERIES) >= CRASHED_RUNS[host]:
            return

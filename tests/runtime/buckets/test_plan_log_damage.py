"""Entries of a plan log are checked like files of a checkpoint: another plan would shed other rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import watersmeet as wm
from watersmeet.runtime.buckets.plan_log import PlanLog


@pytest.fixture
def log(tmp_path: Path) -> PlanLog:
    log = PlanLog(tmp_path)
    log.write(2, wm.plan(drop={"a": 0.5}))
    log.write(3, wm.plan(drop={"a": 0.25}))
    return log


def entry(log: PlanLog, batch: int) -> Path:
    return log.folder / f"{batch:019d}.json"


def test_a_damaged_entry_is_named(log: PlanLog) -> None:
    content = entry(log, 3).read_bytes()
    for changed in (b"", content[:-1], content.replace(b"0.25", b"0.35")):
        entry(log, 3).write_bytes(changed)
        with pytest.raises(wm.InputError, match=rf"{entry(log, 3).name}.* is damaged"):
            log.plan_at(3)


def test_an_entry_of_another_batch_is_named(log: PlanLog) -> None:
    entry(log, 3).write_bytes(entry(log, 2).read_bytes())
    with pytest.raises(wm.InputError, match="is the plan of batch 2"):
        log.settle_plan(3)

"""Damage to any file of a checkpoint is reported by the file's name, or the job writes the rows of an uninterrupted
run.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from watersmeet.checkpoint.repair import find_problems
from watersmeet.errors import WatersmeetError

from .damage import AGGREGATION, JOIN, Job, checkpoint_files, damages, earlier_run, interrupted_job, uninterrupted_rows

SCENARIOS = [
    pytest.param(JOIN, False, id="join, stopped before its rows were written"),
    pytest.param(AGGREGATION, True, id="aggregation, stopped before its commit"),
]


@pytest.mark.parametrize(("query", "rows_written"), SCENARIOS)
def test_damage_to_any_file_is_reported_by_name_or_changes_no_row(
    query: str, rows_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        os, "fsync", lambda number: None
    )  # no power cut here, and a slow disk would make hundreds of runs slow
    for folder in ("whole", "job"):
        (tmp_path / folder).mkdir()
    wanted = uninterrupted_rows(tmp_path / "whole", query)
    foreign = earlier_run(tmp_path / "job", query)
    job = interrupted_job(tmp_path / "job", query, monkeypatch, rows_written=rows_written)
    tree = job.tree()
    assert (
        len(checkpoint_files(tree)) == 11
    )  # manifest, lock, five records, two states, a leftover, the owner of the output
    outcomes: Counter[str] = Counter()
    fixed: set[tuple[str, frozenset[str]]] = set()
    for case in damages(tree, foreign, seed=18):
        job.restore(tree, case.changes)
        found = find_problems(job.checkpoint)
        refused = refusal(job)
        if refused is None:
            assert case.may_be_harmless, case.label
            assert job.rows() == wanted, case.label
            outcomes["same rows"] += 1
            continue
        assert any(str(job.path / name) in refused for name in case.damaged), (case.label, refused)
        said = " ".join(f"{each.path} {each.problem}" for each in found)
        assert any(str(job.path / name) in said for name in case.damaged), (case.label, refused, said)
        outcomes["reported"] += 1
        alike = (case.damage, frozenset(case.damaged))
        if all(each.is_fixable for each in found) and alike not in fixed:
            fixed.add(alike)
            for each in found:
                each.fix()
            assert find_problems(job.checkpoint) == [], case.label
            assert refusal(job) is None, case.label
            assert job.rows() == wanted, case.label
    assert outcomes["reported"] > 600
    assert outcomes["same rows"] > 100
    assert len(fixed) > 10


def refusal(job: Job) -> str | None:
    """Resume the job; return what it says if it refuses."""
    try:
        job.run()
    except WatersmeetError as error:
        return str(error)
    return None

"""Damage to a checkpoint: the damaged file is named, or the job writes the rows of an uninterrupted run."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from watersmeet.checkpoint.repair import find_problems
from watersmeet.errors import WatersmeetError

from .damage import (
    AGGREGATION,
    FLIPPED_BITS,
    JOIN,
    CheckpointedJob,
    collect_uninterrupted_rows,
    generate_damages,
    list_checkpoint_files,
    make_earlier_run,
    make_interrupted_job,
)

SCENARIOS = [
    pytest.param(JOIN, False, id="join, stopped before its rows were written"),
    pytest.param(AGGREGATION, True, id="aggregation, stopped before its commit"),
]


@pytest.mark.parametrize(("query", "rows_written"), SCENARIOS)
def test_damage_to_any_file_is_reported_by_name_or_changes_no_row(
    query: str, rows_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no power failure in this test, and a slow disk would make hundreds of runs slow.
    monkeypatch.setattr(os, "fsync", lambda number: None)
    for folder in ("whole", "job"):
        (tmp_path / folder).mkdir()
    expected = collect_uninterrupted_rows(tmp_path / "whole", query)
    foreign = make_earlier_run(tmp_path / "job", query)
    job = make_interrupted_job(tmp_path / "job", query, monkeypatch, rows_written=rows_written)
    tree = job.tree()
    # Manifest, lock, two records, files of parts, two states, a leftover, the owner of the output.
    names = list_checkpoint_files(tree)
    assert [len([name for name in names if f"/{folder}/" in name]) for folder in ("batches", "states")] == [2, 3]
    assert len([name for name in names if "/parts/" in name]) > 1
    outcomes: Counter[str] = Counter()
    fixed: set[tuple[str, frozenset[str]]] = set()
    for case in generate_damages(tree, foreign, seed=18):
        job.restore(tree, case.changes)
        found = find_problems(job.checkpoint)
        message = resume_and_get_refusal(job)
        if message is None:
            assert case.may_be_harmless, case.label
            assert job.rows() == expected, case.label
            outcomes["same rows"] += 1
            continue
        assert any(str(job.path / name) in message for name in case.damaged), (case.label, message)
        messages = " ".join(f"{each.path} {each.problem}" for each in found)
        assert any(str(job.path / name) in messages for name in case.damaged), (case.label, message, messages)
        outcomes["reported"] += 1
        alike = (case.damage, frozenset(case.damaged))
        if all(each.is_fixable for each in found) and alike not in fixed:
            fixed.add(alike)
            for each in found:
                each.fix()
            assert find_problems(job.checkpoint) == [], case.label
            assert resume_and_get_refusal(job) is None, case.label
            assert job.rows() == expected, case.label
    assert outcomes["reported"] > 300 * FLIPPED_BITS / 64
    assert outcomes["same rows"] > 100 * FLIPPED_BITS / 64
    assert len(fixed) > 10


def resume_and_get_refusal(job: CheckpointedJob) -> str | None:
    """Resume the job; return the error message if it refuses."""
    try:
        job.run()
    except WatersmeetError as error:
        return str(error)
    return None

"""Damage to any file of a checkpoint is reported by the file's name, or the job writes the rows of an uninterrupted run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.job.repair import findings

from .damage import AGGREGATION, JOIN, Case, Job, checkpoint_files, damages, interrupted_job, uninterrupted_rows

SCENARIOS = [
    pytest.param(JOIN, False, id="join, stopped before its rows were written"),
    pytest.param(AGGREGATION, True, id="aggregation, stopped before its commit"),
]


@pytest.mark.parametrize(("query", "rows_written"), SCENARIOS)
def test_damage_to_any_file_is_reported_by_name_or_changes_no_row(
    query: str, rows_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "job").mkdir()
    wanted = uninterrupted_rows(tmp_path / "whole", query)
    job = interrupted_job(tmp_path / "job", query, monkeypatch, rows_written=rows_written)
    tree = job.tree()
    assert len(checkpoint_files(tree)) == 11  # manifest, lock, five records, two states, a leftover, the owner of the output
    outcomes: Counter[str] = Counter()
    for case in damages(tree, seed=18):
        job.restore(tree, case.changes)
        found = {str(each.place.relative_to(job.path)): each for each in findings(job.checkpoint)}
        refused = refusal(job)
        if refused is None:
            assert job.rows() == wanted, case.label
            outcomes["same rows"] += 1
            continue
        assert named(case, job, refused), (case.label, refused)
        assert case.damaged & set(found), (case.label, refused, sorted(found))
        outcomes["reported"] += 1
        assert "Traceback" not in refused
    assert outcomes["reported"] > 600
    assert outcomes["same rows"] > 100


def refusal(job: Job) -> str | None:
    """Resume the job; return what it says if it refuses."""
    try:
        job.run()
    except WatersmeetError as error:
        return str(error)
    return None


def named(case: Case, job: Job, message: str) -> bool:
    return any(str(job.path / name) in message for name in case.damaged)

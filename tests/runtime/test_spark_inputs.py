"""The source logs of a Spark checkpoint name the input files of a batch, and an output has one owner."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from watersmeet.checkpoint.owner import (
    OutputOwner,
    check_output_owner,
    claim_output,
    is_new_spark_checkpoint,
    read_spark_owner,
)
from watersmeet.checkpoint.repair import find_problems
from watersmeet.errors import WatersmeetError


def format_log_entry(file: Path, entry: int) -> str:
    return json.dumps({"path": file.as_uri(), "timestamp": file.stat().st_mtime_ns // 1_000_000, "batchId": entry})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Create three committed batches of one file each; the log entries of the first two are compacted."""
    path = tmp_path / "ckpt"
    for folder in ("offsets", "commits", "sources/0"):
        (path / folder).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"1e5a"}')
    (tmp_path / "in put").mkdir()
    files = []
    for number in range(3):
        files.append(tmp_path / "in put" / f"{number}.csv")
        files[-1].write_text("k,ts\n")
        (path / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{number}}}\n')
        (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    compacted = [format_log_entry(files[0], 0), format_log_entry(files[1], 1)]
    (path / "sources" / "0" / "0").write_text("v1\n" + format_log_entry(files[0], 0))
    (path / "sources" / "0" / "1.compact").write_text("\n".join(["v1", *compacted]))
    (path / "sources" / "0" / "2").write_text("v1\n" + format_log_entry(files[2], 2))
    return path


@pytest.mark.parametrize(("batch", "other"), [(2, 1), (1, 2)])
def test_a_batch_runs_again_only_with_its_own_input(checkpoint: Path, batch: int, other: int) -> None:
    if batch == 1:
        for log in ("offsets", "commits"):
            (checkpoint / log / "2").unlink()
    (checkpoint / "commits" / str(batch)).write_text("")
    inputs = checkpoint.parent / "in put"
    (inputs / f"{other}.csv").unlink()
    (damaged,) = find_problems(checkpoint)
    assert damaged.is_fixable
    (inputs / f"{batch}.csv").unlink()
    (damaged,) = find_problems(checkpoint)
    assert not damaged.is_fixable
    assert f'{batch}.csv" is missing' in damaged.consequence


def test_an_input_that_changed_is_named(checkpoint: Path) -> None:
    (checkpoint / "commits" / "2").write_text("")
    file = checkpoint.parent / "in put" / "2.csv"
    os.utime(file, (1, 1))
    (damaged,) = find_problems(checkpoint)
    assert not damaged.is_fixable
    assert "has changed since" in damaged.consequence


def test_the_input_of_a_batch_in_flight_is_named(checkpoint: Path) -> None:
    (checkpoint / "commits" / "2").unlink()
    assert find_problems(checkpoint) == []
    (checkpoint.parent / "in put" / "2.csv").unlink()
    (found,) = find_problems(checkpoint)
    assert (found.path.name, found.problem, found.is_fixable) == ("2.csv", "is missing", False)


def test_a_spark_checkpoint_has_one_identity_from_its_first_run_on(tmp_path: Path) -> None:
    first = read_spark_owner(tmp_path / "ckpt")
    assert read_spark_owner(tmp_path / "ckpt") == first
    assert json.loads((tmp_path / "ckpt" / "metadata").read_text()) == {"id": first.checkpoint_id}
    assert read_spark_owner(tmp_path / "other") != first


def test_damaged_metadata_is_named_and_not_overwritten(checkpoint: Path) -> None:
    for content in ("", "{", "[]", "{}"):
        (checkpoint / "metadata").write_text(content)
        with pytest.raises(WatersmeetError, match='metadata" is damaged'):
            read_spark_owner(checkpoint)
    (checkpoint / "metadata").unlink()
    with pytest.raises(WatersmeetError, match='metadata" is missing'):
        read_spark_owner(checkpoint)


def test_an_output_of_a_spark_job_is_not_written_by_another_job(tmp_path: Path, checkpoint: Path) -> None:
    out = tmp_path / "out"
    (out / "_spark_metadata").mkdir(parents=True)
    first, embedded = read_spark_owner(checkpoint), OutputOwner("abc", str(tmp_path / "embedded"))
    with pytest.raises(WatersmeetError, match="already holds"):
        check_output_owner(out, embedded, is_new=True)
    # The output is older than the owner markers.
    check_output_owner(out, first, is_new=is_new_spark_checkpoint(checkpoint))
    claim_output(out, first)
    claim_output(out, first)
    with pytest.raises(WatersmeetError, match=f'belongs to checkpoint "{checkpoint}"'):
        check_output_owner(out, embedded, is_new=True)
    with pytest.raises(WatersmeetError, match=f'belongs to checkpoint "{checkpoint}"'):
        claim_output(out, embedded)

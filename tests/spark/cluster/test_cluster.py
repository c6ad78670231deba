"""A query on a cluster of several processes gives the same rows as in one, even if an executor is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from watersmeet.kernels import compile as kernels

from ..faults.kills import JobProcess, last_committed_batch, phase_check, wait_for_phase
from ..faults.test_kills import collect_expected, group_by_spark_batch, read_sink_rows, write_batches
from .standalone import run_standalone_cluster

STREAMS = ("a", "b", "c")
BATCHES = 4


@pytest.mark.skipif(
    os.environ.get("WATERSMEET_FAULTS") != "1", reason="needs six Java processes at once; run with `make faults`"
)
def test_a_killed_executor_loses_no_rows(tmp_path: Path) -> None:
    tables = {name: write_batches(tmp_path / name, number, BATCHES) for number, name in enumerate(STREAMS)}
    kernels.warm_up()
    built = compiled_kernels()
    with run_standalone_cluster(tmp_path / "cluster") as cluster:
        job = JobProcess(tmp_path, "files", cluster.url)
        job.wait_until_starting()
        assert wait_for_phase(job, phase_check("before-offsets", job, 0)), job.log_tail
        assert wait_for_phase(job, phase_check("planned", job, last_committed_batch(tmp_path) + 1)), job.log_tail
        killed = job.strike(cluster.executors[:1])
        job.finish()
    assert killed
    found, expected = (
        read_sink_rows(tmp_path / "out"),
        collect_expected(group_by_spark_batch(tables, tmp_path / "checkpoint")),
    )
    print(
        f"\nan executor killed: {(expected - found).total()} results lost and "
        f"{(found - expected).total()} duplicated of {expected.total()}"
    )
    assert found == expected
    assert compiled_kernels() == built, "an executor has compiled kernels that were in the cache"


def compiled_kernels() -> dict[Path, int]:
    folder = Path(kernels.__file__).parent
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*.nb[ic]")}

"""On a cluster of several processes a query gives the rows it gives in one, and loses none with an executor."""

from __future__ import annotations

from pathlib import Path

from watersmeet.kernels import compile as kernels

from ..faults.kills import Job, committed, moment, reached
from ..faults.test_kills import as_taken, expected, rows_of, written
from .standalone import standalone

STREAMS = ("a", "b", "c")
BATCHES = 4


def test_an_executor_that_is_killed_in_a_batch_takes_no_rows_along(tmp_path: Path) -> None:
    tables = {name: written(tmp_path / name, number, BATCHES) for number, name in enumerate(STREAMS)}
    kernels.warm_up()
    built = compiled_kernels()
    with standalone(tmp_path / "cluster") as cluster:
        job = Job(tmp_path, "files", cluster.url)
        job.wait_until_starting()
        assert reached(job, moment("before-offsets", job, 0)), job.last_words
        assert reached(job, moment("planned", job, committed(tmp_path) + 1)), job.last_words
        killed = job.strike(cluster.executors[:1])
        job.finish()
    assert killed
    found, wanted = rows_of(tmp_path / "out"), expected(as_taken(tables, tmp_path / "checkpoint"))
    print(
        f"\nan executor killed: {(wanted - found).total()} results lost and {(found - wanted).total()} doubled of {wanted.total()}"
    )
    assert found == wanted
    assert compiled_kernels() == built, "an executor has compiled what was in the cache"


def compiled_kernels() -> dict[Path, int]:
    folder = Path(kernels.__file__).parent
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*.nb[ic]")}

"""Kill -9 of the driver, the Java process and a Python worker, in every phase of a batch: nothing lost, nothing
doubled.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import watersmeet as wm

from .job import LATENESS, QUERY, STREAMS
from .kills import PHASES, Job, Kill, Killed, carry_out

BATCHES = 8
ROWS_PER_BATCH = 400
SPAN_US = 1_000_000

#: Kills in brackets strike one process, one after the other: a worker's death is not the job's. A worker has no part in
#: offsets or commits.
WORKER = Kill("worker", "operator")
Kills = tuple[tuple[Kill, ...], ...]
EVERY: Kills = tuple(kills for phase in PHASES for kills in ((Kill("driver", phase),), (WORKER, Kill("jvm", phase))))
IN_TURNS: Kills = tuple(
    (WORKER, Kill(victim, phase)) for phase, victim in zip(PHASES, ("jvm", "driver") * 3, strict=False)
)
FEW: Kills = ((WORKER, Kill("driver", "before-commit")), (Kill("jvm", "before-sink"),))


@pytest.mark.skipif(os.environ.get("WATERSMEET_FAULTS") != "1", reason="many minutes of kills: make faults")
@pytest.mark.parametrize(("sink", "kills"), [("files", EVERY), ("foreach-batch", IN_TURNS)])
def test_every_result_comes_once_whoever_is_killed_and_when(sink: str, kills: Kills, tmp_path: Path) -> None:
    killed_and_compared(kills, sink, tmp_path, BATCHES)


def test_every_result_comes_once_after_a_worker_a_driver_and_a_java_process_were_killed(tmp_path: Path) -> None:
    killed_and_compared(FEW, "files", tmp_path, batches=4)


@pytest.mark.skipif(os.environ.get("WATERSMEET_FAULTS") != "1", reason="two Java processes at once: make faults")
def test_of_two_jobs_on_one_checkpoint_spark_ends_one_and_every_result_comes_once(tmp_path: Path) -> None:
    tables = {name: written(tmp_path / name, number, batches=4) for number, name in enumerate(STREAMS)}
    both = [Job(tmp_path, "files"), Job(tmp_path, "files")]
    for job in both:
        job.end()
    assert sorted(job.process.returncode for job in both) == [0, 1], both[0].last_words
    assert re.search(
        "multiple (concurrent )?streaming|concurrent", both[0].said.read_text(errors="replace"), re.IGNORECASE
    )
    assert rows_of(tmp_path / "out") == expected(as_taken(tables, tmp_path / "checkpoint"))


def killed_and_compared(kills: Kills, sink: str, folder: Path, batches: int) -> None:
    tables = {name: written(folder / name, number, batches) for number, name in enumerate(STREAMS)}
    done = [killed for together in kills for killed in carry_out(together, folder, sink)]
    Job(folder, sink).finish()
    assert [killed.kill for killed in done] == [kill for together in kills for kill in together], (
        "not every kill's moment came"
    )
    found, wanted = rows_of(folder / "out"), expected(as_taken(tables, folder / "checkpoint"))
    report(sink, done, lost=(wanted - found).total(), doubled=(found - wanted).total(), of=wanted.total())
    assert found == wanted


def report(sink: str, done: list[Killed], *, lost: int, doubled: int, of: int) -> None:
    """The figures, for `pytest -s`."""
    print(f"\n{sink}: {len(done)} kills, {lost} results lost and {doubled} doubled of {of}")
    for killed in done:
        print(
            f"  {killed.kill.victim:6} {killed.kill.phase:14} batch {killed.planned} planned, {killed.committed} committed"
        )


def written(folder: Path, number: int, batches: int) -> list[pa.Table]:
    """A file per batch, their times overlapping a little more than the lateness allows, so that some rows are late."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(number)
    tables = []
    for batch in range(batches):
        times = batch * SPAN_US + rng.integers(-600_000, SPAN_US, ROWS_PER_BATCH)
        table = pa.table(
            {
                "ts": times,
                "k": rng.integers(0, 200, ROWS_PER_BATCH),
                "v": rng.integers(0, 100, ROWS_PER_BATCH),
                "id": np.arange(ROWS_PER_BATCH) + batch * ROWS_PER_BATCH,
            }
        )
        path = folder / f"part-{batch:03d}.parquet"
        pyarrow.parquet.write_table(table, path)
        modified_s = 1_700_000_000 + batch
        os.utime(path, (modified_s, modified_s))
        tables.append(table)
    return tables


def as_taken(files: dict[str, list[pa.Table]], checkpoint: Path) -> dict[str, list[pa.Table]]:
    """The files in the batches that Spark took them in, as its checkpoint says; which rows are late depends on that.

    A file is a batch, unless a kill fell between a source's note of a file it will bring and the plan of the batch:
    then it brings two.
    """
    taken: dict[str, list[pa.Table]] = {name: [] for name in files}
    before = dict.fromkeys(files, 0)
    for plan in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        ends = [json.loads(line)["logOffset"] + 1 for line in plan.read_text().splitlines()[2:]]
        for name, end in zip(files, ends, strict=True):
            tables = files[name][before[name] : end]
            taken[name].append(pa.concat_tables([files[name][0].slice(0, 0), *tables]))
            before[name] = end
    assert before == {name: len(tables) for name, tables in files.items()}
    return taken


def expected(batches: dict[str, list[pa.Table]]) -> Counter[tuple[int, ...]]:
    streams = {name: wm.stream(tables, time="ts", lateness=LATENESS) for name, tables in batches.items()}
    return counted(wm.collect(QUERY, streams))


def rows_of(out: Path) -> Counter[tuple[int, ...]]:
    """What a reader of the sink sees: with Spark's file sink, only the files its log lists."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or wm.session()
    frame = spark.read.parquet(
        *([str(out)] if (out / "_spark_metadata").exists() else [str(p) for p in out.glob("batch-*")])
    )
    return counted(frame.toArrow())


def counted(table: pa.Table) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in ("a_id", "b_id", "c_id")), strict=True))

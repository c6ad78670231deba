"""Kill -9 of the driver, the Java process or a Python worker in any phase of a batch loses and duplicates nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import watersmeet as wm

from ..sessions import open_small_session
from .job import LATENESS, PLANS, QUERIES, STREAMS
from .kills import PHASES, JobProcess, Kill, KillRecord, run_with_kills, wait_for_exit

BATCHES = 8
ROWS_PER_BATCH = 400
SPAN_US = 1_000_000
RANDOM_KILLS = 7
#: A job is killed within this time after its query has started: in its start, in any phase of a batch, or in between.
MAX_DELAY_S = 12.0

#: A worker takes no part in offsets or commits, so one phase is enough.
WORKER = Kill("worker", "operator")
#: The kills of an inner tuple happen in one run of the job, in this order. The job survives the death of a worker, so a
#: second kill can follow.
Kills = tuple[tuple[Kill, ...], ...]
ALL_KILLS: Kills = tuple(
    kills for phase in PHASES for kills in ((Kill("driver", phase),), (WORKER, Kill("jvm", phase)))
)
ALTERNATING_KILLS: Kills = tuple(
    (WORKER, Kill(victim, phase)) for phase, victim in zip(PHASES, ("jvm", "driver") * 3, strict=False)
)
FEW_KILLS: Kills = ((WORKER, Kill("driver", "before-commit")),)


@pytest.mark.skipif(os.environ.get("WATERSMEET_FAULTS") != "1", reason="takes many minutes; run with `make faults`")
@pytest.mark.parametrize(("sink", "kills"), [("files", ALL_KILLS), ("foreach-batch", ALTERNATING_KILLS)])
def test_every_result_is_emitted_once_for_any_victim_and_phase(sink: str, kills: Kills, tmp_path: Path) -> None:
    check_kills(kills, sink, tmp_path, BATCHES)


def test_every_result_is_emitted_once_after_a_worker_and_a_driver_were_killed(tmp_path: Path) -> None:
    check_kills(FEW_KILLS, "files", tmp_path, batches=3)


@pytest.mark.skipif(
    os.environ.get("WATERSMEET_FAULTS") != "1", reason="needs two Java processes at once; run with `make faults`"
)
def test_spark_ends_one_of_two_jobs_on_one_checkpoint_and_every_result_is_emitted_once(tmp_path: Path) -> None:
    tables = {name: write_batches(tmp_path / name, number, batches=4) for number, name in enumerate(STREAMS)}
    both = [JobProcess(tmp_path, "files"), JobProcess(tmp_path, "files")]
    for job in both:
        job.end()
    assert sorted(job.process.returncode for job in both) == [0, 1], both[0].log_tail
    assert re.search(
        "multiple (concurrent )?streaming|concurrent", both[0].log_file.read_text(errors="replace"), re.IGNORECASE
    )
    assert read_sink_rows(tmp_path / "out") == collect_expected(group_by_spark_batch(tables, tmp_path / "checkpoint"))


@pytest.mark.skipif(os.environ.get("WATERSMEET_FAULTS") != "1", reason="takes many minutes; run with `make faults`")
@pytest.mark.parametrize("query", QUERIES)
def test_every_result_is_emitted_once_after_kills_at_random_instants(query: str, tmp_path: Path) -> None:
    tables = {name: write_batches(tmp_path / name, number, RANDOM_KILLS) for number, name in enumerate(STREAMS)}
    rng, kills = Random(query), 0
    while kills < RANDOM_KILLS and kill_at_random(tmp_path, query, rng):
        kills += 1
    JobProcess(tmp_path, "files", query=query).finish()
    found = read_sink_rows(tmp_path / "out")
    expected = collect_expected(group_by_spark_batch(tables, tmp_path / "checkpoint"), query)
    lost, duplicated = (expected - found).total(), (found - expected).total()
    print(f"\n{query}: {kills} kills, {lost} rows lost and {duplicated} duplicated of {expected.total()}")
    assert kills == RANDOM_KILLS, "the job ended before it was killed often enough"
    assert expected
    assert found == expected


def kill_at_random(folder: Path, query: str, rng: Random) -> bool:
    """Start the job, and kill its driver or its Java process after a random time; return whether it still ran."""
    job = JobProcess(folder, "files", query=query)
    job.wait_until_starting()
    jvm = job.jvm
    try:
        job.process.wait(rng.uniform(0, MAX_DELAY_S))
    except subprocess.TimeoutExpired:
        job.kill(rng.choice(["driver", "jvm"]))
    job.end()
    wait_for_exit(jvm)
    return job.process.returncode != 0


def check_kills(kills: Kills, sink: str, folder: Path, batches: int) -> None:
    tables = {name: write_batches(folder / name, number, batches) for number, name in enumerate(STREAMS)}
    done = [killed for in_one_run in kills for killed in run_with_kills(in_one_run, folder, sink)]
    JobProcess(folder, sink).finish()
    assert [killed.kill for killed in done] == [kill for in_one_run in kills for kill in in_one_run], (
        "not every kill was carried out"
    )
    found, expected = (
        read_sink_rows(folder / "out"),
        collect_expected(group_by_spark_batch(tables, folder / "checkpoint")),
    )
    report(sink, done, lost=(expected - found).total(), duplicated=(found - expected).total(), total=expected.total())
    assert found == expected


def report(sink: str, done: list[KillRecord], *, lost: int, duplicated: int, total: int) -> None:
    """Print the counts and the kills; `pytest -s` shows them."""
    print(f"\n{sink}: {len(done)} kills, {lost} results lost and {duplicated} duplicated of {total}")
    for killed in done:
        print(
            f"  {killed.kill.victim:6} {killed.kill.phase:14} "
            f"batch {killed.last_planned_batch} planned, {killed.last_committed_batch} committed"
        )


def write_batches(folder: Path, number: int, batches: int) -> list[pa.Table]:
    """Write one file per batch. Their times overlap a little more than the lateness allows, so some rows are late."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(number)
    tables = []
    for batch in range(batches):
        times = batch * SPAN_US + rng.integers(-600_000, SPAN_US, ROWS_PER_BATCH)
        table = pa.table(
            {
                "ts": pa.array(times),
                "k": pa.array(rng.integers(0, 200, ROWS_PER_BATCH)),
                "v": pa.array(rng.integers(0, 100, ROWS_PER_BATCH)),
                "id": pa.array(np.arange(ROWS_PER_BATCH) + batch * ROWS_PER_BATCH),
            }
        )
        path = folder / f"part-{batch:03d}.parquet"
        pyarrow.parquet.write_table(table, path)
        modified_s = 1_700_000_000 + batch
        os.utime(path, (modified_s, modified_s))
        tables.append(table)
    return tables


def group_by_spark_batch(files: dict[str, list[pa.Table]], checkpoint: Path) -> dict[str, list[pa.Table]]:
    """Group the files by the batch in which Spark processed them, according to its checkpoint.

    The batches decide which rows are late. A batch has one file, unless a kill happened after a source logged a file
    and before the batch was planned. Then it has two.
    """
    by_batch: dict[str, list[pa.Table]] = {name: [] for name in files}
    starts = dict.fromkeys(files, 0)
    for plan in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        ends = [json.loads(line)["logOffset"] + 1 for line in plan.read_text().splitlines()[2:]]
        for name, end in zip(files, ends, strict=True):
            tables = files[name][starts[name] : end]
            by_batch[name].append(pa.concat_tables([files[name][0].slice(0, 0), *tables]))
            starts[name] = end
    assert starts == {name: len(tables) for name, tables in files.items()}
    return by_batch


def collect_expected(batches: dict[str, list[pa.Table]], query: str = "join") -> Counter[tuple[Any, ...]]:
    """Return the rows that the embedded engine emits for these batches while more may follow."""
    streams = {name: wm.stream(tables, time="ts", lateness=LATENESS) for name, tables in batches.items()}
    run = wm.run(QUERIES[query], streams, plan=PLANS.get(query))
    results = [each for tables in run.read_rounds() for each in run.advance(tables)]
    return count_rows(pa.Table.from_batches(results, run.result))


def read_sink_rows(out: Path) -> Counter[tuple[Any, ...]]:
    """Read the rows as a reader of the sink sees them: with Spark's file sink, only the files in its log."""
    frame = open_small_session().read.parquet(
        *([str(out)] if (out / "_spark_metadata").exists() else [str(p) for p in out.glob("batch-*")])
    )
    return count_rows(frame.toArrow())


def count_rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))

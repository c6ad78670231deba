"""Kill -9 of the driver, the Java process and a Python worker, in every phase of a batch: nothing lost, nothing doubled."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import watersmeet as wm

from .job import LATENESS, QUERY, STREAMS
from .kills import PHASES, VICTIMS, Job, Kill, Killed, carry_out

pytestmark = pytest.mark.skipif(os.environ.get("WATERSMEET_FAULTS") != "1", reason="many minutes of kills: make faults")

BATCHES = 12
ROWS_PER_BATCH = 400
SPAN_US = 1_000_000

#: Every victim in every phase once for each sink; a worker has no part in writing offsets or commits.
KILLS = tuple(Kill(victim, phase) for phase in PHASES for victim in VICTIMS if victim != "worker" or phase == "operator")


@pytest.mark.parametrize("sink", ["files", "foreach-batch"])
def test_every_result_comes_once_whoever_is_killed_and_when(sink: str, tmp_path: Path) -> None:
    batches = {name: written(tmp_path / name, number) for number, name in enumerate(STREAMS)}
    done: list[Killed] = []
    for kill in KILLS:
        killed = carry_out(kill, tmp_path, sink)
        if killed is not None:
            done.append(killed)
    last = Job(tmp_path, sink)
    last.finish()
    assert [killed.kill for killed in done] == list(KILLS), "the files ran out before every kill was carried out"
    assert rows_of(tmp_path / "out") == expected(batches)


def written(folder: Path, number: int) -> list[pa.Table]:
    """A file per batch, their times overlapping a little more than the lateness allows, so that some rows are late."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(number)
    tables = []
    for batch in range(BATCHES):
        times = batch * SPAN_US + rng.integers(-600_000, SPAN_US, ROWS_PER_BATCH)
        table = pa.table(
            {
                "ts": times,
                "k": rng.integers(0, 60, ROWS_PER_BATCH),
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


def expected(batches: dict[str, list[pa.Table]]) -> Counter[tuple[int, ...]]:
    streams = {name: wm.stream(tables, time="ts", lateness=LATENESS) for name, tables in batches.items()}
    return counted(wm.collect(QUERY, streams))


def rows_of(out: Path) -> Counter[tuple[int, ...]]:
    """What a reader of the sink sees: with Spark's file sink, only the files its log lists."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession() or wm.session()
    frame = spark.read.parquet(*([str(out)] if (out / "_spark_metadata").exists() else [str(p) for p in out.glob("batch-*")]))
    return counted(frame.toArrow())


def counted(table: pa.Table) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in ("a_id", "b_id", "c_id")), strict=True))

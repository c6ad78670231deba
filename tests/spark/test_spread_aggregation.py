"""Aggregations over several buckets: groups are whole in a bucket, or a second stateful step adds up partial groups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, forget_batch, run_available, table_to_rows
from tests.volume import scale_volume
from watersmeet.runtime.spark.batch_metrics import list_batches

ROUNDS = 3
ROWS = 60

JOINED = "FROM a [RANGE 3 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k AND a.v < 9"
TILED = JOINED.replace("RANGE 3 SECONDS", "TUMBLE 2 SECONDS")
ALL_FIVE = "COUNT(*) AS n, SUM(a.v) AS total, AVG(b.v) AS mean, MIN(b.s) AS first, MAX(a.v) AS most"

#: Query and number of buckets by group key. Buckets have whole groups of the join key and of a stream's own key, and
#: partial groups in the other queries. `make test-long` runs all of them; `tests/runtime/test_bucketed_aggregation.py`
#: runs generated ones without Spark.
QUERIES = {
    "the join key": (f"SELECT a.k, {ALL_FIVE} {JOINED} GROUP BY a.k EVERY 1 SECOND EMIT SNAPSHOT", 5),
    "keys of both": (f"SELECT a.g, b.g AS h, {ALL_FIVE} {JOINED} GROUP BY a.g, b.g HAVING COUNT(*) > 1", 5),
    "keys of both, shown by what is not displayed": (
        f"SELECT a.g, b.g AS h, MAX(a.v) AS most {TILED} GROUP BY a.g, b.g HAVING MOD(COUNT(*), 3) <> 0 EVERY 1 SECOND "
        "EMIT CHANGES WITH OPERATIONS",
        5,
    ),
    "an expression over both": (
        f"SELECT a.v + b.v AS both, {ALL_FIVE} {JOINED} GROUP BY a.v + b.v EVERY 500 MILLISECONDS",
        2,
    ),
    "a stream's own key": (f"SELECT a.g, {ALL_FIVE} {JOINED} GROUP BY a.g EVERY 1 SECOND", 2),
}


@pytest.mark.parametrize("grouped_by", list(QUERIES)[: scale_volume(3)])
def test_an_aggregation_over_several_buckets_survives_a_stop(
    spark: SparkSession, tmp_path: Path, grouped_by: str
) -> None:
    query, buckets = QUERIES[grouped_by]
    for part in (range(1), range(1, ROUNDS)):  # the query stops in between and resumes from its checkpoint
        _write(tmp_path, part)
        frame = wm.on_spark(query, _follow_files(tmp_path), session=spark, buckets=buckets)
        found = list_batches(run_available(frame, tmp_path))
    out = spark.read.schema(frame.schema).parquet(str(tmp_path / "out"))
    assert collect_rows(out) == table_to_rows(_run_embedded(query))
    assert found[-1].results == out.filter(out.as_of > _as_of_before(query)).count()
    if grouped_by == "keys of both":
        check_that_the_last_batch_gives_the_same_groups_again(spark, tmp_path, query, buckets)


def check_that_the_last_batch_gives_the_same_groups_again(
    spark: SparkSession, folder: Path, query: str, buckets: int
) -> None:
    forget_batch(folder, ROUNDS - 1)
    frame = wm.on_spark(query, _follow_files(folder), session=spark, buckets=buckets)
    assert len(list_batches(run_available(frame, folder))) == 1
    assert collect_rows(spark.read.schema(frame.schema).parquet(str(folder / "out"))) == table_to_rows(
        _run_embedded(query)
    )


def _tables(name: str) -> list[pa.Table]:
    rng = np.random.default_rng([7, ord(name)])
    rows = ROUNDS * ROWS
    times = np.sort(rng.integers(0, 8_000_000, rows))
    table = pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "k": pa.array(rng.integers(0, 7, rows)),
            "g": pa.array(rng.integers(0, 4, rows), mask=rng.random(rows) < 0.1),
            "v": pa.array(rng.integers(-9, 12, rows), mask=rng.random(rows) < 0.1),
            "s": pa.array(rng.choice(["x", "y", "zz"], rows), mask=rng.random(rows) < 0.1),
        }
    )
    return [table.slice(number * ROWS, ROWS) for number in range(ROUNDS)]


def _write(folder: Path, part: range) -> None:
    for name in "ab":
        (folder / name).mkdir(exist_ok=True)
        for number in part:
            path = folder / name / f"{number:03d}.parquet"
            pq.write_table(_tables(name)[number], path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark processes the older file first


def _follow_files(folder: Path) -> dict[str, wm.Stream]:
    return {
        name: wm.stream(folder / name, time="ts", lateness="1 second", follow=True, files_per_batch=1) for name in "ab"
    }


def _run_embedded(query: str, rounds: int = ROUNDS) -> pa.Table:
    """Return the rows of every round, without those released at the end: a stream on Spark does not end."""
    run = wm.run(query, {name: wm.stream(_tables(name)[:rounds], time="ts", lateness="1 second") for name in "ab"})
    *found, _ = run.batches()
    return pa.Table.from_batches([batch for each in found for batch in each], run.result)


def _as_of_before(query: str) -> Any:
    """Return the last instant that was emitted before the last round."""
    instants: list[Any] = _run_embedded(query, ROUNDS - 1).column("as_of").to_pylist()
    return max(instants)

"""Failures of Spark are reported in one sentence with a remedy, and Spark's own error is their cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from watersmeet.runtime.spark.execution import collect

QUERY = "SELECT a.k FROM a [RANGE 1 SECOND]"
ROWS = pa.table({"ts": [1_000_000, 2_000_000], "k": [1, 2]})


def fail(spark: SparkSession, failure: str) -> DataFrame:
    """Return rows whose step fails in a worker."""

    # A nested function is pickled by value: workers cannot import the tests.
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import signal

        for batch in batches:
            if failure == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if failure == "memory":
                bytearray(1 << 60)
            if failure == "price":
                raise ValueError("price must be positive")
            yield batch

    return spark.createDataFrame(ROWS).mapInArrow(step, "ts long, k long")


def lose_file(spark: SparkSession, folder: Path) -> DataFrame:
    pq.write_table(ROWS, folder / "rows.parquet")
    frame = spark.read.parquet(str(folder))
    (folder / "rows.parquet").unlink()
    return frame


def write_other_type(spark: SparkSession, folder: Path) -> DataFrame:
    pq.write_table(ROWS.set_column(1, "k", pa.array(["x", "y"])), folder / "rows.parquet")
    return spark.read.schema("ts long, k long").parquet(str(folder))


FAILURES: dict[str, tuple[Callable[[SparkSession, Path], DataFrame], str, str]] = {
    "a killed worker": (lambda spark, _: fail(spark, "killed"), r"^a Python worker of Spark died", "more memory"),
    "no memory": (lambda spark, _: fail(spark, "memory"), r"^a Python worker of Spark ran out of memory", "smaller"),
    "the user's code": (
        lambda spark, _: fail(spark, "price"),
        r"^the query failed on Spark: ValueError: price must be positive",
        "None",
    ),
    "a missing file": (lose_file, r'^input file "/.*rows\.parquet" is missing', "restore the file"),
    "a column of another type": (
        write_other_type,
        r'^column k of input file "/.*rows\.parquet" is BINARY, expected bigint',
        "write the file again",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_sentence_with_a_remedy(spark: SparkSession, tmp_path: Path, name: str) -> None:
    make, sentence, remedy = FAILURES[name]
    frame = wm.on_spark(QUERY, {"a": wm.stream(make(spark, tmp_path), time="ts")}, plan=wm.plan())
    with pytest.raises(wm.InputError, match=sentence) as raised:
        collect(frame)
    assert len(raised.value.message.splitlines()) == 1
    assert remedy in str(raised.value.hint)
    assert raised.value.__cause__ is not None

"""Mistakes of the caller raise readable errors: before anything runs, or from a worker if only it can see them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

import watersmeet as wm
from watersmeet.runtime.buckets.bucket_grid import assign_labels, spark_partition
from watersmeet.runtime.spark.execution import collect
from watersmeet.runtime.spark.session import ROCKSDB

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROWS = pa.table({"ts": pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC")), "k": [1, 2]})
QUERY = "SELECT a.k FROM a [RANGE 1 SECOND] WHERE a.k > 0"


def follow_files(folder: Path) -> dict[str, wm.Stream]:
    (folder / "a").mkdir(exist_ok=True)
    pq.write_table(ROWS, folder / "a" / f"{len(list((folder / 'a').iterdir()))}.parquet")
    return {"a": wm.stream(folder / "a", time="ts", follow=True)}


def test_a_session_without_rocksdb_is_refused_with_the_setting_to_change(spark: SparkSession, tmp_path: Path) -> None:
    other = spark.newSession()
    other.conf.set(PROVIDER, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    with pytest.raises(wm.InputError, match=PROVIDER.replace(".", r"\.")):
        wm.on_spark(QUERY, follow_files(tmp_path), session=other)
    assert spark.conf.get(PROVIDER) == ROCKSDB


def test_a_missing_time_column_is_named_before_anything_runs(spark: SparkSession) -> None:
    with pytest.raises(wm.InputError, match='stream "a" has no time column "when"'):
        wm.on_spark(QUERY, {"a": wm.stream(spark.createDataFrame(ROWS), time="when")})


def test_two_columns_of_one_name_are_refused_before_anything_runs(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 2, 3)], "ts long, ts long, k long")
    with pytest.raises(wm.InputError, match='2 columns named "ts"'):
        wm.on_spark(QUERY, {"a": wm.stream(frame, time="ts"), "b": wm.stream(frame, time="ts")})


def test_a_time_column_of_text_is_refused_before_anything_runs(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS).withColumn("ts", F.lit("noon"))
    with pytest.raises(wm.InputError, match="is string, which is not a time"):
        wm.on_spark(QUERY, {"a": wm.stream(frame, time="ts")})


def test_a_null_time_is_an_error_of_the_input(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS).withColumn("ts", F.when(F.col("k") == 1, F.col("ts")))
    with pytest.raises(wm.InputError, match='of stream "a" has no time'):
        collect(wm.on_spark(QUERY, {"a": wm.stream(frame, time="ts")}))


def test_less_than_one_bucket_is_refused(spark: SparkSession) -> None:
    with pytest.raises(wm.InputError, match="at least one bucket"):
        wm.on_spark(QUERY, {"a": wm.stream(ROWS, time="ts")}, session=spark, buckets=0)


@pytest.mark.parametrize("partitions", [1, 2, 5, 16])
def test_labels_lie_on_the_partitions_that_spark_chooses(spark: SparkSession, partitions: int) -> None:
    labels = assign_labels(partitions, partitions)
    frame = spark.createDataFrame([(label,) for label in labels], "label int")
    found = frame.select("label", F.pmod(F.hash("label"), F.lit(partitions))).collect()
    assert {label: spark_partition(label, partitions) for label in labels} == {row[0]: row[1] for row in found}
    assert sorted(row[1] for row in found) == list(range(partitions))

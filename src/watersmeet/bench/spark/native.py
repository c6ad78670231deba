"""The same join in Spark's own terms: a chain of stream-stream joins on the key, with a band on the times of every pair."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.bench.workloads import CommonKey

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
SCHEMA = "ts timestamp, k long, id long"


def native_join(spark: SparkSession, workload: CommonKey, folder: Path) -> DataFrame:
    """Spark takes one event-time column at a time, so after each join all but the first stream's become plain columns."""
    streams = {alias: _stream(spark, folder / alias, alias) for alias in workload.aliases}
    joined = streams["a"]
    for number, alias in enumerate(workload.aliases[1:], start=1):
        near = [_near(workload, other, alias) for other in workload.aliases[:number]]
        joined = joined.join(streams[alias], reduce(Column.__and__, near, F.col("a_k") == F.col(f"{alias}_k")))
        joined = joined.withColumn(f"{alias}_ts", F.timestamp_micros(F.unix_micros(f"{alias}_ts")))
    return joined.select(F.col("a_k").alias("k"), *(f"{alias}_{name}" for alias in workload.aliases for name in ("ts", "id")))


def _stream(spark: SparkSession, folder: Path, alias: str) -> DataFrame:
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    named = frame.select(*(F.col(name).alias(f"{alias}_{name}") for name in frame.columns))
    return named.withWatermark(f"{alias}_ts", "0 seconds")


def _near(workload: CommonKey, one: str, other: str) -> Column:
    window = F.expr(f"INTERVAL {workload.window_s} SECONDS")
    return (F.col(f"{one}_ts") >= F.col(f"{other}_ts") - window) & (F.col(f"{one}_ts") <= F.col(f"{other}_ts") + window)

"""A window join in Spark's own terms: a chain of stream-stream joins, followed by the aggregates.

Columns are named `alias_column`. Spark allows one event-time column, so after each join all but the first stream's
become plain columns. Spark joins on equality only: without one, rows join on cells as wide as the band.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet_lab.bench.portable_joins import JoinAggregate, JoinStep, PairBound, PortableJoin, TumblingTile

STATE_STORE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_QUALIFIED = re.compile(r"\b([a-z])\.(\w+)")


@contextmanager
def use_state_store(spark: SparkSession, provider: str) -> Iterator[None]:
    """Set the state store of streaming queries that start while the context is open."""
    before = spark.conf.get(STATE_STORE_PROVIDER)
    spark.conf.set(STATE_STORE_PROVIDER, STATE_STORES[provider])
    try:
        yield
    finally:
        spark.conf.set(STATE_STORE_PROVIDER, str(before))


def native_join_frame(spark: SparkSession, join: PortableJoin, folder: Path) -> DataFrame:
    """Return the join over streams that are folders of files; one file per stream makes a batch."""
    first, *others = join.steps()
    joined = _read_source(spark, join, first, folder)
    for step in others:
        joined = joined.join(_read_source(spark, join, step, folder), _join_condition(join, step))
        joined = _without_event_time(joined, step.alias).drop(f"{step.alias}_tile", f"{step.alias}_cell")
    return _aggregate_frame(join, joined) if join.aggregates else joined.select(*_output_columns(join))


def read_parquet_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Read a folder of Parquet files as a stream; Spark needs the schema in advance."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _read_source(spark: SparkSession, join: PortableJoin, step: JoinStep, folder: Path) -> DataFrame:
    frame = read_parquet_stream(spark, folder / step.stream)
    named = frame.select(*(F.col(name).alias(f"{step.alias}_{name}") for name in frame.columns))
    named = named.withWatermark(f"{step.alias}_ts", "0 seconds")
    if isinstance(join.windows, TumblingTile):
        named = named.withColumn(
            f"{step.alias}_tile", F.window(f"{step.alias}_ts", f"{join.windows.length_us} microseconds")
        )
        named = _without_event_time(named, step.alias)  # the tile keeps the event time
    if join.band is not None:
        named = named.withColumn(f"{step.alias}_cell", _band_cell(join, step))
    local = [_expression_column(text) for text in step.where if set(re.findall(r"\b([a-z])\.", text)) == {step.alias}]
    return reduce(DataFrame.filter, local, named)


def _without_event_time(frame: DataFrame, alias: str) -> DataFrame:
    return frame.withColumn(f"{alias}_ts", F.timestamp_micros(F.unix_micros(f"{alias}_ts")))


def _band_cell(join: PortableJoin, step: JoinStep) -> Column:
    """Return the cell of a row; rows of the second stream are copied into the two adjacent cells as well."""
    assert join.band is not None
    column = next(text for text in (join.band.one, join.band.other) if text.startswith(f"{step.alias}."))
    cell = F.expr(f"{_unqualify(column)} div {join.band.width}")
    return cell if step.alias == join.aliases[0] else F.explode(F.array(cell - 1, cell, cell + 1))


def _join_condition(join: PortableJoin, step: JoinStep) -> Column:
    first = join.aliases[0]
    conditions = [F.col(_unqualify(one)) == F.col(_unqualify(other)) for one, other in step.equal]
    if isinstance(join.windows, TumblingTile):
        conditions.append(F.col(f"{first}_tile") == F.col(f"{step.alias}_tile"))
    if join.band is not None:
        conditions.append(F.col(f"{first}_cell") == F.col(f"{step.alias}_cell"))
        conditions.append(_expression_column(f"ABS({join.band.one} - {join.band.other}) < {join.band.width}"))
    several = [text for text in step.where if len(set(re.findall(r"\b([a-z])\.", text))) > 1]
    return reduce(Column.__and__, [*conditions, *map(_within_bound, step.bounds), *map(_expression_column, several)])


def _within_bound(bound: PairBound) -> Column:
    one, other = F.col(f"{bound.one}_ts"), F.col(f"{bound.other}_ts")
    return (other >= one + _interval_column(bound.low_us)) & (other <= one + _interval_column(bound.high_us))


def _interval_column(length_us: int) -> Column:
    return (
        F.expr(f"INTERVAL '{length_us // 1_000_000}.{length_us % 1_000_000:06d}' SECOND")
        if length_us >= 0
        else -_interval_column(-length_us)
    )


def _aggregate_frame(join: PortableJoin, joined: DataFrame) -> DataFrame:
    groups = [F.col(_unqualify(expression)).alias(name) for expression, name in join.outputs]
    tile = f"{join.aliases[0]}_tile"
    counted = joined.groupBy(F.col(tile), *groups).agg(*map(_aggregate_column, join.aggregates))
    names = [name for _, name in join.outputs] + [each.name for each in join.aggregates]
    return counted.select(F.col(f"{tile}.end").alias("as_of"), *names)


def _aggregate_column(each: JoinAggregate) -> Column:
    return F.expr(f"{each.function}({_unqualify(each.column)})").alias(each.name)


def _output_columns(join: PortableJoin) -> list[Column]:
    return [F.col(_unqualify(expression)).alias(name) for expression, name in join.outputs]


def _expression_column(text: str) -> Column:
    return F.expr(_unqualify(text))


def _unqualify(text: str) -> str:
    return _QUALIFIED.sub(r"\1_\2", text)

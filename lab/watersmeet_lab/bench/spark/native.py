"""A window join in Spark's own terms: a chain of stream-stream joins, then their aggregates.

Columns go by `alias_column`. Spark takes one event-time column at a time, so after each join all but the first stream's
become plain columns. It joins on equality only: without one, values meet in cells as wide as the band.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet_lab.bench.joins import Aggregate, Bound, Step, Tile, WindowJoin

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PROVIDERS = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_QUALIFIED = re.compile(r"\b([a-z])\.(\w+)")


@contextmanager
def state_in(spark: SparkSession, provider: str) -> Iterator[None]:
    """A streaming query that starts meanwhile keeps its state so."""
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, PROVIDERS[provider])
    try:
        yield
    finally:
        spark.conf.set(PROVIDER, str(before))


def native_join(spark: SparkSession, join: WindowJoin, folder: Path) -> DataFrame:
    """The streams are folders of files, one of which makes a batch."""
    first, *others = join.steps()
    joined = _stream(spark, join, first, folder)
    for step in others:
        joined = joined.join(_stream(spark, join, step, folder), _condition(join, step))
        joined = _without_event_time(joined, step.alias).drop(f"{step.alias}_tile", f"{step.alias}_cell")
    return _aggregated(join, joined) if join.aggregates else joined.select(*_outputs(join))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    """A folder of parquet files as a stream; Spark wants to be told the columns before it looks."""
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _stream(spark: SparkSession, join: WindowJoin, step: Step, folder: Path) -> DataFrame:
    frame = stream_of(spark, folder / step.stream)
    named = frame.select(*(F.col(name).alias(f"{step.alias}_{name}") for name in frame.columns))
    named = named.withWatermark(f"{step.alias}_ts", "0 seconds")
    if isinstance(join.windows, Tile):
        named = named.withColumn(
            f"{step.alias}_tile", F.window(f"{step.alias}_ts", f"{join.windows.length_us} microseconds")
        )
        named = _without_event_time(named, step.alias)  # the tile carries it on
    if join.band is not None:
        named = named.withColumn(f"{step.alias}_cell", _cell(join, step))
    local = [_expression(text) for text in step.where if set(re.findall(r"\b([a-z])\.", text)) == {step.alias}]
    return reduce(DataFrame.filter, local, named)


def _without_event_time(frame: DataFrame, alias: str) -> DataFrame:
    return frame.withColumn(f"{alias}_ts", F.timestamp_micros(F.unix_micros(f"{alias}_ts")))


def _cell(join: WindowJoin, step: Step) -> Column:
    """The first stream's rows are in one cell, the other's in it and in those beside it."""
    assert join.band is not None
    column = next(text for text in (join.band.one, join.band.other) if text.startswith(f"{step.alias}."))
    cell = F.expr(f"{_plain(column)} div {join.band.width}")
    return cell if step.alias == join.aliases[0] else F.explode(F.array(cell - 1, cell, cell + 1))


def _condition(join: WindowJoin, step: Step) -> Column:
    first = join.aliases[0]
    conditions = [F.col(_plain(one)) == F.col(_plain(other)) for one, other in step.equal]
    if isinstance(join.windows, Tile):
        conditions.append(F.col(f"{first}_tile") == F.col(f"{step.alias}_tile"))
    if join.band is not None:
        conditions.append(F.col(f"{first}_cell") == F.col(f"{step.alias}_cell"))
        conditions.append(_expression(f"ABS({join.band.one} - {join.band.other}) < {join.band.width}"))
    several = [text for text in step.where if len(set(re.findall(r"\b([a-z])\.", text))) > 1]
    return reduce(Column.__and__, [*conditions, *map(_near, step.bounds), *map(_expression, several)])


def _near(bound: Bound) -> Column:
    one, other = F.col(f"{bound.one}_ts"), F.col(f"{bound.other}_ts")
    return (other >= one + _interval(bound.low_us)) & (other <= one + _interval(bound.high_us))


def _interval(length_us: int) -> Column:
    return (
        F.expr(f"INTERVAL '{length_us // 1_000_000}.{length_us % 1_000_000:06d}' SECOND")
        if length_us >= 0
        else -_interval(-length_us)
    )


def _aggregated(join: WindowJoin, joined: DataFrame) -> DataFrame:
    groups = [F.col(_plain(expression)).alias(name) for expression, name in join.outputs]
    tile = f"{join.aliases[0]}_tile"
    counted = joined.groupBy(F.col(tile), *groups).agg(*map(_aggregate, join.aggregates))
    names = [name for _, name in join.outputs] + [each.name for each in join.aggregates]
    return counted.select(F.col(f"{tile}.end").alias("as_of"), *names)


def _aggregate(each: Aggregate) -> Column:
    return F.expr(f"{each.function}({_plain(each.column)})").alias(each.name)


def _outputs(join: WindowJoin) -> list[Column]:
    return [F.col(_plain(expression)).alias(name) for expression, name in join.outputs]


def _expression(text: str) -> Column:
    return F.expr(_plain(text))


def _plain(text: str) -> str:
    return _QUALIFIED.sub(r"\1_\2", text)

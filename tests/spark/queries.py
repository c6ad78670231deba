"""What a query gives on Spark, and what it gives embedded, in values that compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

import watersmeet as wm
from tests.oracle import Arrival, as_multiset, table_rows
from tests.properties.engine import Rows
from tests.properties.generators.cases import QueryCase
from watersmeet.runtime.spark.spark_types import to_spark_batch, to_spark_schema


def sources_of(case: QueryCase, arrivals: Mapping[str, Arrival]) -> dict[str, Any]:
    """The case's streams in the batches they arrive in, its relations whole."""
    sources: dict[str, Any] = {source.name: wm.relation(source.table) for source in case.sources if source.time is None}
    for name, arrival in arrivals.items():
        idle = None if arrival.idle_us is None else f"{arrival.idle_us} microseconds"
        lateness = f"{arrival.lateness_us} microseconds"
        sources[name] = wm.stream(
            list(arrival.batches), time=arrival.time, unit=arrival.unit, lateness=lateness, idle=idle
        )
    return sources


def rows_of(frame: DataFrame) -> Rows:
    """The rows of a finite frame."""
    return rows_of_table(frame.toArrow())


def rows_of_table(table: pa.Table) -> Rows:
    return as_multiset(table_rows(in_spark_types(table)))


def in_spark_types(table: pa.Table) -> pa.Table:
    fields = to_spark_schema(table.schema)
    return pa.Table.from_batches(
        [to_spark_batch(batch, fields) for batch in table.combine_chunks().to_batches()], fields
    )


def streamed_rows(frame: DataFrame, folder: Path) -> Rows:
    """The rows a streaming frame has written when it has read all there is."""
    run_to_the_end(frame, folder)
    return rows_of(frame.sparkSession.read.schema(frame.schema).parquet(str(folder / "out")))


def run_to_the_end(frame: DataFrame, folder: Path) -> Any:
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def forget_batch(folder: Path, batch: int) -> None:
    """As if the query had died just before the batch was committed: neither Spark nor its file sink knows that it is
    over.
    """
    for log in (folder / "checkpoint" / "commits", folder / "out" / "_spark_metadata"):
        (log / str(batch)).unlink()
        (log / f".{batch}.crc").unlink(missing_ok=True)

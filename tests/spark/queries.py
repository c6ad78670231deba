"""Run queries on Spark and return their rows in a form that compares with the embedded engine's rows."""

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
from watersmeet.runtime.spark.emission import to_spark_batch, to_spark_schema


def build_sources(case: QueryCase, arrivals: Mapping[str, Arrival]) -> dict[str, Any]:
    """Return the streams of a case in the batches of their arrival, and its relations."""
    sources: dict[str, Any] = {source.name: wm.relation(source.table) for source in case.sources if source.time is None}
    for name, arrival in arrivals.items():
        idle = None if arrival.idle_us is None else f"{arrival.idle_us} microseconds"
        lateness = f"{arrival.lateness_us} microseconds"
        sources[name] = wm.stream(
            list(arrival.batches), time=arrival.time, unit=arrival.unit, lateness=lateness, idle=idle
        )
    return sources


def collect_rows(frame: DataFrame) -> Rows:
    """Return the rows of a finite DataFrame."""
    return table_to_rows(frame.toArrow())


def table_to_rows(table: pa.Table) -> Rows:
    return as_multiset(table_rows(to_spark_types(table)))


def to_spark_types(table: pa.Table) -> pa.Table:
    fields = to_spark_schema(table.schema)
    return pa.Table.from_batches(
        [to_spark_batch(batch, fields) for batch in table.combine_chunks().to_batches()], fields
    )


def stream_to_rows(frame: DataFrame, folder: Path) -> Rows:
    """Run a streaming DataFrame until it has processed the available data; return the rows it has written."""
    run_available(frame, folder)
    return collect_rows(frame.sparkSession.read.schema(frame.schema).parquet(str(folder / "out")))


def run_available(frame: DataFrame, folder: Path) -> Any:
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def forget_batch(folder: Path, batch: int) -> None:
    """Remove the commit of a batch from Spark's logs, as if the query had died just before the commit."""
    for log in (folder / "checkpoint" / "commits", folder / "out" / "_spark_metadata"):
        (log / str(batch)).unlink()
        (log / f".{batch}.crc").unlink(missing_ok=True)

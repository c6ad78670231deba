"""Execution of queries on Spark: collect the rows of finite data, or start a streaming query and follow its batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import Query
from watersmeet.events import log_batch, log_run_ended
from watersmeet.metrics import Observer
from watersmeet.runtime.spark.batch_metrics import build_ledger, parse_progress, to_batch_metrics
from watersmeet.runtime.spark.host import on_spark
from watersmeet.runtime.spark.progress_events import ProgressEvents
from watersmeet.runtime.spark.spark_errors import summarize_error, summarize_spark_errors
from watersmeet.runtime.spark.streaming_start import AVAILABLE_NOW, StreamSink
from watersmeet.runtime.spark.ui_names import describe_jobs, describe_query, ui_name
from watersmeet.sources.declarations import Sources

ShowBatch = Callable[[int, pa.Table], None]


@dataclass(frozen=True)
class Sink:
    """Destination of a streaming query's rows: files in a directory, or `show` if there is no directory.

    `show` is called with every batch.
    """

    checkpoint: Path
    directory: Path | None = None
    format: str = "parquet"
    show: ShowBatch = lambda batch, rows: None


def start_streaming(query: Query | str, frame: DataFrame, sink: Sink, *, follow: bool) -> StreamingQuery:
    """Start a streaming query whose rows are `frame`, under a readable name.

    Without `follow` it ends when it has processed the available data.
    """

    def show_batches(rows: DataFrame) -> DataStreamWriter:
        return rows.writeStream.foreachBatch(lambda batch_rows, batch: sink.show(batch, batch_rows.toArrow()))

    trigger = None if follow else AVAILABLE_NOW
    destination = StreamSink(sink.directory or show_batches, sink.format, checkpoint=sink.checkpoint, trigger=trigger)
    return destination.start(frame, ui_name(describe_query(query)))


def follow_query(query: StreamingQuery, stop: threading.Event, observe: Observer, plan: Plan | None = None) -> int:
    """Pass the metrics of every batch to the observer until the query ends or `stop` is set; return the rows emitted.

    A failure of the query or of the observer is raised. The query is stopped in any case. Batches that end while it
    stops are observed as well.
    """
    with ProgressEvents(query) as progress:
        try:
            rows_out = _observe_batches(progress.reports(stop), observe, plan or Plan())
        finally:
            query.stop()
        rows_out += _observe_batches(progress.reports(), observe, plan or Plan())
    failure = query.exception()
    if failure is not None and not stop.is_set():
        raise summarize_error(failure)
    log_run_ended(rows_out, {})
    return rows_out


def _observe_batches(reports: Iterable[StreamingQueryProgress], observe: Observer, plan: Plan) -> int:
    """Pass the metrics of the reported batches to the observer; return the rows that these batches emitted."""
    rows_out = 0
    for batch in parse_progress(reports):
        rows_out += batch.results
        metrics = to_batch_metrics(batch, plan)
        log_batch(metrics)
        observe(metrics)
    return rows_out


def collect_with_ledger(query: Query | str, sources: Sources, plan: Plan | None) -> pa.Table:
    """Collect all rows of a query over finite data. The metadata of the table's schema contain the ledger.

    The embedded engine returns the ledger in the same place.
    """
    observation = Observation()
    frame = on_spark(query, sources, plan=plan, observation=observation)
    with describe_jobs(frame.sparkSession.sparkContext, describe_query(query)):
        rows = collect(frame)
    ledger = build_ledger(observation.get)
    log_run_ended(rows.num_rows, ledger)
    return rows.replace_schema_metadata({"watersmeet": json.dumps({"ledger": ledger})})


def collect(frame: DataFrame) -> pa.Table:
    """Collect all rows of a finite DataFrame; raise Spark's errors as one sentence."""
    with summarize_spark_errors():
        return frame.toArrow()

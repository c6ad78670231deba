"""Execution of queries on Spark: collect the rows of finite data, or start a streaming query and follow its batches.

A start has a writer, a trigger, a load controller, and the thread that follows the query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.errors import InputError
from watersmeet.events import log_batch, log_run_ended
from watersmeet.metrics import Observer
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.ayad_drops import SheddingPolicy
from watersmeet.runtime.background import BackgroundThread
from watersmeet.runtime.buckets.bucket_grid import to_local_path
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.live import LiveWatch, forecast_run
from watersmeet.runtime.spark.batch_metrics import ProgressEvents, build_ledger, parse_progress, to_batch_metrics
from watersmeet.runtime.spark.host import on_spark
from watersmeet.runtime.spark.load_controller import LoadController
from watersmeet.runtime.spark.running_query import QueryRecord, RunningQuery
from watersmeet.runtime.spark.spark_errors import SPARK_FAILURES, summarize_error, summarize_spark_errors
from watersmeet.runtime.spark.ui_names import describe_jobs, describe_query, ui_name
from watersmeet.sinks import SINK_FORMATS
from watersmeet.sources.declarations import Sources
from watersmeet.sources.times import Duration, parse_duration_us
from watersmeet.stats.stream_stats import StreamStats

#: Trigger of a query that processes the available data and ends.
AVAILABLE_NOW = "availableNow"

#: Sinks that keep nothing after the query, and therefore need no checkpoint.
_TRANSIENT_FORMATS = ("memory", "console", "noop")

BuildWriter = Callable[[DataFrame], "DataStreamWriter"]
ShowBatch = Callable[[int, pa.Table], None]


@dataclass(frozen=True, slots=True)
class StreamSink:
    """Destination of a streaming query.

    `to` is a path, the name of a table (`format="table"`), the name of a table in memory (`format="memory"`), or a
    function that makes a writer of the DataFrame. `options` are options of the format.
    """

    to: str | Path | BuildWriter | None = None
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | Path | None = None
    trigger: Duration | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.to is None and self.format not in ("console", "noop"):
            raise InputError(
                "a streaming query needs a destination",
                hint='pass to="DIRECTORY", to="TABLE" with format="table" or "memory", or a function from the '
                "DataFrame to a writer",
            )
        if self.checkpoint is None and (callable(self.to) or self.format not in _TRANSIENT_FORMATS):
            raise InputError(
                "a streaming query needs a checkpoint, from which it continues after a restart",
                hint='pass checkpoint="DIRECTORY"; only the formats memory, console and noop do without one',
            )

        own = SINK_FORMATS.get(f".{self.format}")
        if own is not None and own.spark_name is None and not callable(self.to):
            raise InputError(f"Spark does not write {self.format} files", hint=f"formats: {_list_spark_formats()}")

    @property
    def interval_us(self) -> int | None:
        """Trigger interval; None if batches follow each other at once, or if the query ends with the available data."""
        if self.trigger is None or self.trigger == AVAILABLE_NOW:
            return None
        return parse_duration_us(self.trigger, "the trigger interval")

    def start(self, rows: DataFrame, default_name: str | None = None) -> StreamingQuery:
        """Start to write the rows of a streaming DataFrame."""
        writer, name = self._trigger_writer(self._build_writer(rows)), self._choose_name(rows, default_name)
        if name is not None:
            writer = writer.queryName(name)
        if self.checkpoint is not None:
            writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.toTable(str(self.to)) if self._is_table else writer.start()

    @property
    def _is_table(self) -> bool:
        return self.format == "table" and not callable(self.to)

    def _build_writer(self, rows: DataFrame) -> DataStreamWriter:
        if callable(self.to):
            return self.to(rows)
        writer = rows.writeStream.outputMode("append")
        if self._is_table:
            return writer.options(**self.options)
        writer = self._format_writer(writer)
        return writer if self.format in _TRANSIENT_FORMATS else writer.option("path", str(self.to))

    def _format_writer(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Set the format: one of our file formats, or any other that Spark writes."""
        own = SINK_FORMATS.get(f".{self.format}")
        if own is None or own.spark_name is None:
            return writer.format(self.format).options(**self.options)
        return writer.format(own.spark_name).options(**{**own.spark_options, **self.options})

    def _trigger_writer(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True)
        return writer if self.interval_us is None else writer.trigger(processingTime=f"{self.interval_us} microseconds")

    def _choose_name(self, rows: DataFrame, default_name: str | None) -> str | None:
        """Return the query's name, which no other active query of the session may have."""
        if self.name is not None or default_name is None:
            return self.name
        if self.format == "memory" and not callable(self.to):
            return str(self.to)
        taken = {query.name for query in rows.sparkSession.streams.active}
        names = (default_name if number == 1 else f"{default_name} ({number})" for number in range(1, len(taken) + 2))
        return next(name for name in names if name not in taken)


def _list_spark_formats() -> str:
    return ", ".join(suffix[1:] for suffix, each in SINK_FORMATS.items() if each.spark_name is not None)


def make_controller(
    bound: BoundQuery,
    sink: StreamSink,
    checkpoint: Path | None,
    plan: Plan,
    stats: Mapping[str, StreamStats] | None,
    policy: SheddingPolicy,
) -> LoadController:
    """Return a load controller whose plan log lies in the checkpoint, which must be in a local or mounted directory."""
    if sink.interval_us is None:
        raise InputError(
            "keep_up chooses shed rates by the trigger interval, and there is none", hint='pass trigger="10 seconds"'
        )
    if checkpoint is None:
        raise InputError(
            "keep_up stores its decisions in the checkpoint, which is not a directory of this machine",
            hint='pass checkpoint="DIRECTORY", on a file system that all workers can read',
        )
    log = PlanLog(checkpoint / "watersmeet" / "plans")
    return LoadController(bound, log, checkpoint, sink.interval_us / 1e6, plan, stats or {}, policy)


def start_query(
    rows: DataFrame,
    sink: StreamSink,
    default_name: str,
    *,
    plan: Plan,
    explain_plan: Callable[[Plan], Explanation],
    controller: LoadController | None = None,
) -> RunningQuery:
    """Start a streaming query and a thread that records its batches. The controller decides after each of them.

    `plan` is the plan of the query unless the log of the controller has another one for a batch.
    """
    record, log = QueryRecord(), None if controller is None else controller.log
    place = None if sink.checkpoint is None else to_local_path(sink.checkpoint)
    trigger_s = None if sink.interval_us is None else sink.interval_us / 1e6
    watch = LiveWatch(lambda: forecast_run(lambda: explain_plan(plan)), trigger_s, place)
    with summarize_spark_errors():
        query = sink.start(rows, default_name)

    def plan_at(batch: int) -> Plan:
        return (log.plan_at(batch) if log is not None else None) or plan

    follower = BackgroundThread(
        "the thread that follows the query, which it stopped,",
        lambda: _record_batches(query, rows.sparkSession, record, watch, controller, plan_at),
        lambda: _stop_query(query),
    ).start()
    decisions = [] if controller is None else controller.decisions
    return RunningQuery(query, follower, record, watch, decisions, plan_at, explain_plan)


def _record_batches(
    query: StreamingQuery,
    spark: SparkSession,
    record: QueryRecord,
    watch: LiveWatch,
    controller: LoadController | None,
    plan_at: Callable[[int], Plan],
) -> None:
    with ProgressEvents(query, spark) as progress:
        for batch in parse_progress(progress.reports()):
            metrics = watch.observe(to_batch_metrics(batch, plan_at(batch.batch)))
            record.add(metrics)
            log_batch(metrics)
            if controller is not None:
                controller.process_batch(batch)
    watch.save()
    watch.learn()
    log_run_ended(record.rows_out, {name: asdict(entry) for name, entry in record.copy_ledger().items()})


def _stop_query(query: StreamingQuery) -> None:
    with suppress(*SPARK_FAILURES):  # the thread may have failed because Spark has gone
        query.stop()


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


def collect_with_ledger(
    query: Query | str, sources: Sources, plan: Plan | None, stats: Mapping[str, StreamStats] | None = None
) -> pa.Table:
    """Collect all rows of a query over finite data. The metadata of the table's schema contain the ledger.

    The embedded engine returns the ledger in the same place.
    """
    observation = Observation()
    frame = on_spark(query, sources, plan=plan, stats=stats, observation=observation)
    with describe_jobs(frame.sparkSession, describe_query(query)):
        rows = collect(frame)
    ledger = build_ledger(observation.get)
    log_run_ended(rows.num_rows, ledger)
    return rows.replace_schema_metadata({"watersmeet": json.dumps({"ledger": ledger})})


def collect(frame: DataFrame) -> pa.Table:
    """Collect all rows of a finite DataFrame; raise Spark's errors as one sentence."""
    with summarize_spark_errors():
        return frame.toArrow()

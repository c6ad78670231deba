"""Metrics of micro-batches: every bucket counts, `observe` adds up over buckets, the driver reads the sums.

The driver reads them through Spark's `StreamingQueryListener`: one listener per session.
Spark calls all listeners of an application from one thread. So the listener only queues the events of each query, and
the thread that follows the query takes them from the queue (`ProgressEvents`). No error can get lost in Spark's thread.

The listener is added after the query has started. Spark reports a start from the query's own Java thread, and Py4J
would open one more connection and one more Python thread for it. Batches that end before the listener is there are in
the query's recent progress, which is read once. The session keeps the listener until its last followed query has ended.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.metrics import BatchMetrics
from watersmeet.operators.window_join.work_counters import ALL_INPUTS, EMIT, INGEST, PROBE, STORE
from watersmeet.runtime.buckets.bucket import MERGE_METRICS, Bucket, time_metric_name
from watersmeet.runtime.spark.client import Py4JError
from watersmeet.runtime.spark.emission import METRICS

OBSERVATION, MERGED = "watersmeet", "watersmeet groups"
#: Prefix of the observation of a stream's messages, before the name of the stream.
_MESSAGES = "watersmeet messages of "

_PER_BUCKET = (
    "results",
    "state_rows",
    "state_bytes",
    "pack_us",
    "receive_us",
    "state_read_us",
    "join_us",
    "state_write_us",
    "watermark_us",
    "newest_us",
)
_EQUAL_IN_ALL = ("watermark_us", "newest_us")
_RESULTS = json.dumps(["results"])
_PER_STREAM = ("arrived", "late", "shed")
_PER_INPUT = (INGEST, STORE, PROBE)
_PER_PAIR = ("probes", "comparisons", "touched")
#: Interval between two looks at the event that stops the caller.
STOP_CHECK_S = 0.1
#: After this time without an event, ask Spark whether the query still runs. Spark drops events of a listener that is
#: far behind, and of a session that is stopped.
SILENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class SparkBatchMetrics:
    """Metrics of one micro-batch. Times are sums over all tasks, in microseconds.

    `started_s` is the wall clock at the start of the batch. Streams are keyed by name, pairs by (origin, target) alias.
    `watermark_us` is the watermark at the start of the next batch, `newest_us` the largest event time so far. `arrived`
    are all rows of a stream; of these, `late` rows came too late to be joined and `shed` rows were dropped on purpose.
    `shuffled` are the rows that buckets received, by alias, copies included.

    `pack_us` is the time of the packing tasks. In the buckets, `receive_us` is the time to read the shuffled packets,
    `state_read_us` and `state_write_us` the time to load and to save the state, `join_us` the time of the join.
    `spent_us` is the CPU time of the join's operators under the names of the cost model; it is a part of `join_us`.

    `unreadable` are messages that were skipped or diverted, and `empty` are messages without a value. They are no rows.
    """

    batch: int
    results: int
    state_rows: int
    state_bytes: int
    watermark_us: int
    newest_us: int
    pack_us: int
    receive_us: int
    state_read_us: int
    join_us: int
    state_write_us: int
    trigger_ms: int
    started_s: float
    arrived: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    shed: Mapping[str, int] = field(default_factory=dict)
    shuffled: Mapping[str, int] = field(default_factory=dict)
    probes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    comparisons: Mapping[tuple[str, str], int] = field(default_factory=dict)
    touched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    spent_us: Mapping[str, int] = field(default_factory=dict)
    unreadable: Mapping[str, int] = field(default_factory=dict)
    empty: Mapping[str, int] = field(default_factory=dict)


def metric_names(bucket: Bucket) -> tuple[str, ...]:
    """List the metrics that a bucket fills, in order."""
    return tuple(column for column, _ in _list_metrics(bucket))


def observe_buckets(emitted: DataFrame, bucket: Bucket, observation: Observation | None = None) -> DataFrame:
    """Return the same rows with the metrics observed: sums over the buckets, and the times that are equal in all.

    The metrics of a streaming query are in its progress; those of a finite query go to `observation`.
    """
    sums = [
        (F.max if column in _EQUAL_IN_ALL else F.sum)(_number(place)).alias(json.dumps(key))
        for place, (column, key) in enumerate(_list_metrics(bucket))
    ]
    return emitted.observe(observation or OBSERVATION, *sums)


def observe_merger(emitted: DataFrame) -> DataFrame:
    """Return the same rows with the metrics of the second step of an aggregation observed."""
    return emitted.observe(
        MERGED, *(F.sum(_number(place)).alias(json.dumps([name])) for place, name in enumerate(MERGE_METRICS))
    )


def observe_messages(frame: DataFrame, stream: str, problem: str, value: str) -> DataFrame:
    """Return the same messages, with those counted that have a problem, and those without a value."""
    unreadable = F.count(F.col(problem)).alias("unreadable")
    empty = F.count(F.when(F.col(value).isNull(), F.lit(1))).alias("empty")
    return frame.observe(f"{_MESSAGES}{stream}", unreadable, empty)


def _number(place: int) -> Column:
    return F.col(METRICS)[place]


def list_batches(query: StreamingQuery) -> list[SparkBatchMetrics]:
    """List the metrics of recent micro-batches, oldest first."""
    return list(parse_progress(query.recentProgress))


def parse_progress(progress: Iterable[StreamingQueryProgress]) -> Iterator[SparkBatchMetrics]:
    """Parse the progress reports of a streaming query. Batches in which no bucket ran have no metrics.

    The report of a Spark Connect session lacks the names of metrics that are null.
    """
    for report in progress:
        observed = _read_observed(report, OBSERVATION)
        if observed.get(_RESULTS) is not None:
            yield _parse_batch(report, _add_merger_metrics(report, observed))


def _read_observed(report: StreamingQueryProgress, name: str) -> dict[str, int | None]:
    observed = report["observedMetrics"].get(name)
    return {} if observed is None else observed.asDict()


def to_batch_metrics(batch: SparkBatchMetrics, plan: Plan) -> BatchMetrics:
    """Convert the metrics of a micro-batch to the form that all live views read.

    Times of operators are sums over all tasks.
    """
    return BatchMetrics(
        batch=batch.batch,
        ended_s=batch.started_s + batch.trigger_ms / 1e3,
        took_s=batch.trigger_ms / 1e3,
        rows_in=batch.arrived,
        rows_out=batch.results,
        state_rows=batch.state_rows,
        state_bytes=batch.state_bytes,
        late=batch.late,
        shed=batch.shed,
        watermark_us=_instant_us(batch.watermark_us),
        newest_us=_instant_us(batch.newest_us),
        operators_s=_operators_s(batch),
        plan=plan,
        unreadable=batch.unreadable,
        empty=batch.empty,
    )


def _operators_s(batch: SparkBatchMetrics) -> dict[str, float]:
    """Return seconds by operator, under the cost model's names.

    `batches` is the fixed cost per batch: the join's time that no other operator accounts for. `spark: micro-batches`
    is the trigger time minus the summed task times. Tasks run in parallel, so this is a lower bound on Spark's own
    overhead.
    """
    spent = {name: us / 1e6 for name, us in batch.spent_us.items()}
    # The time of all probes already includes the times by origin.
    by_origin = sum(seconds for name, seconds in spent.items() if name.startswith("probe "))
    overhead = {
        "batches": max(0.0, batch.join_us / 1e6 - (sum(spent.values()) - by_origin)),
        "spark: pack": batch.pack_us / 1e6,
        "spark: shuffle": batch.receive_us / 1e6,
        "spark: state": (batch.state_read_us + batch.state_write_us) / 1e6,
    }
    of_tasks = sum(overhead.values()) + sum(spent.values()) - by_origin
    return {**spent, **overhead, "spark: micro-batches": max(0.0, batch.trigger_ms / 1e3 - of_tasks)}


def _instant_us(known_us: int) -> int | None:
    return known_us if abs(known_us) < FOREVER_US else None


def build_ledger(values: Mapping[str, int | None]) -> dict[str, dict[str, int]]:
    """Build the ledger of each stream (arrived, late, shed and kept rows) from the metrics of a finite query."""
    ledger: dict[str, dict[str, int]] = {}
    for text, value in values.items():
        metric, *subject = json.loads(text)
        if metric in _PER_STREAM:
            ledger.setdefault(subject[0], {})[metric] = value or 0
    return {name: {**rows, "kept": rows["arrived"] - rows["late"] - rows["shed"]} for name, rows in ledger.items()}


def _add_merger_metrics(progress: StreamingQueryProgress, values: Mapping[str, int | None]) -> Mapping[str, int | None]:
    """Add the metrics of the second step, if there is one. Results are those of the last step."""
    if MERGED not in progress["observedMetrics"]:
        return values
    merged = _read_observed(progress, MERGED)
    added = {name: (values.get(name) or 0) + (value or 0) for name, value in merged.items()}
    return {**values, **added, _RESULTS: merged.get(_RESULTS) or 0}


def _parse_batch(progress: StreamingQueryProgress, observed_values: Mapping[str, int | None]) -> SparkBatchMetrics:
    values: dict[str, Any] = {
        "batch": progress["batchId"],
        "trigger_ms": progress["durationMs"]["triggerExecution"],
        "started_s": datetime.fromisoformat(progress["timestamp"]).timestamp(),
    }
    for observation in progress["observedMetrics"]:
        if observation.startswith(_MESSAGES):
            for kind, count in _read_observed(progress, observation).items():
                values.setdefault(kind, {})[observation.removeprefix(_MESSAGES)] = count or 0
    for text, value in observed_values.items():
        metric, *subject = json.loads(text)
        if value is None:  # the operator did not run
            continue
        if not subject:
            values[metric] = value
        else:
            values.setdefault(metric, {})[subject[0] if len(subject) == 1 else tuple(subject)] = value
    return SparkBatchMetrics(**values)


def _list_metrics(bucket: Bucket) -> list[tuple[str, list[str]]]:
    """List every column of metrics with its key: the metric's name, then the stream, or the two aliases."""
    aliases = [each.alias for each in bucket.config.inputs]
    pairs = [(i, j) for i in range(len(aliases)) for j in range(len(aliases)) if i != j]
    return [
        *((name, [name]) for name in _PER_BUCKET),
        *(
            (f"{metric}_{number}", [metric, name])
            for metric in _PER_STREAM
            for number, name in enumerate(bucket.streams)
        ),
        *((f"shuffled_{i}", ["shuffled", aliases[i]]) for i in bucket.packed_schemas),
        *((f"{metric}_{i}_{j}", [metric, aliases[i], aliases[j]]) for metric in _PER_PAIR for i, j in pairs),
        *(
            (time_metric_name(operator, i), ["spent_us", f"{operator} {alias}"])
            for operator in _PER_INPUT
            for i, alias in enumerate(aliases)
        ),
        *((time_metric_name(operator, ALL_INPUTS), ["spent_us", operator]) for operator in (PROBE, EMIT)),
    ]


class ProgressEvents:
    """Progress reports of one query, in the order of its batches, each once.

    Use it in a `with` block: leaving it ends the subscription.
    """

    def __init__(self, query: StreamingQuery, spark: SparkSession | None = None) -> None:
        self._query = query
        self._run_id = str(query.runId)
        self._spark = spark or SparkSession.active()
        self._received: SimpleQueue[StreamingQueryProgress | None] = SimpleQueue()
        self._last_batch = -1
        _subscribe(self._spark, self._run_id, self._received)
        # A query that is still active now reports its end to the listener. Otherwise its recent progress is complete.
        self._has_ended = not query.isActive
        self._missed: Iterable[StreamingQueryProgress] = query.recentProgress

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _unsubscribe(self._spark, self._run_id)

    def reports(self, stop: threading.Event | None = None) -> Iterator[StreamingQueryProgress]:
        """Yield the report of each new batch until the query has ended, or until `stop` is set."""
        missed, self._missed = self._missed, ()
        yield from self._skip_known(missed)
        silent_s, wait_s = 0.0, SILENCE_S if stop is None else STOP_CHECK_S
        while not self._has_ended and not (stop is not None and stop.is_set()):
            try:
                report = self._received.get(timeout=wait_s)
            except Empty:
                silent_s += wait_s
                if silent_s >= SILENCE_S:
                    silent_s, self._has_ended = 0.0, not self._query.isActive
                    yield from self._skip_known(self._query.recentProgress)
                continue
            silent_s, self._has_ended = 0.0, report is None
            # PySpark may fail to convert a report before it reaches the listener. So the end reads the recent ones.
            yield from self._skip_known(self._query.recentProgress if report is None else [report])

    def _skip_known(self, reports: Iterable[StreamingQueryProgress]) -> Iterator[StreamingQueryProgress]:
        for report in reports:
            if report.batchId > self._last_batch:
                self._last_batch = report.batchId
                yield report


class ProgressListener(StreamingQueryListener):
    """Listener of one session. It puts the events of each followed run into the queue of that run; None is its end."""

    def __init__(self) -> None:
        self.queues: dict[str, SimpleQueue[StreamingQueryProgress | None]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 # Spark's name
        """Do nothing: a query is followed after it has started."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 # Spark's name
        """Do nothing: an idle query has no new batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 # Spark's name
        self._put(str(event.progress.runId), event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 # Spark's name
        self._put(str(event.runId), None)

    def _put(self, run_id: str, report: StreamingQueryProgress | None) -> None:
        waiting = self.queues.get(run_id)  # the session may have other queries
        if waiting is not None:
            waiting.put(report)


#: Listeners by session, and the lock that guards them and their queues.
_listeners: dict[SparkSession, ProgressListener] = {}
_lock = threading.Lock()


def _subscribe(spark: SparkSession, run_id: str, queue: SimpleQueue[StreamingQueryProgress | None]) -> None:
    with _lock:
        listener = _listeners.get(spark)
        if listener is None:
            listener = ProgressListener()
            spark.streams.addListener(listener)
            _listeners[spark] = listener
        listener.queues[run_id] = queue


def _unsubscribe(spark: SparkSession, run_id: str) -> None:
    with _lock:
        listener = _listeners.get(spark)
        if listener is None:
            return
        listener.queues.pop(run_id, None)
        if not listener.queues:
            del _listeners[spark]
            with suppress(Py4JError, ConnectionError):  # the Java process has ended, and the listener with it
                spark.streams.removeListener(listener)

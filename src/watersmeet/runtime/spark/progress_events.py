"""Progress of streaming queries, through Spark's `StreamingQueryListener`: one listener per session.

Spark calls all listeners of an application from one thread. So the listener only queues the events of each query, and
the thread that follows the query takes them from the queue (`ProgressEvents`). No error can get lost in Spark's thread.

The listener is added after the query has started. Spark reports a start from the query's own Java thread, and Py4J
would open one more connection and one more Python thread for it. Batches that end before the listener is there are in
the query's recent progress, which is read once. The session keeps the listener until its last followed query has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # publishes no types
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

#: Interval between two looks at the event that stops the caller.
STOP_CHECK_S = 0.1
#: After this time without an event, ask Spark whether the query still runs. Spark drops events of a listener that is
#: far behind, and of a session that is stopped.
SILENCE_S = 10.0


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

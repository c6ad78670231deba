"""A streaming query that runs on Spark, as the caller holds it. This module does not import pyspark."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.render import html_paragraph, html_table
from watersmeet.errors import WatersmeetError
from watersmeet.metrics import BatchMetrics, Ledger, MessageLedger, render_ledger_html
from watersmeet.planner.controller import SheddingDecision
from watersmeet.planner.explain import Explanation
from watersmeet.runtime.background import BackgroundThread
from watersmeet.runtime.live import LiveWatch
from watersmeet.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: Number of recent batches whose metrics are kept.
MAX_PROGRESS = 100
_HTML_BATCHES = 5


@dataclass
class QueryRecord:
    """Metrics of a query's batches: those of recent batches, and the totals since it was started.

    One thread adds batches while others read.
    """

    recent: deque[BatchMetrics] = field(default_factory=lambda: deque(maxlen=MAX_PROGRESS))
    ledger: dict[str, Ledger] = field(default_factory=dict)
    messages: dict[str, MessageLedger] = field(default_factory=dict)
    rows_out: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, batch: BatchMetrics) -> None:
        """Add a finished batch."""
        with self._lock:
            self.recent.append(batch)
            self.rows_out += batch.rows_out
            for name, arrived in batch.rows_in.items():
                late, shed = batch.late.get(name, 0), batch.shed.get(name, 0)
                self.ledger.setdefault(name, Ledger()).add(Ledger(arrived, arrived - late - shed, shed, late))
            for name, unreadable in batch.unreadable.items():
                entry = self.messages.setdefault(name, MessageLedger())
                entry.unreadable += unreadable
                entry.empty += batch.empty.get(name, 0)

    def copy_recent(self) -> list[BatchMetrics]:
        """Return the metrics of recent batches, newest last."""
        with self._lock:
            return list(self.recent)

    def copy_ledger(self) -> dict[str, Ledger]:
        """Return the ledger of each stream."""
        with self._lock:
            return {name: replace(entry) for name, entry in self.ledger.items()}

    def copy_messages(self) -> dict[str, MessageLedger]:
        """Return the messages of each stream that are no rows."""
        with self._lock:
            return {name: replace(entry) for name, entry in self.messages.items()}


class RunningQuery:
    """A streaming query on Spark, as `wm.start` returns it.

    Wait for its end with `await_termination()`, or end it with `stop()`. Leaving a `with` block stops it and raises its
    failure. `progress`, `ledger` and `decisions` say what it has done since it was started, `explain()` which plan runs
    now. `spark_query` is Spark's own object.
    """

    def __init__(
        self,
        spark_query: StreamingQuery,
        follower: BackgroundThread,
        record: QueryRecord,
        watch: LiveWatch,
        decisions: Sequence[SheddingDecision],
        plan_at: Callable[[int], Plan],
        explain_plan: Callable[[Plan], Explanation],
    ) -> None:
        self.spark_query = spark_query
        self._name = str(spark_query.name)
        self._follower = follower
        self._record = record
        self._watch = watch
        self._decisions = decisions
        self._plan_at = plan_at
        self._explain_plan = explain_plan

    @property
    def name(self) -> str:
        """Name of the query in Spark's UI."""
        return self._name

    @property
    def is_active(self) -> bool:
        """Whether the query still runs. It does not if the Java process of Spark has ended."""
        from watersmeet.runtime.spark.spark_errors import SPARK_FAILURES

        try:
            return bool(self.spark_query.isActive)
        except SPARK_FAILURES:
            return False

    @property
    def progress(self) -> list[BatchMetrics]:
        """Metrics of the last batches, at most 100, newest last."""
        return self._record.copy_recent()

    @property
    def ledger(self) -> dict[str, Ledger]:
        """Rows of each stream that arrived, were kept, shed or late since the query was started."""
        return self._record.copy_ledger()

    @property
    def messages(self) -> dict[str, MessageLedger]:
        """Messages that are no rows, by stream that is read as messages: unreadable ones and those without a value."""
        return self._record.copy_messages()

    @property
    def decisions(self) -> list[SheddingDecision]:
        """Shed rates that the load controller chose: from which batch on, which shares are kept, and why."""
        return list(self._decisions)

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        last = self.progress[-1:]
        return self._plan_at(last[0].batch + 1 if last else 0)

    @property
    def failure(self) -> WatersmeetError | None:
        """Error that ended the query, or None."""
        from watersmeet.runtime.spark.spark_errors import SPARK_FAILURES, summarize_error

        try:
            error: Exception | None = self.spark_query.exception()
        except SPARK_FAILURES as lost:
            error = lost
        return self._follower.failure if error is None else summarize_error(error)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, at most `timeout` seconds; return whether it has ended.

        Raise the error of a query that failed: a mistake of the caller as such, any other error in one sentence. All
        batches are in `progress` and `ledger` when this returns True.
        """
        from watersmeet.runtime.spark.spark_errors import SPARK_FAILURES, summarize_error

        if timeout is not None and timeout <= 0:
            ended = not self.is_active
        else:
            try:
                ended = self.spark_query.awaitTermination(timeout) is not False  # type: ignore[arg-type] # takes floats
            except SPARK_FAILURES as error:
                self._follower.join()
                raise summarize_error(error) from error
        if ended:
            self._follower.join()
            if self.failure is not None:
                raise self.failure
        return ended

    def stop(self) -> None:
        """Stop the query, and wait until its last batch is in `progress` and `ledger`."""
        self.spark_query.stop()
        self._follower.join()

    def explain(self) -> Explanation:
        """Explain the plan that runs now, with the shed rates of the next batch.

        Once a batch has finished, `live` compares the forecast from before the start with what the batches measured and
        with the forecast of the next batch. Verdict and `feasible` then follow the newest batches.
        """
        return replace(self._explain_plan(self.plan), live=self._watch.report)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None and self.failure is not None:
            raise self.failure

    def __repr__(self) -> str:
        return f"RunningQuery({self._describe()})"

    def _describe(self) -> str:
        batches, ledger = self.progress, self.ledger
        state = "active" if self.is_active else "stopped" if self.failure is None else "failed"
        if not batches:
            return f"{self.name!r}, {state}, no batch has finished"
        arrived = format_count(sum(entry.arrived for entry in ledger.values()))
        return (
            f"{self.name!r}, {state}, batch {batches[-1].batch}, {arrived} rows in, "
            f"{format_count(self._record.rows_out)} rows out"
        )

    def _repr_html_(self) -> str:
        batches = [
            (each.batch, format_count(sum(each.rows_in.values())), format_count(each.rows_out),
             format_duration(each.took_s), format_bytes(each.state_bytes))
            for each in self.progress[-_HTML_BATCHES:]
        ]  # fmt: skip
        decisions = [(each.from_batch, each.reason) for each in self.decisions[-_HTML_BATCHES:]]
        parts = [html_paragraph(self._describe(), strong=True)]
        if self.failure is not None:
            parts.append(html_paragraph(str(self.failure)))
        if batches:
            parts.append(render_ledger_html(self.ledger))
            parts.append(html_table(("batch", "rows in", "rows out", "took", "state"), batches, "last batches"))
        if decisions:
            parts.append(html_table(("from batch", "reason"), decisions, "decisions"))
        return f"<div>{''.join(parts)}</div>"

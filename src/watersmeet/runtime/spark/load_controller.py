"""Load controller of a streaming query: after each batch, choose shed rates that keep later batches within the trigger
interval.

The driver looks at the query's progress. A batch's seconds, its rows and the time they took to come go to the
controller (`optimizer.controller`); what it says is written into the log of plans, which the packing tasks read by
batch (`dropping`). It is for the next batch that has not begun. A batch that does not wait for its trigger has begun by
the time the one before is reported, so its length is predicted, and what comes meanwhile is what the decision is about.
Should the batch begin while it is decided for, its tasks have settled its plan, the log says so, and the decision is
for the one after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InputError, PlanError
from watersmeet.operators.shed.sampling import build_drop_boxes
from watersmeet.planner.controller import BatchReport, Controller, Controls, PlanBatchModel
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.overload import CostingContext
from watersmeet.planner.plan_cost import Budget
from watersmeet.planner.workload import ArrivalPattern
from watersmeet.runtime.background import BackgroundError, BackgroundThread
from watersmeet.runtime.planning import PlanningSample, explain_sample
from watersmeet.runtime.spark.batch_metrics import SparkBatchMetrics, parse_progress
from watersmeet.runtime.spark.plan_log import PlanLog
from watersmeet.stats.stream_stats import StreamStats

#: How often the query is asked how far it is.
POLL_S = 0.1
#: Batches of which it is kept what was known after them.
MAX_CONTROLLERS = 64
#: Shares closer than this to those in force are not worth a new plan.
MIN_SHARE_CHANGE = 0.01


def keep_up(
    query: Any,
    bound: BoundQuery,
    plans: str | Path,
    checkpoint: str | Path,
    trigger_s: float,
    *,
    plan: Plan,
    stats: Mapping[str, StreamStats] | None = None,
    wishes: SheddingPolicy = DEFAULT_POLICY,
) -> LoadController:
    """Control the load of a query that was started, until it ends. A failure stops the query and is raised by its
    `awaitTermination`.
    """
    keeping = LoadController(bound, PlanLog(Path(plans)), Path(checkpoint), trigger_s, plan, stats or {}, wishes)
    keeping.start(query)
    return keeping


@dataclass
class LoadController:
    """Load controller of one query: `look` at its progress after a batch, or `start` a thread that does.

    `plan` is the query's own; `stats` are what is known of its streams, for the cost model. `decisions` are those that
    were written. `failure` is the error that stopped the thread, and the query with it.
    """

    bound: BoundQuery
    log: PlanLog
    checkpoint: Path
    trigger_s: float
    plan: Plan
    stats: Mapping[str, StreamStats] = field(default_factory=dict)
    wishes: SheddingPolicy = DEFAULT_POLICY
    decisions: list[Controls] = field(default_factory=list)
    _known: deque[tuple[int, Controller]] = field(
        default_factory=lambda: deque(maxlen=MAX_CONTROLLERS)
    )  # what was known after each batch
    _seen: int = -1
    _began_s: float | None = None
    _thread: BackgroundThread | None = None

    def __post_init__(self) -> None:
        if self.bound.is_aggregation:
            raise PlanError(
                "an aggregation does not change what it drops while it runs", hint="start it with drop rates of its own"
            )
        if not self.trigger_s > 0:
            raise InputError(f"a trigger interval is longer than nothing, not {self.trigger_s} s")

    def process_progress(self, query: Any) -> None:
        """Decides on every batch that is over and was not looked at yet; `query` is what `start()` returned."""
        for progress in query.recentProgress:
            for batch in parse_progress([progress]):
                if batch.batch > self._seen:
                    self._seen = batch.batch
                    self._take(batch, datetime.fromisoformat(progress["timestamp"]).timestamp())

    def start(self, query: Any) -> BackgroundThread:
        """Look at the query until it ends, in a thread. Any error there stops the query and is raised by
        `query.awaitTermination()`.
        """
        self._thread = BackgroundThread(
            "the load controller, which stopped its query,",
            partial(self._follow, query, query.awaitTermination),
            query.stop,
        )
        report_failure(query, self._thread)
        return self._thread.start()

    @property
    def failure(self) -> BackgroundError | None:
        """Error that stopped the thread and the query, if one did."""
        return None if self._thread is None else self._thread.failure

    def most_rows_out_per_s(self, rows_per_s: Mapping[str, float], since: int = 0) -> tuple[float, float]:
        """Results per second that the model sees at best when rows come this fast: in batches that take the whole
        interval, and in those that leave free what batches were measured to be off. The machine is as fast as it was
        after each of the last batches, on average.
        """
        known = [each for batch, each in self._known if batch >= since]
        if not known:
            raise PlanError("no batch was measured yet")
        most = [
            (each.most_rows_out_per_s(rows_per_s), each.most_rows_out_per_s(rows_per_s, each.fit.free()))
            for each in known
        ]
        return sum(whole for whole, _ in most) / len(most), sum(safely for _, safely in most) / len(most)

    def _follow(self, query: Any, await_termination: Callable[[float], bool | None]) -> None:
        while query.isActive:
            self.process_progress(query)
            try:
                await_termination(POLL_S)
            except StreamingQueryException:  # a batch failed: whoever waits for the query gets that error from Spark
                return

    def _take(self, batch: SparkBatchMetrics, began_s: float) -> None:
        """Rows come between the beginnings of two batches. The first of a run takes what processes need to begin: it
        tells nothing.
        """
        before_s, self._began_s = self._began_s, began_s
        if before_s is not None:
            self._decide(
                BatchReport(
                    batch.batch, batch.trigger_ms / 1e3, max(began_s - before_s, 1e-3), batch.arrived, batch.results
                )
            )

    def _decide(self, report: BatchReport) -> None:
        if not any(report.arrived.values()):
            return
        controller = self._known[-1][1] if self._known else Controller(self._model(report), self.trigger_s)
        in_force = tuple(self._keep_at(report.batch_id).items())
        begun = self._begun()
        running = self._keep_at(begun) if begun > report.batch_id else None
        known = replace(controller, controls=replace(controller.controls, keep=in_force)).after(report, running)
        self._known.append((report.batch_id, known))
        wanted = known.controls
        if _has_changed(dict(wanted.keep), self._keep_at(begun + 1)):
            self._write(wanted, begun + 1)

    def _model(self, report: BatchReport) -> PlanBatchModel:
        rates = {name: rate for name, rate in report.rows_per_s.items() if rate > 0}
        nothing = PlanningSample({}, {}, is_complete=False)
        about = explain_sample(
            self.bound,
            nothing,
            self.stats,
            plan=replace(self.plan, drop=()),
            arriving=ArrivalPattern(self.trigger_s),
            rates=rates,
        )
        return PlanBatchModel(
            CostingContext(about.config, about.workload, about.profile, Budget()), about.plan, self.wishes
        )

    def _keep_at(self, batch: int) -> dict[str, float]:
        """The shares kept in a batch, of the streams that are not kept whole."""
        plan = self.log.plan_at(batch) or self.plan
        return {name: box.keep for name, box in build_drop_boxes(self.bound, plan).items()}

    def _begun(self) -> int:
        """The newest batch that has begun, as Spark's own log says."""
        offsets = self.checkpoint / "offsets"
        return (
            max((int(file.name) for file in offsets.iterdir() if file.name.isdigit()), default=-1)
            if offsets.is_dir()
            else self._seen
        )

    def _write(self, wanted: Controls, first: int) -> None:
        """For the first batch from here on whose plan is not settled: two can have begun while this was decided, not
        more.
        """
        drop = tuple((name, 1 - share) for name, share in wanted.keep if share < 1)
        for batch in range(first, first + 3):
            try:
                self.log.write(batch, replace(self.plan, drop=drop))
            except PlanError:
                continue
            self.decisions.append(replace(wanted, from_batch=batch))
            return


def report_failure(query: Any, thread: BackgroundThread) -> None:
    """Make `query.awaitTermination()` raise the thread's failure, as it raises the failure of a batch.

    Spark knows only failures of its own. A query that was stopped ends without an error, and its caller would not learn
    why.
    """
    await_termination = query.awaitTermination

    def await_both(timeout: float | None = None) -> bool | None:
        ended: bool | None = await_termination(timeout)
        if ended is not False:  # None without a timeout
            thread.raise_failure()
        return ended

    query.awaitTermination = await_both


def _has_changed(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return any(abs(one.get(name, 1.0) - other.get(name, 1.0)) > MIN_SHARE_CHANGE for name in {*one, *other})

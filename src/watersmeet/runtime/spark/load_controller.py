"""Load controller of a streaming query: after each batch, choose shed rates that keep later batches within the trigger.

Spark reports every finished batch to the driver (`batch_metrics`). The driver passes the duration of the batch, its
rows and the time in which they arrived to the controller (`planner.controller`). The decision is written to the plan
log, which the packing tasks read by batch (`PlannedDrops`).

A decision is for the next batch that has not started. A batch that does not wait for its trigger has started by the
time the previous one is reported. So its duration is predicted, and the decision includes the rows that arrive
meanwhile. If that next batch starts before the decision is written, its tasks have settled its plan. The log refuses
the write, and the decision is written for the batch after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InputError, PlanError
from watersmeet.operators.shed.sampling import build_drop_boxes
from watersmeet.planner.controller import BatchReport, Controller, PlanBatchModel, SheddingDecision
from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.plan_cost import Budget
from watersmeet.planner.workload import ArrivalPattern
from watersmeet.runtime.background import BackgroundError, BackgroundThread
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.planning import PlanningSample, explain_sample
from watersmeet.runtime.spark.batch_metrics import ProgressEvents, SparkBatchMetrics, parse_progress
from watersmeet.stats.stream_stats import StreamStats

#: Number of recent batches whose controller is kept.
MAX_CONTROLLERS = 64
#: Smaller changes of a kept share are not worth a new plan.
MIN_SHARE_CHANGE = 0.01


def keep_up(query: StreamingQuery, controller: LoadController, spark: SparkSession) -> LoadController:
    """Control the load of a running query until it ends.

    A failure of the controller stops the query. The query's `awaitTermination` raises it.
    """
    report_failure(query, controller.start(query, spark))
    return controller


@dataclass
class LoadController:
    """Load controller of one query: call `process_batch` after a batch, or `start` a thread that does.

    `plan` is the query's own plan. `stats` are known statistics of its streams, for the cost model. `decisions` are the
    decisions that were written. `failure` is the error that stopped the thread and the query.
    """

    bound: BoundQuery
    log: PlanLog
    checkpoint: Path
    trigger_s: float
    plan: Plan
    stats: Mapping[str, StreamStats] = field(default_factory=dict)
    policy: SheddingPolicy = DEFAULT_POLICY
    decisions: list[SheddingDecision] = field(default_factory=list)
    _controllers: deque[tuple[int, Controller]] = field(default_factory=lambda: deque(maxlen=MAX_CONTROLLERS))
    _last_batch: int = -1
    _last_start_s: float | None = None
    _thread: BackgroundThread | None = None

    def __post_init__(self) -> None:
        if self.bound.is_aggregation:
            raise PlanError(
                "the shed rates of an aggregation cannot change while it runs", hint="start it with fixed drop rates"
            )
        if not self.trigger_s > 0:
            raise InputError(f"a trigger interval must be positive, got {self.trigger_s} s")

    def process_report(self, report: StreamingQueryProgress) -> None:
        """Decide after a finished batch, given Spark's report of it."""
        for batch in parse_progress([report]):
            self.process_batch(batch)

    def process_batch(self, batch: SparkBatchMetrics) -> None:
        """Decide after a finished batch. Its rows arrived between the starts of two batches.

        The first batch of a run is ignored: its time includes the start of processes.
        """
        before_s, self._last_start_s, self._last_batch = self._last_start_s, batch.started_s, batch.batch
        if before_s is not None:
            interval_s = max(batch.started_s - before_s, 1e-3)
            self._decide(BatchReport(batch.batch, batch.trigger_ms / 1e3, interval_s, batch.arrived, batch.results))

    def start(self, query: StreamingQuery, spark: SparkSession) -> BackgroundThread:
        """Follow the query in a thread until it ends. Any error in the thread stops the query."""
        self._thread = BackgroundThread(
            "the load controller, which stopped its query,", lambda: self._follow(query, spark), query.stop
        )
        return self._thread.start()

    @property
    def failure(self) -> BackgroundError | None:
        """Error that stopped the thread and the query, if one did."""
        return None if self._thread is None else self._thread.failure

    def estimate_max_rows_out_per_s(self, rows_per_s: Mapping[str, float], since: int = 0) -> tuple[float, float]:
        """Estimate the maximum results per second at these input rates.

        The values are averages over the controllers of recent batches. The first value is for batches that take the
        whole interval. The second is for batches that keep headroom for the measured prediction error.
        """
        recent = [controller for batch, controller in self._controllers if batch >= since]
        if not recent:
            raise PlanError("no batch was measured yet")
        estimates = [
            (each.most_rows_out_per_s(rows_per_s), each.most_rows_out_per_s(rows_per_s, each.fit.headroom_share()))
            for each in recent
        ]
        return sum(whole for whole, _ in estimates) / len(estimates), sum(safe for _, safe in estimates) / len(
            estimates
        )

    def _follow(self, query: StreamingQuery, spark: SparkSession) -> None:
        with ProgressEvents(query, spark) as progress:
            for report in progress.reports():
                self.process_report(report)

    def _decide(self, report: BatchReport) -> None:
        if not any(report.arrived.values()):
            return
        controller = self._controllers[-1][1] if self._controllers else Controller(self._model(report), self.trigger_s)
        in_force = tuple(self._keep_at(report.batch_id).items())
        started = self._find_last_started_batch()
        running = self._keep_at(started) if started > report.batch_id else None
        updated = replace(controller, controls=replace(controller.controls, keep=in_force)).after(report, running)
        self._controllers.append((report.batch_id, updated))
        controls = updated.controls
        if _has_changed(dict(controls.keep), self._keep_at(started + 1)):
            self._write_decision(controls, started + 1)

    def _model(self, report: BatchReport) -> PlanBatchModel:
        rates = {name: rate for name, rate in report.rows_per_s.items() if rate > 0}
        no_sample = PlanningSample({}, {}, is_complete=False)
        explanation = explain_sample(
            self.bound,
            no_sample,
            self.stats,
            plan=replace(self.plan, drop=()),
            arrivals=ArrivalPattern(self.trigger_s),
            rates=rates,
        )
        return PlanBatchModel(
            CostingContext(explanation.config, explanation.workload, explanation.profile, Budget()),
            explanation.plan,
            self.policy,
        )

    def _keep_at(self, batch: int) -> dict[str, float]:
        """Return the kept share of each stream that sheds rows in a batch."""
        plan = self.log.plan_at(batch) or self.plan
        return {name: box.keep for name, box in build_drop_boxes(self.bound, plan).items()}

    def _find_last_started_batch(self) -> int:
        """Return the newest batch that has started, according to Spark's offset log."""
        offsets = self.checkpoint / "offsets"
        return (
            max((int(file.name) for file in offsets.iterdir() if file.name.isdigit()), default=-1)
            if offsets.is_dir()
            else self._last_batch
        )

    def _write_decision(self, controls: SheddingDecision, first: int) -> None:
        """Write the plan for the first batch from `first` on whose plan is not settled.

        At most two batches can have started while the decision was made.
        """
        drop = tuple((name, 1 - share) for name, share in controls.keep if share < 1)
        for batch in range(first, first + 3):
            try:
                self.log.write(batch, replace(self.plan, drop=drop))
            except PlanError:
                continue
            self.decisions.append(replace(controls, from_batch=batch))
            return


def report_failure(query: StreamingQuery, thread: BackgroundThread) -> None:
    """Make `query.awaitTermination()` wait for the thread and raise its failure, as it raises the failure of a batch.

    Spark knows only its own failures. A query that was stopped ends without an error, so its caller would not learn the
    reason.
    """
    await_termination = query.awaitTermination

    def await_both(timeout: int | None = None) -> bool | None:
        ended = await_termination(timeout)
        if ended is not False:  # None without a timeout
            thread.join()
            thread.raise_failure()
        return ended

    query.awaitTermination = await_both  # type: ignore[method-assign] # the caller holds Spark's own object


def _has_changed(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return any(abs(one.get(name, 1.0) - other.get(name, 1.0)) > MIN_SHARE_CHANGE for name in {*one, *other})

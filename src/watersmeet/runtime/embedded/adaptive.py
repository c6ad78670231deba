"""Adaptive re-optimization: measurements of a running query, reasons to plan again, and decisions.

The plan is reviewed at a batch boundary once enough rows have arrived. A review compares the rate of every stream, and
the work of the join per row, with their values at the last review that planned. It plans again only if a value has
changed past a threshold and by more than chance explains. It switches only to a plan whose predicted gain is larger
than the error of the estimates. The gains on the two halves of the recent rows show that error. Both rules keep a
steady stream from switching back and forth. A decision reports the expected gain and, where plans are rehearsed,
the gain that both plans show on the rows after the change.

State is the base windows for every plan, so there is nothing to migrate. All decisions depend on the rows, never on a
clock, so a replay decides the same.

References: Golab, Özsu, section 4.3, heuristic 8: re-order when rates change past a threshold.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.events import log_event
from watersmeet.operators.shed.sampling import RoleShares
from watersmeet.operators.window_join.work_counters import WorkCounters
from watersmeet.planner.allocation_search import allocate_plan
from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.explain import Explanation, cost_with_shedding
from watersmeet.planner.models.ayad_drops import ALLOCATE, DROP, SheddingPolicy
from watersmeet.planner.plan_cost import Budget, CostedPlan, PlanCost
from watersmeet.planner.workload import ArrivalPattern
from watersmeet.runtime.planning import (
    MAX_COUNTED_ROWS,
    MIN_PLANNING_ROWS,
    REPLAN_GROWTH_FACTOR,
    PlanningSample,
    build_sample,
    explain_sample,
    read_planning_sample,
    rehearse_plans,
)
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.units import format_cores, format_count, format_rate

#: The plan is reviewed once at least this many rows have arrived since the last review.
REVIEW_ROWS = 1_000
#: Factor by which a rate or the work per row must grow or shrink to count as changed.
RATE_CHANGE_FACTOR = 2.0
#: The rows of a stream must also differ by this many standard deviations from the number that its old rate predicts.
MIN_SIGMAS = 6.0
#: A run switches to another plan if that is predicted to save at least this share of the running plan's CPU time.
MIN_GAIN_SHARE = 0.1
#: Rows after a change of plan on which its gain is measured.
MEASURED_ROWS = 10_000
#: Shedding is reduced once the load falls below this share of the budget, and begins or grows above `OVERLOAD`. In
#: between, the estimates are not exact enough to tell one drop rate from another.
RESTORE_LOAD, OVERLOAD = 0.8, 1.05
#: Smaller changes of the kept share of a stream are not worth a change of plan.
MIN_SHARE_CHANGE = 0.02

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StartingPlan:
    """Plan that a run starts with, its budget, and its shedding policy (None: rows are never shed)."""

    plan: Plan
    budget: Budget = Budget()  # noqa: RUF009  # frozen
    policy: SheddingPolicy | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """One re-optimization: its batch, its reason, the plan from then on, and the predicted CPU cores of both plans.

    `gain_error` is the error of the expected gain, as a share of the CPU time like the gain itself. `measured_gain` is
    the gain of a change on the rows that came after it, where both plans were rehearsed on them.
    """

    batch: int
    reason: str
    plan: Plan
    changed: bool
    running_cpu_per_s: float
    best_cpu_per_s: float
    gain_error: float = 0.0
    measured_gain: float | None = field(default=None, compare=False)  # CPU time differs between replays

    @property
    def expected_gain(self) -> float:
        """Share of the running plan's CPU time that the best plan is predicted to save."""
        return _gain(self.running_cpu_per_s, self.best_cpu_per_s)

    def __str__(self) -> str:
        outcome = f"switches to {self.plan.algorithm}" if self.changed else "keeps its plan"
        costs = f"{format_cores(self.running_cpu_per_s)} now, {format_cores(self.best_cpu_per_s)} with the best plan"
        gain = f"expected gain {_format_gain(self.expected_gain)} ± {_format_gain(self.gain_error)}"
        if self.measured_gain is not None:
            gain += f", measured {_format_gain(self.measured_gain)}"
        return f"batch {self.batch}: {self.reason}; {costs}; {gain}; {outcome}"

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as JSON values."""
        return {
            "batch": self.batch,
            "reason": self.reason,
            "plan": self.plan.to_dict(),
            "changed": self.changed,
            "running_cpu_per_s": self.running_cpu_per_s,
            "best_cpu_per_s": self.best_cpu_per_s,
            "expected_gain": self.expected_gain,
            "gain_error": self.gain_error,
            "measured_gain": self.measured_gain,
        }


@dataclass(frozen=True, slots=True)
class Signals:
    """Measurements of one review.

    `rows_per_s` counts rows per second of event time, by stream. `work_per_row` counts rows probed and matched per
    input row.
    """

    rows_per_s: Mapping[str, float]
    work_per_row: float  # 0 if unknown
    span_s: float
    batch_s: float

    def describe_changes(self, before: Signals) -> Iterator[str]:
        """Yield one sentence for each measurement that has changed."""
        for name, rate in self.rows_per_s.items():
            old = before.rows_per_s.get(name, 0.0)
            if has_rate_changed(rate * self.span_s, old * self.span_s):
                yield f"{name} has {format_rate(rate)}, {format_count(old)} before"
        if (
            self.work_per_row
            and before.work_per_row
            and _ratio(self.work_per_row, before.work_per_row) >= RATE_CHANGE_FACTOR
        ):
            yield f"a row probes {format_count(self.work_per_row)} others, {format_count(before.work_per_row)} before"


def has_rate_changed(rows: float, expected: float) -> bool:
    """Return whether the number of rows differs from the expected number by more than chance explains.

    >>> has_rate_changed(5, 2), has_rate_changed(5_000, 2_000), has_rate_changed(2_500, 2_000)
    (False, True, False)
    """
    return _ratio(rows, expected) >= RATE_CHANGE_FACTOR and abs(rows - expected) >= MIN_SIGMAS * math.sqrt(
        max(expected, 1.0)
    )


@dataclass
class ArrivalTotals:
    """Rows and batches since the last review, and the work of joining them."""

    rows: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    joined: int = 0
    work: int = 0

    def signals(self, names: list[str], span_s: float) -> Signals:
        """Return the measurements of these totals over a span of event time."""
        rates = {name: self.rows.get(name, 0) / span_s for name in names}
        return Signals(rates, self.work / self.joined if self.joined else 0.0, span_s, span_s / self.batches)


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change of plan: the number of its decision, the plan before, and the time and the rows until then."""

    decision: int
    plan: Plan
    clock_us: int
    seen_rows: int


@dataclass
class AdaptivePlanner:
    """Re-optimizes a run that has no pinned plan.

    `observe_batch` gets each batch before it is joined, `record_work` the work of joining it.
    """

    bound: BoundQuery
    sources: Mapping[str, Stream | Relation]
    plan: Plan
    planned_rows: int
    budget: Budget = field(default_factory=Budget)
    policy: SheddingPolicy | None = None  # None: rows are never shed
    decisions: list[Decision] = field(default_factory=list)
    _batch: int = 0
    _seen_rows: int = 0
    _clock_us: int | None = None
    _totals: ArrivalTotals = field(default_factory=ArrivalTotals)
    _baseline: Signals | None = None
    _recent: dict[str, pa.Table] = field(default_factory=dict)
    _change: PlanChange | None = None  # the last change, until its gain is measured

    def observe_batch(self, tables: Mapping[str, pa.Table], times: Mapping[str, Int64s]) -> Plan | None:
        """Count a batch; return the plan to switch to, or None."""
        self._batch += 1
        self._count_rows(tables)
        signals = self._measure_signals(times)
        if signals is None or len(self.bound.sources) == 1:
            return None
        self._measure_last_change()
        baseline = self._baseline or signals
        reason = self._find_reason(signals, baseline)
        if not reason:
            self._baseline = baseline if baseline.work_per_row else replace(baseline, work_per_row=signals.work_per_row)
            return None
        decision = self._make_decision(reason, signals)
        if decision.changed:
            is_comparable = not self.plan.sheds and not decision.plan.sheds
            change = PlanChange(len(self.decisions), self.plan, self._clock_us or 0, self._seen_rows)
            self._change = change if is_comparable else None
        self.decisions.append(decision)
        _log_decision(decision)
        self.planned_rows, self.plan = self._seen_rows, decision.plan
        # The work per row depends on the plan, so a new plan has no baseline for it yet.
        self._baseline = replace(signals, work_per_row=0.0) if decision.changed else signals
        return decision.plan if decision.changed else None

    def record_work(self, rows: int, tally: WorkCounters) -> None:
        """Record the work of joining a batch of this many rows."""
        self._totals.joined += rows
        self._totals.work += int(tally.probes.sum() + tally.touched.sum())

    def _count_rows(self, tables: Mapping[str, pa.Table]) -> None:
        self._totals.batches += any(table.num_rows for table in tables.values())
        for name, table in tables.items():
            self._seen_rows += table.num_rows
            self._totals.rows[name] = self._totals.rows.get(name, 0) + table.num_rows
            before = self._recent.get(name)
            both = table if before is None or table.num_rows >= MAX_COUNTED_ROWS else pa.concat_tables([before, table])
            self._recent[name] = both.slice(max(0, both.num_rows - MAX_COUNTED_ROWS))

    def _measure_signals(self, times: Mapping[str, Int64s]) -> Signals | None:
        """Return the measurements since the last review, if there are enough rows; else None.

        The clock is the largest event time seen.
        """
        seen = [each for each in times.values() if each.size]
        if not seen:
            return None
        latest_us = max(int(each.max()) for each in seen)
        if self._clock_us is None:
            self._clock_us = min(int(each.min()) for each in seen)
        if sum(self._totals.rows.values()) < REVIEW_ROWS or latest_us <= self._clock_us:
            return None
        names = list(dict.fromkeys(each.schema.name for each in self.bound.sources if each.is_stream))
        signals = self._totals.signals(names, (latest_us - self._clock_us) / 1e6)
        self._clock_us, self._totals = latest_us, ArrivalTotals()
        return signals

    def _find_reason(self, signals: Signals, baseline: Signals) -> str:
        """Return the reason to plan again; empty if there is none."""
        if self._seen_rows >= max(MIN_PLANNING_ROWS, REPLAN_GROWTH_FACTOR * self.planned_rows):
            return f"{self._seen_rows:,} rows arrived, {self.planned_rows:,} were known when the plan was chosen"
        return "; ".join(signals.describe_changes(baseline))

    def _make_decision(self, reason: str, signals: Signals) -> Decision:
        sample = self._sample_recent_rows()
        explanation = self._explain_rows(sample, signals)
        running, best = self._cost_running_plan(explanation), self._pick_target_plan(explanation)
        error = 0.0
        if best.plan != self.plan and _gain(running.cost.cpu_per_s, best.cost.cpu_per_s) >= MIN_GAIN_SHARE:
            error = self._estimate_gain_error(sample, signals, best.plan)
        changed = best.plan != self.plan and self._is_switch_worthwhile(running.cost, best, error)
        return Decision(
            self._batch,
            reason,
            best.plan if changed else self.plan,
            changed,
            running.cost.cpu_per_s,
            best.cost.cpu_per_s,
            error,
        )

    def _estimate_gain_error(self, sample: PlanningSample, signals: Signals, best: Plan) -> float:
        """Return half of the difference between the gains that the two halves of the recent rows predict."""
        gains = []
        for half in sample.halves():
            explanation = self._explain_rows(half, signals)
            running = self._cost_running_plan(explanation).cost.cpu_per_s
            gains.append(_gain(running, self._cost_plan(explanation, best).cost.cpu_per_s))
        return abs(gains[0] - gains[1]) / 2

    def _measure_last_change(self) -> None:
        """Measure the gain of the last change, once enough rows have arrived since then: run both plans on them."""
        change = self._change
        if change is None or self._seen_rows < change.seen_rows + MEASURED_ROWS:
            return
        self._change, decision = None, self.decisions[change.decision]
        # Only the gain on these rows matters, not that other rows follow.
        sample = replace(self._sample_recent_rows().since(change.clock_us), is_complete=True)
        before, after = rehearse_plans(self.bound, self.sources, sample, (change.plan, decision.plan))
        if before is None or after is None:
            return
        measured = replace(decision, measured_gain=_gain(before.cpu_per_s, after.cpu_per_s))
        self.decisions[change.decision] = measured
        log_event(logging.INFO, "plan_gain_measured", str(measured), **measured.to_dict())

    def _cost_running_plan(self, explanation: Explanation) -> CostedPlan:
        """Return the running plan with its current cost."""
        return self._cost_plan(explanation, self.plan)

    def _cost_plan(self, explanation: Explanation, plan: Plan) -> CostedPlan:
        """Return a plan with its current cost.

        For an aggregation, every placement of early aggregation is costed anyway.
        """
        if self.bound.is_aggregation:
            return next(
                each for each in (explanation.chosen, *explanation.others) if set(each.plan.early) == set(plan.early)
            )
        context = CostingContext(explanation.config, explanation.workload, explanation.profile, self.budget)
        return cost_with_shedding(self.bound, context, plan)

    def _is_switch_worthwhile(self, running: PlanCost, best: CostedPlan, error: float) -> bool:
        """Return whether to switch plans.

        The running plan no longer keeps up, sheds more than necessary, or is slower than the best plan by more than the
        error of the estimates.
        """
        load = self.budget.load(running)
        if self.policy is not None and (load > OVERLOAD or (self.plan.sheds and load < RESTORE_LOAD)):
            return has_other_shares(self.plan, best.plan)
        gain = _gain(running.cpu_per_s, best.cost.cpu_per_s)
        return not self.plan.sheds and gain >= MIN_GAIN_SHARE + error

    def _pick_target_plan(self, explanation: Explanation) -> CostedPlan:
        """Return the approximate plan if nothing keeps up and rows may be shed; else the cheapest plan.

        A run that divides probes and windows continues to do so, with all rows kept in both roles.
        """
        if explanation.remedies is not None and explanation.remedies.approximation is not None:
            return explanation.remedies.approximation.costed
        if not self.plan.is_allocated:
            return explanation.chosen
        whole = RoleShares()
        plan = allocate_plan(self.bound.query.aliases, explanation.plan, (whole, whole), self.plan.drop_seed)
        return CostedPlan(plan, explanation.chosen.cost)

    def _sample_recent_rows(self) -> PlanningSample:
        relations = read_planning_sample(
            self.bound, {name: source for name, source in self.sources.items() if isinstance(source, Relation)}
        )
        return build_sample({**relations.tables, **self._recent}, self.sources, is_complete=False)

    def _explain_rows(self, sample: PlanningSample, signals: Signals) -> Explanation:
        rates = {name: rate for name, rate in signals.rows_per_s.items() if rate > 0}
        return explain_sample(
            self.bound,
            sample,
            {},
            budget=self.budget,
            arrivals=ArrivalPattern(signals.batch_s),
            rates=rates,
            policy=self._keep_strategy(),
        )

    def _keep_strategy(self) -> SheddingPolicy | None:
        """Return the policy with the strategy of the running plan: its state cannot change to the other strategy."""
        if self.policy is None:
            return None
        return replace(self.policy, strategy=ALLOCATE if self.plan.is_allocated else DROP)


def _log_decision(decision: Decision) -> None:
    level, event = (logging.INFO, "plan_changed") if decision.changed else (logging.DEBUG, "plan_considered")
    log_event(level, event, str(decision), **decision.to_dict())


def has_other_shares(one: Plan, other: Plan) -> bool:
    """Return whether two plans keep different shares of a stream, or one of them keeps all rows."""
    pairs = [
        (dict(getattr(one, knob)), dict(getattr(other, knob)), default)
        for knob, default in (("drop", 0.0), ("probe", 1.0), ("window", 1.0))
    ]
    return one.sheds != other.sheds or any(
        abs(mine.get(name, default) - theirs.get(name, default)) > MIN_SHARE_CHANGE
        for mine, theirs, default in pairs
        for name in {*mine, *theirs}
    )


def _gain(running: float, best: float) -> float:
    """Return the share of the running plan's CPU time that the other plan saves.

    >>> _gain(2.0, 0.5)
    0.75
    """
    return 1 - best / running if running > 0 else 0.0


def _format_gain(share: float) -> str:
    """Format a gain, which may be negative.

    >>> _format_gain(0.25), _format_gain(-0.1)
    ('25.0 %', '-10.0 %')
    """
    return f"{100 * share:.1f} %"


def _ratio(one: float, other: float) -> float:
    """Return the ratio of the larger number to the smaller one."""
    small, large = sorted((one, other))
    return large / small if small > 0 else math.inf if large > 0 else 1.0

"""Keeping batches shorter than the trigger interval by choosing what to drop: values in, a decision out, no clock and
no host.

After every batch the host says how long it took and what came. The cost model says what such a batch should have taken;
a line through the last batches turns the model's seconds into this machine's, and how far batches came off what was
foretold of them says how much of the interval to leave free (`machine_fit`). From that follows how much the next batch
may hold, backlog included, and the model says which rows to give up so that most of the answer is left. A decision
carries the batch it holds from; written beside the checkpoint it makes a replayed batch drop the same rows.

References: Ayad, Naughton, section 5; Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.overload import CostingContext, find_best_shares, minimum_shares, scale_rates
from watersmeet.planner.plan_cost import Budget

#: Batches the fit looks at, and what a batch counts beside the one after it.
REMEMBERED, FADING = 12, 0.7
#: The relative variance of batches at which they tell as much about the slope as the expected overhead does.
ALIKE = 0.03
#: What an unsteady batch counts.
UNSTEADY = 0.25
#: Of a batch's seconds, the share that its rows take at the least: noise in batches that are alike must not say that
#: dropping is useless.
SLOWEST_GAIN = 0.2
#: How far off batches come before any was measured, for how many batches that counts, and how many times the scatter is
#: left free.
EXPECTED_SCATTER, EXPECTED_COUNTS, SCATTERS_FREE = 0.08, 2, 2.5
#: The least and the most of the trigger interval that is left free.
LEAST_FREE, MOST_FREE = 0.02, 0.25


class FitPoint(NamedTuple):
    """A batch's seconds; `steady` where windows held what the model thinks they do, because the batch before was like
    this one.
    """

    predicted_s: float
    measured_s: float
    steady: bool = True


@dataclass(frozen=True, slots=True)
class MachineFit:
    """Measured seconds as `overhead + factor · predicted`, through the middle of the last batches, newer ones counting
    more.

    The line always goes through that middle: where it is wrong elsewhere, it is right about batches like those that
    just ran. Its slope is what batches that differ say of it; where they are alike, what is left when the expected
    overhead is taken off.

    >>> MachineFit((FitPoint(1.0, 2.5), FitPoint(2.0, 4.5)), overhead_s=0.5).line()
    (0.5, 2.0)
    """

    points: tuple[FitPoint, ...] = ()
    overhead_s: float = 0.5

    def with_point(self, predicted_s: float, measured_s: float, *, steady: bool = True) -> MachineFit:
        return replace(self, points=(*self.points, FitPoint(predicted_s, measured_s, steady))[-REMEMBERED:])

    def line(self) -> tuple[float, float]:
        """Overhead and factor; the model's own seconds where nothing was measured."""
        if not any(point.predicted_s > 0 for point in self.points):
            return self.overhead_s, 1.0
        x = self._mean([point.predicted_s for point in self.points])
        y = max(self._mean([point.measured_s for point in self.points]), 1e-9)
        spread = self._mean([(point.predicted_s - x) ** 2 for point in self.points]) / x**2
        together = self._mean([(point.predicted_s - x) * (point.measured_s - y) for point in self.points]) / x**2
        expected = max(y - self.overhead_s, 0.0) / x
        factor = (together + ALIKE * expected) / (spread + ALIKE)
        factor = min(
            max(factor, SLOWEST_GAIN * y / x), y / x
        )  # an overhead is not below zero, and fewer rows always help
        return y - factor * x, factor

    def scatter(self) -> float:
        """How far off steady batches came, as a share of what the batches before them foretold; some `EXPECTED_SCATTER`
        off are taken for granted. A line through a batch knows too much about it to say how far the next one may be
        off.
        """
        off = [EXPECTED_SCATTER] * EXPECTED_COUNTS
        for number, point in enumerate(self.points):
            if number and point.steady:
                overhead_s, factor = replace(self, points=self.points[:number]).line()
                off.append(point.measured_s / (overhead_s + factor * point.predicted_s) - 1)
        return math.sqrt(sum(share**2 for share in off) / len(off))

    def headroom_share(self) -> float:
        """The share of the trigger interval that is left free, so that a batch that takes longer than expected is in
        time all the same.
        """
        return min(max(SCATTERS_FREE * self.scatter(), LEAST_FREE), MOST_FREE)

    def _weights(self) -> list[float]:
        ages = range(len(self.points) - 1, -1, -1)
        return [FADING**age * (1.0 if point.steady else UNSTEADY) for age, point in zip(ages, self.points, strict=True)]

    def _mean(self, values: Sequence[float]) -> float:
        return sum(w * v for w, v in zip(self._weights(), values, strict=True)) / sum(self._weights())


Shares = Mapping[str, float]

#: How far a share, or the time its rows took to come, may be off the last batch's for a batch to be steady.
STEADY_WITHIN = 0.1
#: Rows are dropped only when the next batch would take more than this share of what it may, so that a steady load does
#: not flicker.
NEAR = 0.97


class BatchModel(Protocol):
    """What the optimizer predicts for one plan."""

    def predict_seconds(
        self, rows_per_s: Shares, keep: Shares, interval_s: float, results: float | None = None
    ) -> float:
        """Seconds of a batch that brings the rows of so long an interval, of which these shares are kept; with so many
        results if known.
        """
        ...

    def rows_out_per_s(self, rows_per_s: Shares, keep: Shares) -> float:
        """Results per second when these shares are kept."""
        ...

    def best_keep(self, rows_per_s: Shares, interval_s: float, capacity_s: float) -> dict[str, float]:
        """The shares that leave most of the answer among those whose batch takes at most so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch that is over: its number, its seconds, how long its rows took to come, how many came, by stream, and how
    many went out.

    Results are what tells a batch whose windows still hold rows that came by other shares from one that the model has
    in mind.
    """

    batch_id: int
    seconds: float
    interval_s: float
    arrived: Shares
    results: float | None = None

    def __post_init__(self) -> None:
        if not (self.seconds >= 0 and self.interval_s > 0):
            raise PlanError(f"a batch of {self.seconds} s over {self.interval_s} s of arrivals cannot be")

    @property
    def rows_per_s(self) -> dict[str, float]:
        return {name: rows / self.interval_s for name, rows in self.arrived.items()}


@dataclass(frozen=True, slots=True)
class Controls:
    """The shares to keep from a batch on, what the batch is then expected to take, and why."""

    from_batch: int
    keep: tuple[tuple[str, float], ...]
    expected_s: float
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "from_batch": self.from_batch,
            "keep": dict(self.keep),
            "expected_s": self.expected_s,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Controls:
        return cls(saved["from_batch"], tuple(saved["keep"].items()), saved["expected_s"], saved["reason"])


@dataclass(frozen=True)
class Controller:
    """Made once, then `after` each batch: a new controller whose `controls` hold for the next one."""

    model: BatchModel
    trigger_s: float
    fit: MachineFit = field(default_factory=MachineFit)
    controls: Controls = Controls(0, (), 0.0, "nothing was measured yet")  # frozen
    before: tuple[Shares, float] | None = None  # what the last batch kept, of rows that came in so many seconds

    def __post_init__(self) -> None:
        if not self.trigger_s > 0:
            raise PlanError(f"a trigger interval of {self.trigger_s} s cannot be")

    def after(self, batch: BatchReport, running: Shares | None = None) -> Controller:
        """What is known after a batch, and what the next one is to drop; if that one runs and keeps `running`, what the
        one after is.
        """
        keep = dict(self.controls.keep)
        predicted_s = self.model.predict_seconds(batch.rows_per_s, keep, batch.interval_s, batch.results)
        fit = self.fit.with_point(predicted_s, batch.seconds, steady=self._is_steady(keep, batch.interval_s))
        return replace(self, fit=fit, controls=self._controls(batch, fit, running), before=(keep, batch.interval_s))

    def most_rows_out_per_s(self, rows_per_s: Shares, free: float = 0.0) -> float:
        """Results per second at the best shares for batches that leave so much of the interval free."""
        overhead_s, factor = self.fit.line()
        capacity_s = max((self.trigger_s * (1 - free) - overhead_s) / factor, 0.0)
        return self.model.rows_out_per_s(rows_per_s, self.model.best_keep(rows_per_s, self.trigger_s, capacity_s))

    def _is_steady(self, keep: Shares, interval_s: float) -> bool:
        """Whether a batch is as the one before it, so that windows hold what the model thinks they do."""
        if self.before is None:
            return False
        shares, seconds = self.before
        pairs = [(interval_s, seconds), *((keep.get(name, 1.0), shares.get(name, 1.0)) for name in {*keep, *shares})]
        return all(abs(one - other) <= STEADY_WITHIN * other for one, other in pairs)

    def _controls(self, batch: BatchReport, fit: MachineFit, running: Shares | None) -> Controls:
        overhead_s, factor = fit.line()
        allowed_s = self.trigger_s * (1 - fit.headroom_share())

        def lasting(keep: Shares, interval_s: float) -> float:
            return overhead_s + factor * self.model.predict_seconds(batch.rows_per_s, keep, interval_s)

        interval_s = max(self.trigger_s, batch.seconds)  # what came while the last batch ran late is in the next one
        following = batch.batch_id + 1
        if running is not None:
            interval_s, following = max(self.trigger_s, lasting(running, interval_s)), following + 1

        def expected(keep: Shares) -> float:
            return lasting(keep, interval_s)

        whole_s = expected({})
        words = f"batch {batch.batch_id} took {batch.seconds:.3g} s of {self.trigger_s:.3g}"
        if whole_s <= allowed_s * NEAR or (whole_s <= allowed_s and not self.controls.keep):
            return Controls(following, (), whole_s, f"{words}; everything is kept")
        keep = self.model.best_keep(batch.rows_per_s, interval_s, max((allowed_s - overhead_s) / factor, 0.0))
        kept = ", ".join(f"{share:.1%} of {name}" for name, share in keep.items() if share < 1)
        return Controls(
            following,
            tuple(keep.items()),
            expected(keep),
            f"{words}; all of the next would take {whole_s:.3g} s, so {kept} is kept",
        )


@dataclass(frozen=True)
class PlanBatchModel:
    """The optimizer's cost model of one plan as the controller asks it; `context` was estimated at `rows_per_s`."""

    context: CostingContext
    plan: Plan
    policy: SheddingPolicy = DEFAULT_POLICY

    def predict_seconds(
        self, rows_per_s: Shares, keep: Shares, interval_s: float, results: float | None = None
    ) -> float:
        cost = self._at(rows_per_s, self.context.budget).cost(self.plan, keep).cost
        if results is None:
            return cost.cpu_per_s * interval_s
        unforeseen = results - cost.rows_out_per_s * interval_s
        per_result_s = self.context.profile.match_s + self.context.profile.row_out_s
        return max(cost.cpu_per_s * interval_s + unforeseen * per_result_s, 1e-6)

    def rows_out_per_s(self, rows_per_s: Shares, keep: Shares) -> float:
        return self._at(rows_per_s, self.context.budget).cost(self.plan, keep).cost.rows_out_per_s

    def best_keep(self, rows_per_s: Shares, interval_s: float, capacity_s: float) -> dict[str, float]:
        now = self._at(
            rows_per_s, Budget(max(capacity_s / interval_s, 1e-9), memory_bytes=self.context.budget.memory_bytes)
        )
        least = {name: max(share, 1e-3) for name, share in minimum_shares(now, self.policy).items()}
        return (
            dict(least)
            if now.load_share(self.plan, least) > 1
            else find_best_shares(now, self.plan, least, self.policy)
        )

    def _at(self, rows_per_s: Shares, budget: Budget) -> CostingContext:
        """The context with streams as fast as they are now."""
        faster = {name: rows_per_s.get(name, rate) / rate for name, rate in self.context.rates.items() if rate}
        return replace(
            self.context, workload=scale_rates(self.context.config, self.context.workload, faster), budget=budget
        )

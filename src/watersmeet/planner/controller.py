"""Control of shedding: choose shed rates that keep batches within the trigger interval. No clock, no host: values only.

After every batch the host reports its seconds and its rows. The cost model predicts the seconds of such a batch, and a
line through the last batches converts them to seconds on this machine (`MachineFit`). The scatter around that line
determines the headroom. The rest of the interval limits the rows of the next batch, backlog included, and the model
chooses the rows to drop so that most of the output is preserved. A decision names the batch it applies from. Saved next
to the checkpoint, it makes a replayed batch drop the same rows.

References: Ayad, Naughton, section 5; Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.planner.costing_context import CostingContext, scale_rates
from watersmeet.planner.models.ayad_drops import DEFAULT_POLICY, SheddingPolicy
from watersmeet.planner.plan_cost import Budget
from watersmeet.planner.shed_search import find_best_shares, minimum_shares
from watersmeet.units import format_percent

#: Number of batches in the fit, and the weight of a batch relative to the one after it.
FIT_BATCHES, FADING = 12, 0.7
#: Relative variance of batches at which they determine the slope as much as the expected overhead does.
PRIOR_VARIANCE = 0.03
#: Weight of an unsteady batch.
UNSTEADY_WEIGHT = 0.25
#: Minimum share of a batch's seconds that depends on its rows. Noise among similar batches must not suggest that
#: dropping rows is useless.
MIN_ROW_SHARE = 0.2
#: Relative error that is expected before any batch was measured, the number of batches it counts as, and the headroom
#: as a multiple of the error.
EXPECTED_SCATTER, EXPECTED_COUNTS, HEADROOM_SCATTERS = 0.08, 2, 2.5
#: Bounds of the headroom, as shares of the trigger interval.
MIN_HEADROOM, MAX_HEADROOM = 0.02, 0.25


class FitPoint(NamedTuple):
    """Predicted and measured seconds of a batch.

    `steady` means that the batch before was like this one, so the windows held the rows that the model assumes.
    """

    predicted_s: float
    measured_s: float
    steady: bool = True


@dataclass(frozen=True, slots=True)
class MachineFit:
    """Measured seconds as `overhead + factor · predicted`, fitted through the weighted mean of the last batches.

    Newer batches weigh more. The line always goes through the mean, so it is right for batches like the last ones even
    if it is wrong elsewhere. Batches that differ determine its slope. If all are alike, the slope follows from
    subtracting the expected overhead.

    >>> MachineFit((FitPoint(1.0, 2.5), FitPoint(2.0, 4.5)), overhead_s=0.5).line()
    (0.5, 2.0)

    """

    points: tuple[FitPoint, ...] = ()
    overhead_s: float = 0.5

    def with_point(self, predicted_s: float, measured_s: float, *, steady: bool = True) -> MachineFit:
        """Return the fit with one more batch."""
        return replace(self, points=(*self.points, FitPoint(predicted_s, measured_s, steady))[-FIT_BATCHES:])

    def line(self) -> tuple[float, float]:
        """Return overhead and factor; without measurements, the expected overhead and factor 1."""
        if not any(point.predicted_s > 0 for point in self.points):
            return self.overhead_s, 1.0
        x = self._mean([point.predicted_s for point in self.points])
        y = max(self._mean([point.measured_s for point in self.points]), 1e-9)
        variance = self._mean([(point.predicted_s - x) ** 2 for point in self.points]) / x**2
        covariance = self._mean([(point.predicted_s - x) * (point.measured_s - y) for point in self.points]) / x**2
        expected = max(y - self.overhead_s, 0.0) / x
        factor = (covariance + PRIOR_VARIANCE * expected) / (variance + PRIOR_VARIANCE)
        # The overhead is never negative, and fewer rows always take less time.
        factor = min(max(factor, MIN_ROW_SHARE * y / x), y / x)
        return y - factor * x, factor

    def scatter(self) -> float:
        """Return the root mean square error of the predictions for steady batches, as a share.

        Each prediction uses only the batches before it: a line through a batch would underestimate its error. A few
        errors of `EXPECTED_SCATTER` are added as a prior.
        """
        errors = [EXPECTED_SCATTER] * EXPECTED_COUNTS
        for number, point in enumerate(self.points):
            if number and point.steady:
                overhead_s, factor = replace(self, points=self.points[:number]).line()
                errors.append(point.measured_s / (overhead_s + factor * point.predicted_s) - 1)
        return math.sqrt(sum(error**2 for error in errors) / len(errors))

    def headroom_share(self) -> float:
        """Return the share of the trigger interval to keep free, so that a slow batch still finishes in time."""
        return min(max(HEADROOM_SCATTERS * self.scatter(), MIN_HEADROOM), MAX_HEADROOM)

    def _weights(self) -> list[float]:
        steadiness = [1.0 if point.steady else UNSTEADY_WEIGHT for point in reversed(self.points)]
        return [FADING**age * weight for age, weight in enumerate(steadiness)][::-1]

    def _mean(self, values: Sequence[float]) -> float:
        return sum(w * v for w, v in zip(self._weights(), values, strict=True)) / sum(self._weights())


Shares = Mapping[str, float]

#: A batch is steady if no kept share, nor its interval, differs from the batch before by more than this fraction.
STEADY_WITHIN = 0.1
#: While rows are dropped, all rows are kept again only below this share of the allowed seconds. So a steady load does
#: not switch back and forth.
HYSTERESIS = 0.97


class BatchModel(Protocol):
    """Predictions of the planner for one plan."""

    def predict_seconds(
        self, rows_per_s: Shares, keep: Shares, interval_s: float, results: float | None = None
    ) -> float:
        """Predict the seconds of a batch with the rows of `interval_s`, these kept shares, and its results if known."""
        ...

    def rows_out_per_s(self, rows_per_s: Shares, keep: Shares) -> float:
        """Predict the results per second with these kept shares."""
        ...

    def best_keep(self, rows_per_s: Shares, interval_s: float, capacity_s: float) -> dict[str, float]:
        """Return the kept shares with the highest output among those whose batch takes at most `capacity_s`."""
        ...


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A finished batch: its number, its seconds, the interval its rows arrived in, rows by stream, and results.

    The windows of a batch may still hold rows that were kept at other shares. The number of results shows this.
    """

    batch_id: int
    seconds: float
    interval_s: float
    arrived: Shares
    results: float | None = None

    def __post_init__(self) -> None:
        if not (self.seconds >= 0 and self.interval_s > 0):
            raise PlanError(f"invalid batch: {self.seconds} s for {self.interval_s} s of arrivals")

    @property
    def rows_per_s(self) -> dict[str, float]:
        """Rows per second of each stream."""
        return {name: rows / self.interval_s for name, rows in self.arrived.items()}


@dataclass(frozen=True, slots=True)
class SheddingDecision:
    """Shares to keep from a batch on, the expected seconds of that batch, and the reason."""

    from_batch: int
    keep: tuple[tuple[str, float], ...]
    expected_s: float
    reason: str

    def __str__(self) -> str:
        return f"from batch {self.from_batch}: {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain values; `from_dict` reads them back."""
        return {
            "from_batch": self.from_batch,
            "keep": dict(self.keep),
            "expected_s": self.expected_s,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> SheddingDecision:
        return cls(saved["from_batch"], tuple(saved["keep"].items()), saved["expected_s"], saved["reason"])


@dataclass(frozen=True)
class Controller:
    """Immutable controller: `after` each batch returns a new one, whose `controls` apply to the next batch."""

    model: BatchModel
    trigger_s: float
    fit: MachineFit = field(default_factory=MachineFit)
    controls: SheddingDecision = SheddingDecision(0, (), 0.0, "no batch was measured yet")
    before: tuple[Shares, float] | None = None  # shares and interval of the last batch

    def __post_init__(self) -> None:
        if not self.trigger_s > 0:
            raise PlanError(f"a trigger interval must be above zero, got {self.trigger_s} s")

    def after(self, batch: BatchReport, running: Shares | None = None) -> Controller:
        """Return the controller after a batch, with the decision for the next one.

        If the next batch already runs and keeps `running`, the decision is for the one after it.
        """
        keep = dict(self.controls.keep)
        predicted_s = self.model.predict_seconds(batch.rows_per_s, keep, batch.interval_s, batch.results)
        fit = self.fit.with_point(predicted_s, batch.seconds, steady=self._is_steady(keep, batch.interval_s))
        return replace(self, fit=fit, controls=self._controls(batch, fit, running), before=(keep, batch.interval_s))

    def most_rows_out_per_s(self, rows_per_s: Shares, headroom: float = 0.0) -> float:
        """Predict the results per second at the best shares if the share `headroom` of the interval stays free."""
        overhead_s, factor = self.fit.line()
        capacity_s = max((self.trigger_s * (1 - headroom) - overhead_s) / factor, 0.0)
        return self.model.rows_out_per_s(rows_per_s, self.model.best_keep(rows_per_s, self.trigger_s, capacity_s))

    def _is_steady(self, keep: Shares, interval_s: float) -> bool:
        """Return whether a batch is like the one before, so that the windows hold the rows that the model assumes."""
        if self.before is None:
            return False
        shares, seconds = self.before
        pairs = [(interval_s, seconds), *((keep.get(name, 1.0), shares.get(name, 1.0)) for name in {*keep, *shares})]
        return all(abs(one - other) <= STEADY_WITHIN * other for one, other in pairs)

    def _controls(self, batch: BatchReport, fit: MachineFit, running: Shares | None) -> SheddingDecision:
        overhead_s, factor = fit.line()
        allowed_s = self.trigger_s * (1 - fit.headroom_share())

        def predict_s(keep: Shares, interval_s: float) -> float:
            return overhead_s + factor * self.model.predict_seconds(batch.rows_per_s, keep, interval_s)

        # Rows that arrived while the last batch was late belong to the next one.
        interval_s = max(self.trigger_s, batch.seconds)
        following = batch.batch_id + 1
        if running is not None:
            interval_s, following = max(self.trigger_s, predict_s(running, interval_s)), following + 1

        whole_s = predict_s({}, interval_s)
        took = f"batch {batch.batch_id} took {batch.seconds:.3g} s of {self.trigger_s:.3g} s"
        if whole_s <= allowed_s * HYSTERESIS or (whole_s <= allowed_s and not self.controls.keep):
            return SheddingDecision(following, (), whole_s, f"{took}; all rows are kept")
        keep = self.model.best_keep(batch.rows_per_s, interval_s, max((allowed_s - overhead_s) / factor, 0.0))
        kept = ", ".join(f"{format_percent(share)} of {name}" for name, share in keep.items() if share < 1)
        return SheddingDecision(
            following,
            tuple(keep.items()),
            predict_s(keep, interval_s),
            f"{took}; the next would take {whole_s:.3g} s with all rows, so keep {kept}",
        )


@dataclass(frozen=True)
class PlanBatchModel:
    """Cost model of one plan for the controller.

    `context` was estimated at other rates and is scaled to the current ones.
    """

    context: CostingContext
    plan: Plan
    policy: SheddingPolicy = DEFAULT_POLICY

    def predict_seconds(
        self, rows_per_s: Shares, keep: Shares, interval_s: float, results: float | None = None
    ) -> float:
        cost = self._at(rows_per_s, self.context.budget).cost(self.plan, keep).cost
        if results is None:
            return cost.cpu_per_s * interval_s
        extra_results = results - cost.rows_out_per_s * interval_s
        per_result_s = self.context.profile.match_s + self.context.profile.row_out_s
        return max(cost.cpu_per_s * interval_s + extra_results * per_result_s, 1e-6)

    def rows_out_per_s(self, rows_per_s: Shares, keep: Shares) -> float:
        return self._at(rows_per_s, self.context.budget).cost(self.plan, keep).cost.rows_out_per_s

    def best_keep(self, rows_per_s: Shares, interval_s: float, capacity_s: float) -> dict[str, float]:
        context = self._at(
            rows_per_s, Budget(max(capacity_s / interval_s, 1e-9), memory_bytes=self.context.budget.memory_bytes)
        )
        least = {name: max(share, 1e-3) for name, share in minimum_shares(context, self.policy).items()}
        return (
            dict(least)
            if context.load_share(self.plan, least) > 1
            else find_best_shares(context, self.plan, least, self.policy)
        )

    def _at(self, rows_per_s: Shares, budget: Budget) -> CostingContext:
        """Return the context with streams at their current rates."""
        faster = {name: rows_per_s.get(name, rate) / rate for name, rate in self.context.rates.items() if rate}
        return replace(
            self.context, workload=scale_rates(self.context.config, self.context.workload, faster), budget=budget
        )

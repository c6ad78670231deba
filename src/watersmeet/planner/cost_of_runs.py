"""Cost of the production tactic: grouped runs, probed one batch at a time.

By the batch rule a new row matches old and new rows of the inputs before its own, and old rows of the inputs after it.
So if batches are long compared with the windows, nearly all combinations are found from the last input, which is the
one with the highest rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.operators.window_join.admission import MIN_SLICE_ROWS
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import JoinPrediction, OperatorCost
from watersmeet.planner.probe_orders import FavouredInputs, predict_in_orders
from watersmeet.planner.workload import ArrivalPattern, Workload, length_to_seconds

_MAX_PANES = 12.0
#: Smallest share of batches in which an input comes before another in the batch rule.
_MIN_SHARE_BEFORE = 0.01
_NORMAL = NormalDist()


def predict_runs(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> JoinPrediction:
    """Predict the cost of grouped runs."""
    return predict_in_orders(config, workload, RunsModel(config, workload, profile), plan)


@dataclass(frozen=True)
class RunsModel:
    """Seconds of a probe and of upkeep, for one query and one profile."""

    config: JoinConfig
    workload: Workload
    profile: Profile
    _met_rows_cache: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)
    _candidates_cache: dict[tuple[int, frozenset[int], int], float] = field(default_factory=dict, repr=False)

    @cached_property
    def batches(self) -> ArrivalPattern:
        """Arrival pattern that the tactic sees: long batches are cut into slices."""
        arrivals, rate = self.workload.arrivals, sum(each.rows_per_s.value for each in self.workload.inputs)
        if rate * arrivals.batch_s < 2 * MIN_SLICE_ROWS:
            return arrivals
        kept_s = max(
            (each.retention_us / 1e6 for each in self.config.inputs if each.is_stream and not each.has_ends),
            default=0.0,
        )
        return ArrivalPattern(
            min(arrivals.batch_s, max(MIN_SLICE_ROWS / rate, kept_s)), arrivals.horizon_s, arrivals.is_assumed
        )

    def fanout(self, origin: int, known: frozenset[int], target: int) -> float:
        return self.candidates(origin, known, target) * self.workload.residual_share(known, target)

    def candidates(self, origin: int, known: frozenset[int], target: int) -> float:
        """Estimate the rows of the target that match a combination by keys and times, before any predicate."""
        found = self._candidates_cache.get((origin, known, target))
        if found is None:
            rows, streams = self.workload.filled_rows(self.config, target), self.config.stream_inputs
            if target in streams:
                rows = min(self._met_rows(i, target, from_origin=i == origin) for i in known if i in streams)
            found = rows * self.workload.key_share(self.config, known, target)
            self._candidates_cache[origin, known, target] = found
        return found

    def loop_s(self, origin: int, known: frozenset[int], target: int) -> float:
        """Estimate seconds per combination: a lookup in every pane, and each predicate evaluated on all candidates."""
        candidates = self.candidates(origin, known, target)
        checks_s = sum(
            each.check_s(self.profile)
            for each in self.workload.residuals
            if target in each.inputs and each.inputs <= known | {target}
        )
        found = candidates * (self.profile.runs.compare_s + self.profile.match_s + checks_s)
        return self.profile.runs.lookup_s * self._panes(target) + found

    def upkeep_costs(self) -> list[OperatorCost]:
        """Return the cost of building runs, one per key, once for a row and again whenever its pane is merged."""
        if len(self.config.inputs) == 1:
            return []
        parts = []
        for each in self.config.inputs:
            kept = self.workload.inputs[each.number].kept_per_s.value
            if each.is_stream and not self._only_probes(each):
                built = max(1, len(each.keys)) * self._panes(each.number)
                parts.append(
                    OperatorCost(f"store {each.alias} as runs", kept * built * self.profile.runs.update_s, kept)
                )
        probes = len(self.config.stream_inputs) * (len(self.config.inputs) - 1)
        per_batch = (
            sum(self._panes(i) for i in self.config.stream_inputs)
            / len(self.config.stream_inputs)
            * probes
            * self.profile.probe_batch_s
        )
        parts.append(OperatorCost("batches of probes", per_batch / self.batches.batch_s, probes / self.batches.batch_s))
        return parts

    def favoured_inputs(self) -> FavouredInputs:
        """Return the inputs that heuristics put near the top. All windows are indexed."""
        predicates = [each.inputs for each in self.workload.residuals]
        return FavouredInputs(
            expensive=frozenset[int]().union(*predicates), fluctuating=self.workload.samples.fluctuating_inputs
        )

    def new_rows(self, origin: int) -> float:
        """Return 1: costs are per row, and the new rows are always outermost."""
        return 1.0

    def _panes(self, target: int) -> float:
        """Estimate the panes of a window: panes of similar size are merged, so n batches have about log2 n."""
        each = self.workload.inputs[target]
        if not each.kept_per_s.value:
            return 1.0
        batches_held = self.workload.filled_rows(self.config, target) / (each.kept_per_s.value * self.batches.batch_s)
        return min(_MAX_PANES, 1.0 + math.log2(1.0 + batches_held))

    def _met_rows(self, i: int, target: int, *, from_origin: bool) -> float:
        """Estimate the rows of the target within the time bounds of a row of input i.

        If i is the origin, the batch rule applies.
        """
        key = (i if from_origin else -1 - i, target)
        if key not in self._met_rows_cache:
            each, window_s = self.workload.inputs[target], self._window_s(target)
            back_us, ahead_us = self.workload.gaps_us[target][i], self.workload.gaps_us[i][target]
            back_s = min(length_to_seconds(back_us) if back_us < FOREVER_US else math.inf, window_s)
            ahead_s = min(length_to_seconds(ahead_us) if ahead_us < FOREVER_US else math.inf, self._window_s(i))
            if not from_origin:
                length_s = min(back_s + ahead_s, self.batches.filled_window_s(window_s) + self.batches.batch_s)
            else:
                length_s = self.batches.earlier_batches_s(back_s) + self._share_before(
                    target, i
                ) * self.batches.same_batch_s(back_s, ahead_s)
            self._met_rows_cache[key] = each.kept_per_s.value * length_s
        return self._met_rows_cache[key]

    def _share_before(self, target: int, origin: int) -> float:
        """Estimate the share of batches in which the batch rule puts the target before the origin.

        The input with fewer new rows comes first. Numbers of rows vary by their square root, and more in bursts. So an
        order that would be slow in the other position is never free.
        """
        rows = {each: self.workload.inputs[each].kept_per_s.value * self.batches.batch_s for each in (target, origin)}
        deviation = math.sqrt(sum(rows.values()))
        share = _NORMAL.cdf((rows[origin] - rows[target]) / deviation) if deviation else 0.5
        return min(1 - _MIN_SHARE_BEFORE, max(_MIN_SHARE_BEFORE, share))

    def _only_probes(self, each: JoinInput) -> bool:
        """Return whether no input probes the rows of this one.

        This holds for the last input in the batch rule if its rows expire before the next batch.
        """
        is_last = max(self.config.stream_inputs, key=self._rank) == each.number
        return is_last and not each.has_ends and each.retention_us / 1e6 < self.batches.batch_s / 2

    def _rank(self, number: int) -> tuple[float, int]:
        """Return the position of an input in the batch rule."""
        return self.workload.inputs[number].kept_per_s.value, number

    def _window_s(self, number: int) -> float:
        """Return the seconds of stream that a window holds."""
        each = self.workload.inputs[number]
        return each.held_rows.value / each.kept_per_s.value if each.kept_per_s.value else math.inf

"""Cost of the W-joins and their baselines: a new row runs loops over the buffers of the other streams.

The rows that a loop compares follow from the reach of the streams and from the times of the rows chosen before. The
model averages over those times, at points that are spread evenly.

| algorithm | order of the loops | rows that a loop compares |
| --- | --- | --- |
| nlw-join, gca-nlw | in a circle from the origin | in the period of the rows chosen so far |
| hw-join, gca-hw | in a circle from the origin | the same, in one bucket |
| nlw-join, hw-join on a path | along the path | the same, on one side of the row chosen before |
| mw-join, gca, lca | by reach, then by length | in the period; none if another buffer is empty |
| ripple-join, xjoin | in a circle from the origin | all since the last clean-up; xjoin in one bucket |

With one window for all pairs, the period of each loop is the window before the new row. Then a loop of NLW-join
compares `λT` rows per combination that reaches it. GCA and the baselines use the largest window of all pairs, the
others the largest window of each stream.

References: Hammad, Aref, Elmagarmid, sections 3 to 5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from watersmeet.algebra.plan import Index, Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.w_joins import find_common_class, has_direction, order_loops
from watersmeet.planner.cost_of_loops import LoopsModel
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import JoinPrediction, OperatorCost
from watersmeet.planner.probe_orders import probe_cost
from watersmeet.planner.workload import Workload, length_to_seconds

Floats = NDArray[np.float64]

#: Number of points that times are averaged over.
_POINTS = 128

#: Draws of the lengths of buffers, in standard deviations, and the number of orders that costs are averaged over.
_NOISE, _MAX_ORDERS = np.random.default_rng(1).standard_normal((48, 64)), 4

#: Maximum number of streams that decide how far the watermark is behind; the others have shorter gaps.
_SLOWEST_STREAMS = 6


#: Time to compare a row, relative to a list of nested loops, which compares eight codes at a time. Measured: a scan
#: tests the time of each row, too, and a sweep compares its code only.
SCAN_FACTOR, SWEEP_FACTOR = 1.5, 1.25

#: Time to test a row that no key selects, relative to nested loops. Measured with a band predicate.
KEYLESS_FACTOR = 0.3


@dataclass(frozen=True, slots=True)
class LoopWork:
    """One loop of an origin, per new row: its probes, the rows it touches and compares, and the matches it passes on.

    `evaluate_s` is the time for predicates that no kernel compares.
    """

    target: int
    probes: float
    touched: float
    compared: float
    matches: float
    evaluate_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WJoinScan:
    """Scan of an algorithm: by nested loops or by a sweep over time, and whether its loops visit only their window.

    The window of a stream is the largest of its pairs, or else the largest of all pairs.
    """

    is_sweep: bool = False
    knows_windows: bool = True
    prunes_per_stream: bool = True

    def predict(self, config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> JoinPrediction:
        """Predict the cost of an algorithm with this scan."""
        model = WJoinModel(config, workload, profile, plan, self)
        probes, comparisons_per_s = [], 0.0
        for i in config.stream_inputs:
            rate, seconds, orders = workload.inputs[i].kept_per_s.value, 0.0, model.likely_orders(i)
            for order, share in orders.items():
                loops = model.loops(i, order)
                seconds += share * model.loops_s(loops)
                comparisons_per_s += rate * share * sum(loop.compared for loop in loops)
            probes.append(
                probe_cost(config, workload, (i, *max(orders, key=lambda each: orders[each])), rate * seconds)
            )
        return JoinPrediction(plan, (*model.upkeep_costs(), *probes), comparisons_per_s=comparisons_per_s)


NESTED_SCAN = WJoinScan()
SWEEP = WJoinScan(is_sweep=True)
GLOBAL_SWEEP = WJoinScan(is_sweep=True, prunes_per_stream=False)
GLOBAL_SCAN = WJoinScan(prunes_per_stream=False)
WINDOWLESS_SCAN = WJoinScan(knows_windows=False, prunes_per_stream=False)


@dataclass(frozen=True)
class WJoinModel:
    """Loops of every origin, and seconds of loops and upkeep, for one query, one profile and one plan."""

    config: JoinConfig
    workload: Workload
    profile: Profile
    plan: Plan
    scan: WJoinScan

    def likely_orders(self, origin: int) -> dict[tuple[int, ...], float]:
        """Return the orders of the loops of an origin, each with the share of its new rows.

        A sweep orders its loops by the rows in their buffers at the time. Buffers of similar lengths change places.
        """
        if not self.scan.is_sweep:
            return {tuple(self._order(origin)): 1.0}
        others = [i for i in range(len(self.config.inputs)) if i != origin]
        lengths = np.array([self._mean_buffer_rows[i] for i in others])
        drawn = Counter(
            tuple(sorted(others, key=lambda i, rows=rows: (self._reach_s[i], rows[others.index(i)])))  # type: ignore[misc]
            for rows in lengths + np.sqrt(lengths) * _NOISE[:, others]
        ).most_common(_MAX_ORDERS)
        total = sum(times for _, times in drawn)
        return {order: times / total for order, times in drawn}

    def loops(self, origin: int, order: Sequence[int] | None = None) -> list[LoopWork]:
        """Return the loops of an origin, from the outermost one, in the most likely order if none is given.

        Each point is a new row and one row of each stream chosen so far, by its age. `partials` are the combinations
        per new row that a point stands for.
        """
        found: list[LoopWork] = []
        ages: dict[int, Floats] = {origin: np.zeros(_POINTS)}
        partials, order = np.ones(_POINTS), self._order(origin) if order is None else order
        for depth, target in enumerate(order):
            known, youngest, oldest = frozenset(ages), *self._period_s(ages, target)
            length = np.maximum(oldest - youngest, 0.0)
            rows = self._rates[target] * length
            reached = partials * (self._nonempty_share(origin, order[depth + 1 :]) if self.scan.is_sweep else 1.0)
            scanned = reached * self._scanned_share(known, target)
            matches = reached * rows * self.workload.key_share(self.config, known, target)
            found.append(
                LoopWork(
                    target,
                    probes=_mean(reached * (self._nonempty_share(origin, [target]) if self.scan.is_sweep else 1.0)),
                    touched=_mean(scanned * np.maximum(rows, self._rates[target] * self._held_s(origin, target))),
                    compared=_mean(scanned * rows),
                    matches=_mean(matches) * self.workload.residual_share(known, target),
                    evaluate_s=self._loops_model.outside_kernel_s(known, target, _mean(matches))
                    + self._keyless_test_s(known, target) * _mean(scanned * rows),
                )
            )
            ages[target] = youngest + _spread_points(depth) * length
            equal_share = self.workload.key_share(self.config, known, target)
            partials = partials * rows * equal_share * self.workload.residual_share(known, target)
        return found

    def _keyless_test_s(self, known: frozenset[int], target: int) -> float:
        """Return the seconds to test one row of a loop that no key narrows."""
        is_keyed = self.config.classes.find_connections(target, sorted(known))
        return 0.0 if is_keyed else KEYLESS_FACTOR * self.profile.scan_s

    def loops_s(self, loops: list[LoopWork]) -> float:
        """Estimate the seconds of the loops of an origin, per new row."""
        seconds = 0.0
        for loop in loops:
            weights = self.profile.structure(self._index(loop.target).kind)
            compare_s = weights.compare_s * (SWEEP_FACTOR if self.scan.is_sweep else SCAN_FACTOR)
            seconds += loop.probes * weights.lookup_s + loop.touched * compare_s
            seconds += loop.matches * self.profile.loop_match_s + loop.evaluate_s
        return seconds

    def upkeep_costs(self) -> list[OperatorCost]:
        """Return the cost of the buffers, which are kept between batches like the windows of nested loops."""
        return self._loops_model.upkeep_costs()

    def _order(self, origin: int) -> list[int]:
        count = len(self.config.inputs)
        circle = [(origin + step) % count for step in range(1, count)]
        if self._is_path:
            return order_loops(self.config, origin, along_path=True)[1:]
        if not self.scan.is_sweep:
            return circle
        return sorted(circle, key=lambda i: (self._reach_s[i], self._mean_buffer_rows[i]))

    @cached_property
    def _mean_buffer_rows(self) -> list[float]:
        """Mean rows of each stream in reach of a new row."""
        return [
            rate * _mean(np.minimum(reach_s, available_s))
            for rate, reach_s, available_s in zip(self._rates, self._reach_s, self._available_s, strict=True)
        ]

    def _period_s(self, ages: dict[int, Floats], target: int) -> tuple[Floats, Floats]:
        """Return the least and the largest age of the target's rows that a loop compares."""
        if not self.scan.knows_windows:
            return np.zeros(_POINTS), self._uncleaned_s(target)
        oldest = np.min([age + self._later_by_s(target, i) for i, age in ages.items()], axis=0)
        youngest = np.max([age - self._later_by_s(i, target) for i, age in ages.items()], axis=0)
        return np.maximum(youngest, 0.0), np.minimum(oldest, self._available_s[target])

    def _held_s(self, origin: int, target: int) -> Floats:
        """Estimate the age of the oldest row in a buffer.

        A row leaves when the last rows of all other streams are beyond its reach. So a slow stream keeps rows in the
        other buffers, as long as rows of it are to come in the batch.
        """
        if self.scan.is_sweep or not self.scan.knows_windows:
            return np.zeros(_POINTS)
        waited = np.zeros(_POINTS)
        for rate in (self._rates[i] for i in range(len(self.config.inputs)) if i not in (origin, target)):
            if rate:
                has_more = -np.expm1(-rate * (self.workload.arrivals.batch_s - self._inside_s))
                waited = np.maximum(waited, has_more * -np.expm1(-rate * self._inside_s) / rate)
        return np.minimum(self._reach_s[target] + waited, self._available_s[target])

    def _uncleaned_s(self, target: int) -> Floats:
        """Return the age of the oldest row if a batch cleans the buffers after every `cleanup_rows` new rows."""
        since = self._inside_s % (self.plan.cleanup_rows / max(sum(self._rates), 1e-9))
        cleaned = np.minimum(self._reach_s[target] + since, self._available_s[target])
        return np.where(since < self._inside_s, cleaned, self._available_s[target])

    def _nonempty_share(self, origin: int, targets: Iterable[int]) -> Floats:
        """Estimate how often all these buffers hold a row in reach of a new row of the origin."""
        share: Floats = np.ones(_POINTS)
        for i in targets:
            length_s = np.minimum(min(self._reach_s[origin], self._reach_s[i]), self._available_s[i])
            share = share * -np.expm1(-self._rates[i] * length_s)
        return share

    def _key_share(self, known: frozenset[int], target: int) -> float:
        """Estimate the share of rows with the common key, by which hash tables are divided into buckets."""
        common = find_common_class(self.config)
        return 1.0 if common is None else self.workload.class_share(self.config, common, known, target)

    def _scanned_share(self, known: frozenset[int], target: int) -> float:
        """Estimate the share of a buffer in the bucket of a key; a list is one bucket.

        Keys are spread evenly over the buckets, so only a bucket with several keys holds rows of other keys.
        """
        index = self._index(target)
        return max(self._key_share(known, target), 1 / index.size) if index.kind == "hash" else 1.0

    def _index(self, target: int) -> Index:
        source = self.config.inputs[target]
        return self.plan.index(source.alias) or find_tactic(self.plan).parts.default_index(keyed=bool(source.keys))

    def _later_by_s(self, one: int, other: int) -> float:
        """Return by how many seconds a row of the other stream may be later than one of the first."""
        if self._is_path:
            return length_to_seconds(self.workload.gaps_us[one][other])
        return min(self._reach_s[one], self._reach_s[other])

    @cached_property
    def _is_path(self) -> bool:
        """Whether the loops go along a path of windows with a direction."""
        return (
            not self.scan.is_sweep
            and self.scan.knows_windows
            and self.scan.prunes_per_stream
            and has_direction(self.config)
        )

    @cached_property
    def _rates(self) -> list[float]:
        return [each.kept_per_s.value for each in self.workload.inputs]

    @cached_property
    def _reach_s(self) -> list[float]:
        """Seconds that the rows of each stream reach: its largest window, or the largest of all."""
        gaps = np.array(self.workload.gaps_us)
        largest = np.maximum(gaps, gaps.T).max(axis=1)
        reach_us = largest if self.scan.prunes_per_stream else np.full(largest.size, largest.max())
        return [length_to_seconds(int(each)) for each in reach_us]

    @cached_property
    def _available_s(self) -> list[Floats]:
        """Age of the oldest row of each stream that a batch starts with or brings, by point.

        A batch starts with the rows that the rows to come may match. The slowest stream holds back the watermark.
        """
        lag_s = _mean_of_longest_gap(self._rates)
        stored_s = [length_to_seconds(each.retention_us) + lag_s for each in self.config.inputs]
        return [self._inside_s + np.minimum(each, self._history_s) for each in stored_s]

    @cached_property
    def _inside_s(self) -> Floats:
        """Seconds between the start of the batch and the new row, by point."""
        return (np.arange(0.0, _POINTS) + 0.5) * (self.workload.arrivals.batch_s / _POINTS)

    @cached_property
    def _history_s(self) -> Floats:
        """Seconds of stream before the batch, by point."""
        arrivals = self.workload.arrivals
        if math.isinf(arrivals.horizon_s):
            return np.full(_POINTS, math.inf)
        batches = max(1, round(arrivals.horizon_s / arrivals.batch_s))
        return np.floor(_spread_points(-1) * batches) * arrivals.batch_s

    @cached_property
    def _loops_model(self) -> LoopsModel:
        return LoopsModel(self.config, self.workload, self.profile, self.plan)


def _mean(values: Floats) -> float:
    return float(values.mean())


def _spread_points(dimension: int) -> Floats:
    """Return points spread evenly between 0 and 1; those of different dimensions are independent.

    >>> x, y = _spread_points(0), _spread_points(1)
    >>> round(float(x.mean()), 1), round(float((x * y).mean()), 2)
    (0.5, 0.25)
    """
    step = math.sqrt((2, 3, 5, 7, 11, 13, 17, 19)[dimension % 8])
    return (0.5 + np.arange(1.0, _POINTS + 1.0) * step) % 1.0


def _mean_of_longest_gap(rates_per_s: list[float]) -> float:
    """Return the mean of the longest of several exponential gaps, by inclusion and exclusion over the slowest streams.

    >>> _mean_of_longest_gap([2.0]), _mean_of_longest_gap([1.0, 1.0]), _mean_of_longest_gap([0.0])
    (0.5, 1.5, 0.0)
    """
    slowest = sorted(rate for rate in rates_per_s if rate)[:_SLOWEST_STREAMS]
    subsets = (subset for count in range(1, len(slowest) + 1) for subset in combinations(slowest, count))
    return math.fsum((1 if len(subset) % 2 else -1) / sum(subset) for subset in subsets)

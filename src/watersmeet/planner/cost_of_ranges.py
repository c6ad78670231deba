"""Cost of sorted ranges: grouped runs whose rows are also sorted by value, in blocks.

A probe searches the blocks that overlap its places, and tests the entries between its two bounds. With the best block
size, both parts cost about the same (`operators.window_join.tactics.sorted_ranges`). So the model charges the search of
a few blocks per pane, and twice the rows inside the ranges. Rows outside the ranges cost nothing, while grouped runs
test every predicate on all rows of the key and the time bounds. The planner compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.sorted_ranges import list_range_conditions
from watersmeet.planner.cost_of_runs import RunsModel
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import JoinPrediction, OperatorCost
from watersmeet.planner.probe_orders import predict_in_orders
from watersmeet.planner.workload import Workload

#: Blocks that a probe searches in each pane: one inside its time bounds and one at each end.
_SEARCHED_BLOCKS = 3.0
#: Entries tested per entry inside the ranges, because blocks at the ends reach beyond the time bounds.
_TESTED_PER_ENTRY = 2.0
#: Cost of sorting a row by value, in updates of a run.
_SORTS_PER_UPDATE = 1.0
#: Fixed cost of sorting the new rows of a stream, whatever their number, in batches of probes of a run.
_BATCHES_PER_SORT = 12.0


def predict_ranges(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> JoinPrediction:
    """Predict the cost of sorted ranges."""
    return predict_in_orders(config, workload, RangesModel(config, workload, profile), plan)


@dataclass(frozen=True)
class RangesModel(RunsModel):
    """Seconds of a probe and of upkeep. A step without a range costs as much as a probe of a run."""

    @cached_property
    def _exact_by_predicate(self) -> dict[Expr, bool]:
        """Whether the ranges of a predicate decide it, by predicate."""
        found: dict[Expr, bool] = {}
        for each in list_range_conditions(self.config):
            found[each.predicate] = found.get(each.predicate, True) and each.is_exact
        return found

    def loop_s(self, origin: int, known: frozenset[int], target: int) -> float:
        """Estimate seconds per combination: searches in blocks, and work on the entries inside the ranges."""
        ready = [each for each in self.workload.residuals if target in each.inputs and each.inputs <= known | {target}]
        ranges = [each for each in ready if each.predicate in self._exact_by_predicate]
        if not ranges:
            return super().loop_s(origin, known, target)
        share = math.prod(each.share.value for each in ranges)
        inside = self.candidates(origin, known, target) * share
        checks_s = sum(
            each.check_s(self.profile) for each in ready if not self._exact_by_predicate.get(each.predicate, False)
        )
        weights = self.profile.runs
        searched = weights.lookup_s * self._panes(target) * (1 + _SEARCHED_BLOCKS)
        return searched + inside * (_TESTED_PER_ENTRY * weights.compare_s + self.profile.match_s + checks_s)

    def upkeep_costs(self) -> list[OperatorCost]:
        """Return the cost of building sorted runs: that of runs, and a sort by value."""
        costs = []
        for each in super().upkeep_costs():
            is_store = each.name.startswith("store ")
            seconds = each.cpu_per_s * (1.0 + _SORTS_PER_UPDATE) if is_store else each.cpu_per_s
            if is_store:
                seconds += _BATCHES_PER_SORT * self.profile.probe_batch_s / self.batches.batch_s
            costs.append(replace(each, name=each.name.replace("as runs", "as sorted runs"), cpu_per_s=seconds))
        return costs

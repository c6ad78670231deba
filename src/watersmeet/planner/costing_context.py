"""Everything that plans are costed with, on the rows that remain if shares of the streams are kept.

If the share x of a stream is kept, its rate and the rows in its time windows are multiplied by x, while its ROWS
windows stay full. A drop box itself costs one test per arriving row.

References: Ayad, Naughton, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from watersmeet.algebra.plan import Plan
from watersmeet.operators.shed.sampling import DropBox
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.cost_of_spark import Shuffle, add_spark_cost
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import Budget, CostedPlan, OperatorCost
from watersmeet.planner.workload import InputEstimate, Workload
from watersmeet.stats.stream_stats import Estimate, derive


@dataclass(frozen=True, slots=True)
class CostingContext:
    """Everything that plans are costed with: the join, its workload, the machine profile, the budget and the engine."""

    config: JoinConfig
    workload: Workload
    profile: Profile
    budget: Budget
    engine: str = "embedded"
    operator: Callable[[Workload, Plan], CostedPlan] | None = None  # costs the operator on a workload; None: the join
    shuffle: Shuffle | None = None  # on Spark: rows sent to the buckets, with their copies

    def cost(self, plan: Plan, keep: Mapping[str, float]) -> CostedPlan:
        """Cost a plan with the given shares kept, by stream name; streams that are not named are kept whole."""
        remaining = scale_rates(self.config, self.workload, keep)
        found = self.cost_on(remaining, plan)
        boxes = [
            OperatorCost(f"shed from {name}", rate * self.profile.select_s, rate)
            for name, rate in self.rates.items()
            if keep.get(name, 1.0) < 1
        ]
        return CostedPlan(found.plan, replace(found.cost, operators=(*boxes, *found.cost.operators)))

    def cost_on(self, remaining: Workload, plan: Plan) -> CostedPlan:
        """Cost a plan without its drop boxes on the remaining workload."""
        bare = replace(plan, drop=())
        found = (
            cost_plan(self.config, remaining, self.profile, bare)
            if self.operator is None
            else self.operator(remaining, bare)
        )
        return self.add_engine_cost(remaining, found)

    def add_engine_cost(self, remaining: Workload, found: CostedPlan) -> CostedPlan:
        """Add the cost of the engine to a plan, for the remaining workload."""
        return (
            add_spark_cost(self.config, remaining, self.profile, found, self.workload, self.shuffle)
            if self.engine == "spark"
            else found
        )

    def cost_pinned(self, plan: Plan, boxes: Mapping[str, DropBox]) -> CostedPlan:
        """Cost a plan with its own drop boxes."""
        found = self.cost(plan, {name: box.keep for name, box in boxes.items()})
        return CostedPlan(replace(found.plan, drop=plan.drop, drop_seed=plan.drop_seed), found.cost)

    def load_share(self, plan: Plan, keep: Mapping[str, float]) -> float:
        """Return the share of the scarcer resource that a plan uses with the given shares kept."""
        return self.budget.load(self.cost(plan, keep).cost)

    @property
    def rates(self) -> dict[str, float]:
        """Rows per second of each stream as they arrive, by stream name."""
        return {self.config.inputs[i].name: self.workload.inputs[i].rows_per_s.value for i in self.config.stream_inputs}

    @property
    def has_only_rows_windows(self) -> dict[str, bool]:
        """Whether a stream is read through ROWS windows only, by stream name."""
        windows = [
            (self.config.inputs[i].name, self.config.inputs[i].row_limit is not None) for i in self.config.stream_inputs
        ]
        return {name: all(rows for each, rows in windows if each == name) for name, _ in windows}


def scale_rates(config: JoinConfig, workload: Workload, keep: Mapping[str, float]) -> Workload:
    """Return the workload with a share of each stream kept, by stream name."""
    inputs = tuple(
        _scale_input(each, keep.get(source.name, 1.0), counted=source.row_limit is not None)
        if source.is_stream
        else each
        for source, each in zip(config.inputs, workload.inputs, strict=True)
    )
    return replace(workload, inputs=inputs)


def _scale_input(each: InputEstimate, share: float, *, counted: bool) -> InputEstimate:
    if share == 1:
        return each

    def part(estimate: Estimate) -> Estimate:
        return derive(estimate.value * share, estimate)

    held = each.held_rows if counted else part(each.held_rows)
    return replace(each, rows_per_s=part(each.rows_per_s), kept_per_s=part(each.kept_per_s), held_rows=held)

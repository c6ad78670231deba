"""Cost of a join of two streams that gives each direction its own share of probes and window rows.

The join runs as two directed joins over the same batches (`operators.shed.allocation`). Each is costed as any other
join: its probing rows are kept by the probe share, and its stored rows by the window share. So μ, the probes per second
that a machine can afford, follows from the processors and the profile.

References: Kang, Naughton, Viglas, section 5.2, eq. 12.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from watersmeet.algebra.expressions import Column
from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.operators.shed.allocation import PROBES, STORED, build_directed_queries, shift_filters
from watersmeet.operators.shed.sampling import RoleShares, build_role_samplers
from watersmeet.operators.window_join.config import JoinConfig, build_join_config
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.costing_context import CostingContext, scale_rates
from watersmeet.planner.plan_cost import CostedPlan, OperatorCost, PlanCost
from watersmeet.planner.samples import Samples
from watersmeet.planner.workload import FilterEstimate, InputEstimate, Workload, length_to_seconds
from watersmeet.stats.stream_stats import Estimate, Provenance, derive

#: Shares of the first stream and of the second.
PairShares = tuple[RoleShares, RoleShares]


@dataclass(frozen=True)
class AllocationCosts:
    """Costs of plans of one query with probes and windows divided between its two streams."""

    bound: BoundQuery
    context: CostingContext

    @cached_property
    def configs(self) -> tuple[JoinConfig, ...]:
        """The directed joins: the first stream probes, then the second."""
        return tuple(build_join_config(each, Plan()) for each in build_directed_queries(self.bound))

    def cost_pinned(self, plan: Plan) -> CostedPlan:
        """Cost a plan with its own shares."""
        a, b = (RoleShares(each.probe.keep, each.window.keep) for each in build_role_samplers(self.bound, plan))
        found = self.cost(plan, (a, b))
        return CostedPlan(replace(plan, orders=found.plan.orders or plan.orders), found.cost)

    def cost(self, plan: Plan, shares: PairShares) -> CostedPlan:
        """Cost a plan with the given shares."""
        profile, costs = self.context.profile, list[PlanCost]()
        bare = replace(plan, drop=(), probe=(), window=())
        full = bare
        probers = [prober for prober in (0, 1) if not self._is_unused(prober, shares)]
        for prober in probers:
            config = self.configs[prober]
            workload = self._direct_workload(config, prober, shares)
            found = cost_plan(config, workload, profile, shift_filters(bare))
            full = replace(found.plan, filters=plan.filters)
            costs.append(found.cost)
        names = [each.alias for each in self.bound.sources]
        operators = [
            OperatorCost(f"draw roles of {name}", 2 * rate * profile.select_s, rate)
            for name, rate in self.context.rates.items()
        ]
        for prober, cost in zip(probers, costs, strict=True):
            start = f"{names[prober]} probes {names[1 - prober]}: "
            operators += [replace(each, name=start + each.name) for each in cost.operators]
        comparisons = [cost.comparisons_per_s for cost in costs if cost.comparisons_per_s is not None]
        total = PlanCost(
            tuple(operators),
            sum(cost.state_rows for cost in costs),
            sum(cost.state_bytes for cost in costs),
            sum(cost.rows_out_per_s for cost in costs),
            comparisons_per_s=sum(comparisons) if comparisons else None,
            memory=tuple(part for cost in costs for part in cost.memory if part.size_bytes),
        )
        keep = {each.schema.name: self.arriving_share(i, shares[i]) for i, each in enumerate(self.bound.sources)}
        remaining = scale_rates(self.context.config, self.context.workload, keep)
        return self.context.add_engine_cost(remaining, CostedPlan(full, total))

    def outputs_per_s(self, plan: Plan) -> tuple[float, float]:
        """Return the output of each direction if nothing is shed."""
        whole = RoleShares()
        first, second = (
            cost_plan(
                config, self._direct_workload(config, prober, (whole, whole)), self.context.profile, shift_filters(plan)
            ).cost.rows_out_per_s
            for prober, config in enumerate(self.configs)
        )
        return first, second

    def _is_unused(self, prober: int, shares: PairShares) -> bool:
        """Return whether a direction is left out: it keeps no pair, and no ROWS window counts its rows."""
        counts = any(each.row_limit is not None for each in self.context.config.inputs)
        return not counts and not shares[prober].probe * shares[1 - prober].window

    def arriving_share(self, number: int, shares: RoleShares) -> float:
        """Return the share of a stream's rows that reach the join: those with a role, or all of a ROWS window."""
        if self.context.config.inputs[number].row_limit is not None:
            return 1.0
        return shares.kept_share

    def _direct_workload(self, config: JoinConfig, prober: int, shares: PairShares) -> Workload:
        workload = self.context.workload
        inputs = tuple(
            self._direct_input(config, number, each, shares[number], is_prober=number == prober)
            for number, each in enumerate(workload.inputs)
        )
        gaps_us = tuple(tuple(max(gap, 0) for gap in row) for row in config.bounds.later_by_us)
        # The flag is a predicate of its own, so the places of measured predicates no longer fit.
        unplaced = {number: replace(each, passed=()) for number, each in workload.samples.by_input.items()}
        samples = Samples(unplaced)
        return replace(workload, inputs=inputs, gaps_us=gaps_us, samples=samples)

    def _direct_input(
        self, config: JoinConfig, number: int, each: InputEstimate, shares: RoleShares, *, is_prober: bool
    ) -> InputEstimate:
        """Return the estimate of an input in one direction. Rows that probe are not stored."""
        share = shares.probe if is_prober else shares.window
        arriving = 1.0 if self.context.config.inputs[number].row_limit is not None else share
        flag = FilterEstimate(
            Column(PROBES if is_prober else STORED, each.alias),
            Estimate(share / arriving if arriving else 1.0, Provenance.DERIVED, "share of the plan"),
        )
        kept = derive(each.kept_per_s.value * share, each.kept_per_s)
        longest_s = length_to_seconds(max(config.bounds.later_by_us[number][1 - number], 0))
        held = min(each.held_rows.value, each.kept_per_s.value * longest_s) * share
        return replace(
            each,
            rows_per_s=derive(each.rows_per_s.value * arriving, each.rows_per_s),
            kept_per_s=kept,
            held_rows=derive(held, each.held_rows),
            filters=(flag, *each.filters),
        )

"""Overload: the plan to run if no plan keeps up, the rows to shed, and the share of output that remains.

Rows are dropped at the sources only. If the share x of a stream is kept, its rate and the rows in its time windows are
multiplied by x, while its ROWS windows stay full. So if all windows are ROWS windows, output and cost are linear in the
shares, and the best shares solve the paper's continuous knapsack. With time windows, shares multiply. Then hill
climbing in small steps finds the best point, and each step is a knapsack of the slopes (`models.ayad_drops`). The
result is the global optimum if all windows are time windows. If windows are mixed, it is the best result from both
starting points. A drop box itself costs one test per arriving row.

In the paper's model ROWS windows are full and stay full. Here they fill from the kept rows, so a stream with a ROWS
window is never dropped completely (`MIN_ROWS_WINDOW_SHARE`).

The cheapest plan does not always have the highest output when it is approximated. So plans are searched together with
their drop boxes: the cheapest ones at each of a few scalings of the rates.

This module also lists the remedies for a query that does not keep up: a larger machine, shorter windows, or shedding.

References: Ayad, Naughton, sections 4 and 5; Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import PlanError, listing
from watersmeet.operators.shed.sampling import DropBox
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.planner.cost_of_spark import Shuffle, add_spark_cost
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.models.ayad_drops import (
    DEFAULT_POLICY,
    LAST_STEP,
    KnapsackItem,
    Shares,
    SheddingPolicy,
    climb_shares,
    continuous_knapsack,
    shrink_to_load,
)
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import Budget, CostedPlan, OperatorCost, PlanCost
from watersmeet.planner.workload import InputEstimate, Workload
from watersmeet.stats.stream_stats import Estimate, derive
from watersmeet.units import format_bytes, format_cores, format_percent

#: Plans are compared with all streams scaled by each of these shares, and with each stream alone kept whole.
SCALINGS = (1.0, 0.3, 0.05)
#: Number of cheapest plans per scaling that get drop boxes.
PLANS_PER_SCALING = 2
#: Number of plans with the highest output after coarse steps that get fine steps.
FINALISTS = 2
_COARSE_STEP = 0.1
#: With more streams, only the cheapest plan gets drop boxes, with the probe order that is best at scaled rates, and in
#: coarse steps. Each step takes one prediction per stream, and a prediction takes longer the more streams there are.
MAX_SEARCHED_STREAMS = 5

#: Minimum share to keep of a stream with a ROWS window. If all rows were dropped, its window would never fill, or would
#: hold the same rows forever.
MIN_ROWS_WINDOW_SHARE = 0.01

#: Step of reported drop rates, which are always rounded towards dropping more.
_SHARE_STEP = 1e-4
#: Minimum share in a cost estimate, which must not be zero.
_MIN_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class Approximation:
    """A plan with its drop boxes, its cost and output with them, and the output without any drops."""

    costed: CostedPlan
    keep: tuple[tuple[str, float], ...]  # by stream name
    whole_answer_per_s: float

    @property
    def plan(self) -> Plan:
        """The plan with its drop rates."""
        return self.costed.plan

    @property
    def share_of_output(self) -> float:
        """Share of the full output that remains."""
        return self.costed.cost.answer_per_s / self.whole_answer_per_s if self.whole_answer_per_s else 1.0


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
    return replace(workload, inputs=inputs, _matches={}, _reach={}, _key_shares={})


def find_approximation(
    context: CostingContext, plans: Sequence[Plan], policy: SheddingPolicy = DEFAULT_POLICY, seed: int = 0
) -> Approximation:
    """Find the plan and drop rates with the highest output within the budget; on a tie, the cheaper one.

    Raise `PlanError` if no plan keeps up even with the minimum rates of the policy.
    """
    least = minimum_shares(context, policy)
    lowest = {name: max(share, _MIN_SHARE) for name, share in least.items()}
    has_few_streams = len(context.rates) <= MAX_SEARCHED_STREAMS
    tried = [
        plan
        for plan in (
            _list_cheapest_plans(context, plans) if has_few_streams else _plan_for_scaled_rates(context, plans)
        )
        if context.load_share(plan, lowest) <= 1
    ]
    if not tried:
        raise PlanError(
            "no plan keeps up even with the least rates of the policy", hint=_describe_shortfall(context, plans, least)
        )
    rough = {plan: find_best_shares(context, plan, least, policy, _COARSE_STEP) for plan in tried}
    finalists = sorted(tried, key=lambda plan: -context.cost(plan, rough[plan]).cost.answer_per_s)[:FINALISTS]
    found = [
        (plan, find_best_shares(context, plan, least, policy) if has_few_streams else rough[plan]) for plan in finalists
    ]
    costed = [(context.cost(plan, keep), keep) for plan, keep in found]
    most = max(each.cost.answer_per_s for each, _ in costed)
    near = [pair for pair in costed if pair[0].cost.answer_per_s >= most * (1 - 1e-9)]
    best, keep = min(near, key=lambda pair: pair[0].cost.cpu_per_s)
    whole = context.cost(best.plan, {}).cost.answer_per_s
    drop = tuple((name, 1 - share) for name, share in keep.items() if share < 1)
    return Approximation(
        CostedPlan(replace(best.plan, drop=drop, drop_seed=seed), best.cost), tuple(keep.items()), whole
    )


def find_best_shares(
    context: CostingContext,
    plan: Plan,
    least: Mapping[str, float],
    policy: SheddingPolicy = DEFAULT_POLICY,
    last_step: float = LAST_STEP,
) -> Shares:
    """Find the kept shares with which a plan has the highest output within the budget."""
    counted = context.has_only_rows_windows
    if policy.weights and any(counted.values()) and not all(counted.values()):
        raise PlanError("weights of streams are not supported where ROWS and time windows are mixed")

    costs: dict[tuple[float, ...], PlanCost] = {}

    def cost(keep: Shares) -> PlanCost:
        shares = tuple(keep.values())
        return costs.get(shares) or costs.setdefault(shares, context.cost(plan, keep).cost)

    def output(keep: Shares) -> float:
        return cost(keep).answer_per_s

    def load(keep: Shares) -> float:
        return context.budget.load(cost(keep))

    found: list[Shares] = []
    if any(counted.values()):
        found.append(_solve_knapsack(context, plan, least, policy))
    if not policy.weights or not any(counted.values()):
        found += [climb_shares(output, load, least, start, last_step) for start in ({}, *found)]
    best = max(found, key=lambda keep: output(keep) if not policy.weights else 0.0)
    return {name: _round_share(share, least[name]) for name, share in best.items()}


def find_window_scale(context: CostingContext, plan: Plan) -> float | None:
    """Find the largest factor on all window lengths for which the plan keeps up; None if no window is short enough."""
    if context.budget.load(_cost_with_scaled_windows(context, plan, 1e-6)) > 1:
        return None
    fits, too_long = 1e-6, 1.0
    for _ in range(30):
        middle = (fits * too_long) ** 0.5
        fits, too_long = (
            (middle, too_long)
            if context.budget.load(_cost_with_scaled_windows(context, plan, middle)) <= 1
            else (fits, middle)
        )
    return fits


def _solve_knapsack(context: CostingContext, plan: Plan, least: Mapping[str, float], policy: SheddingPolicy) -> Shares:
    """Return the kept shares that solve a continuous knapsack.

    The item of a stream has the gain in output and in load when this stream alone is raised from its minimum share to
    1. The solution is exact if output and load are linear in the shares.
    """
    lowest = {name: max(share, _MIN_SHARE) for name, share in least.items()}
    base = context.cost(plan, lowest).cost
    items = []
    for name in lowest:
        raised = context.cost(plan, {**lowest, name: 1.0}).cost
        gain = max(raised.answer_per_s - base.answer_per_s, 0.0) * policy.weights.get(name, 1.0)
        items.append(KnapsackItem(gain, max(context.budget.load(raised) - context.budget.load(base), 0.0)))
    taken = continuous_knapsack(items, max(1 - context.budget.load(base), 0.0))
    shares = {name: share + part * (1 - share) for (name, share), part in zip(lowest.items(), taken, strict=True)}
    return shrink_to_load(lambda keep: context.load_share(plan, keep), lowest, shares)


def _list_cheapest_plans(context: CostingContext, plans: Sequence[Plan]) -> list[Plan]:
    """List the cheapest plans at each scaling of the rates, without duplicates."""
    open_plans = dict.fromkeys(replace(plan, drop=()) for plan in plans)
    everything = [dict.fromkeys(context.rates, share) for share in SCALINGS]
    favoured = [
        {other: 1.0 if other == name else MIN_ROWS_WINDOW_SHARE for other in context.rates} for name in context.rates
    ]
    chosen: dict[Plan, None] = {}
    for keep in (*everything, *favoured):
        by_load = sorted(open_plans, key=lambda plan: context.load_share(plan, keep))
        chosen.update(dict.fromkeys(by_load[:PLANS_PER_SCALING]))
    return list(chosen)


def _plan_for_scaled_rates(context: CostingContext, plans: Sequence[Plan]) -> list[Plan]:
    """Return the cheapest plan at a medium scaling, with the probe orders that are best there."""
    keep = dict.fromkeys(context.rates, SCALINGS[1])
    costs = [context.cost(replace(plan, drop=()), keep) for plan in plans]
    return [min(costs, key=lambda each: context.budget.load(each.cost)).plan]


def minimum_shares(context: CostingContext, policy: SheddingPolicy) -> Shares:
    """Return the minimum share to keep of each stream, from the policy and from `MIN_ROWS_WINDOW_SHARE`."""
    rates = context.rates
    if unknown := sorted({*policy.least_rows_per_s, *policy.weights} - set(rates)):
        raise PlanError(
            f"the shedding policy names {listing(unknown)}, but the query has no such stream",
            hint=f"streams: {listing(list(rates))}",
        )
    for name, rate in policy.least_rows_per_s.items():
        if rate > rates[name]:
            raise PlanError(f'the policy keeps {rate:g} rows/s of "{name}", but only {rates[name]:g} rows/s arrive')
    floor = {name: MIN_ROWS_WINDOW_SHARE if counted else 0.0 for name, counted in context.has_only_rows_windows.items()}
    return {
        name: max(policy.least_rows_per_s.get(name, 0.0) / rate, floor[name]) if rate else 0.0
        for name, rate in rates.items()
    }


def _describe_shortfall(context: CostingContext, plans: Sequence[Plan], least: Mapping[str, float]) -> str:
    costs = [context.cost(plan, {name: max(share, _MIN_SHARE) for name, share in least.items()}).cost for plan in plans]
    nearest = min(costs, key=context.budget.load)
    full = " ROWS windows stay full however much is dropped." if any(context.has_only_rows_windows.values()) else ""
    return f"{context.budget.shortfall(nearest)}.{full}"


def _scale_input(each: InputEstimate, share: float, *, counted: bool) -> InputEstimate:
    if share == 1:
        return each

    def part(estimate: Estimate) -> Estimate:
        return derive(estimate.value * share, estimate)

    held = each.held_rows if counted else part(each.held_rows)
    return replace(each, rows_per_s=part(each.rows_per_s), kept_per_s=part(each.kept_per_s), held_rows=held)


def _cost_with_scaled_windows(context: CostingContext, plan: Plan, scale: float) -> PlanCost:
    inputs = tuple(
        replace(each, held_rows=derive(each.held_rows.value * scale, each.held_rows)) if source.is_stream else each
        for source, each in zip(context.config.inputs, context.workload.inputs, strict=True)
    )
    gaps = tuple(
        tuple(int(gap * scale) if gap < FOREVER_US else gap for gap in row) for row in context.workload.gaps_us
    )
    shorter = replace(context.workload, inputs=inputs, gaps_us=gaps, _matches={}, _reach={})
    return context.cost_on(shorter, plan).cost


def _round_share(share: float, least: float) -> float:
    """Round a share down to a whole number of steps, but not below the minimum, so that it still fits the budget."""
    return 1.0 if share >= 1 else max(least, int(share / _SHARE_STEP) * _SHARE_STEP)


@dataclass(frozen=True, slots=True)
class Remedies:
    """Changes that each make the query feasible on their own; None if a change cannot, or is not needed."""

    processors: float | None
    memory_bytes: float | None
    window_scale: float | None
    approximation: Approximation | None
    refusal: str | None = None  # why there is no approximation

    def describe(self) -> Iterator[str]:
        """Yield one line per remedy."""
        if self.processors is not None or self.memory_bytes is not None:
            cores = [] if self.processors is None else [format_cores(self.processors)]
            memory = [] if self.memory_bytes is None else [f"{format_bytes(self.memory_bytes)} of memory"]
            yield f"a machine with {' and '.join([*cores, *memory])}"
        if self.window_scale is not None:
            yield f"windows shortened to {format_percent(self.window_scale)} of their length"
        if self.approximation is not None:
            yield describe_drops(self.approximation)
        elif self.refusal is not None:
            yield f"dropping rows is not enough: {self.refusal}"

    def to_dict(self) -> dict[str, Any]:
        """Return the remedies as plain values."""
        found = self.approximation
        return {
            "processors": self.processors,
            "memory_bytes": self.memory_bytes,
            "window_scale": self.window_scale,
            "approximation": None
            if found is None
            else {
                "plan": found.plan.to_dict(),
                "keep": dict(found.keep),
                "share_of_output": found.share_of_output,
                "rows_out_per_s": found.costed.cost.rows_out_per_s,
                "cpu_per_s": found.costed.cost.cpu_per_s,
                "state_bytes": found.costed.cost.state_bytes,
            },
        }


def find_join_remedies(
    context: CostingContext, cost: PlanCost, plan: Plan, plans: Sequence[Plan], policy: SheddingPolicy = DEFAULT_POLICY
) -> Remedies:
    """Find remedies for a plan that costs too much; search the drop rates over all given plans."""
    return find_remedies(context, cost, plan, lambda: find_approximation(context, plans, policy))


def find_remedies(context: CostingContext, cost: PlanCost, plan: Plan, shed: Callable[[], Approximation]) -> Remedies:
    """Find remedies for a plan that costs too much; `shed` finds drop rates or raises `PlanError` with the reason."""
    budget = context.budget
    processors = cost.cpu_per_s / (1 - budget.headroom) if cost.cpu_per_s > budget.cpu_per_s else None
    memory = cost.state_bytes if budget.memory_bytes is not None and cost.state_bytes > budget.memory_bytes else None
    try:
        found, refusal = shed(), None
    except PlanError as error:
        found, refusal = None, error.hint or str(error)
    return Remedies(processors, memory, find_window_scale(context, plan), found, refusal)


def describe_drops(found: Approximation) -> str:
    """Describe the drop rates of an approximation and the output that remains."""
    drops = " and ".join(f"{format_percent(1 - share)} of {name}" for name, share in found.keep if share < 0.9995)
    output = format_percent(found.share_of_output)
    if found.costed.cost.combinations_per_s is not None:
        return f"dropping {drops}: aggregates become estimates from {output} of the combinations"
    return f"dropping {drops}, with plan {found.plan.algorithm}: keeps {output} of the output"

"""When no plan keeps up: which plan to approximate, what to drop from each stream, and what share of the answer is
left.

Rows are dropped at the sources only. A stream that is kept at the share x brings x of its rows; its time window holds x
of its rows, its ROWS window stays full. So output and cost are linear in the shares where all windows are ROWS windows,
and the best shares are the paper's continuous knapsack. With time windows shares multiply: there the best point is
climbed to by small steps, each of them a knapsack of the slopes (`cost.ayad_thinning`); it is the best of all where all
windows are time windows, and the best found from both starts where they are mixed. Dropping itself costs a look at
every row that arrives.

The paper's model has ROWS windows full and staying so. Here they fill from what is kept, so a stream with a ROWS window
is never shut off altogether (`LEAST_COUNTED`).

The plan with the least cost is not always the one that puts out most when approximated, so plans are searched with
their drop boxes: those that cost least at any of a few thinnings.

References: Ayad, Naughton, section 5; Kang, Naughton, Viglas, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US, RowsWindow
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
from watersmeet.planner.plan_cost import Budget, CostedPlan, OperatorCost, PlanCost, bytes_text
from watersmeet.planner.workload import InputEstimate, Workload
from watersmeet.stats.estimate import Estimate, derive

#: Plans are compared at these shares of everything and with each stream favoured, and so many of the cheapest at each
#: are given drop boxes.
THINNINGS = (1.0, 0.3, 0.05)
TRIED = 2
#: Of those, so many with the highest output by rough steps are looked at closely.
FINALISTS = 2
_ROUGH_STEP = 0.1
#: With more streams than this only the cheapest plan is given drop boxes, in the order of probing that is best for a
#: thinned stream, and by rough steps: each look at a setting takes as many predictions as there are streams, and each
#: of those the longer the more there are.
MOST_SEARCHED = 5

#: Of a stream with a ROWS window at least so much is kept: shut off, its window would never fill, or hold the same rows
#: for ever.
LEAST_COUNTED = 0.01

#: Drop rates are said to so many places, always rounded towards dropping more.
_PLACES = 1e-4
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class Approximation:
    """A plan with its drop boxes, what it then costs and puts out, and what would come out if nothing had to be
    dropped.
    """

    costed: CostedPlan
    keep: tuple[tuple[str, float], ...]  # by stream name
    whole_answer_per_s: float

    @property
    def plan(self) -> Plan:
        return self.costed.plan

    @property
    def share_of_output(self) -> float:
        return self.costed.cost.answer_per_s / self.whole_answer_per_s if self.whole_answer_per_s else 1.0


@dataclass(frozen=True, slots=True)
class CostingContext:
    """What is to be run, on what. With the engine "spark", what Spark takes on top counts."""

    config: JoinConfig
    workload: Workload
    profile: Profile
    budget: Budget
    engine: str = "embedded"
    operator: Callable[[Workload, Plan], CostedPlan] | None = None  # costs the operator on a workload; None: the join
    shuffle: Shuffle | None = None  # on Spark: rows that travel, with their copies

    def cost(self, plan: Plan, keep: Mapping[str, float]) -> CostedPlan:
        """The plan's cost when these shares are kept, by stream name; streams not named are kept whole."""
        left = scale_rates(self.config, self.workload, keep)
        thin = self.cost_on(left, plan)
        boxes = [
            OperatorCost(f"shed from {name}", rate * self.profile.select_s, rate)
            for name, rate in self.rates.items()
            if keep.get(name, 1.0) < 1
        ]
        return CostedPlan(thin.plan, replace(thin.cost, operators=(*boxes, *thin.cost.operators)))

    def cost_on(self, left: Workload, plan: Plan) -> CostedPlan:
        """The cost of the plan, its drop boxes aside, on the workload that is left."""
        bare = replace(plan, drop=())
        found = cost_plan(self.config, left, self.profile, bare) if self.operator is None else self.operator(left, bare)
        return self.add_engine_cost(left, found)

    def add_engine_cost(self, left: Workload, found: CostedPlan) -> CostedPlan:
        """The plan's cost with what the engine takes on top, when that much is left of the workload."""
        return (
            add_spark_cost(self.config, left, self.profile, found, self.workload, self.shuffle)
            if self.engine == "spark"
            else found
        )

    def cost_pinned(self, plan: Plan, boxes: Mapping[str, DropBox]) -> CostedPlan:
        """The plan with its own drop boxes, and what it costs with them."""
        found = self.cost(plan, {name: box.keep for name, box in boxes.items()})
        return CostedPlan(replace(found.plan, drop=plan.drop, drop_seed=plan.drop_seed), found.cost)

    def load_share(self, plan: Plan, keep: Mapping[str, float]) -> float:
        return self.budget.load(self.cost(plan, keep).cost)

    @property
    def rates(self) -> dict[str, float]:
        """Rows per second of each stream as they arrive."""
        return {
            self.config.inputs[i].name: self.workload.inputs[i].rows_per_s.value for i in self.config.stream_numbers
        }

    @property
    def has_only_rows_windows(self) -> dict[str, bool]:
        """Whether a stream is read through ROWS windows only."""
        windows = [
            (self.config.inputs[i].name, isinstance(self.config.inputs[i].window, RowsWindow))
            for i in self.config.stream_numbers
        ]
        return {name: all(rows for each, rows in windows if each == name) for name, _ in windows}


def scale_rates(config: JoinConfig, workload: Workload, keep: Mapping[str, float]) -> Workload:
    """The workload with a share of each stream kept, by stream name."""
    inputs = tuple(
        _scale_input(each, keep.get(source.name, 1.0), counted=isinstance(source.window, RowsWindow))
        if source.is_stream
        else each
        for source, each in zip(config.inputs, workload.inputs, strict=True)
    )
    return replace(workload, inputs=inputs, _matches={}, _reach={}, _key_shares={})


def find_approximation(
    now: CostingContext, plans: Sequence[Plan], policy: SheddingPolicy = DEFAULT_POLICY, seed: int = 0
) -> Approximation:
    """The plan, with its drop rates, that puts out the most within the budget; of equals the one that costs less.

    Refused where not even the least that is asked for can be kept up with.
    """
    least = minimum_shares(now, policy)
    lowest = {name: max(share, _NOTHING) for name, share in least.items()}
    few = len(now.rates) <= MOST_SEARCHED
    tried = [
        plan
        for plan in (_list_cheapest_plans(now, plans) if few else _plan_for_scaled_rates(now, plans))
        if now.load_share(plan, lowest) <= 1
    ]
    if not tried:
        raise PlanError(
            "no plan keeps up even with the least that must be kept", hint=_describe_shortfall(now, plans, least)
        )
    rough = {plan: find_best_shares(now, plan, least, policy, _ROUGH_STEP) for plan in tried}
    finalists = sorted(tried, key=lambda plan: -now.cost(plan, rough[plan]).cost.answer_per_s)[:FINALISTS]
    found = [(plan, find_best_shares(now, plan, least, policy) if few else rough[plan]) for plan in finalists]
    weighed = [(now.cost(plan, keep), keep) for plan, keep in found]
    most = max(each.cost.answer_per_s for each, _ in weighed)
    near = [pair for pair in weighed if pair[0].cost.answer_per_s >= most * (1 - 1e-9)]
    best, keep = min(near, key=lambda pair: pair[0].cost.cpu_per_s)
    whole = now.cost(best.plan, {}).cost.answer_per_s
    drop = tuple((name, 1 - share) for name, share in keep.items() if share < 1)
    return Approximation(
        CostedPlan(replace(best.plan, drop=drop, drop_seed=seed), best.cost), tuple(keep.items()), whole
    )


def find_best_shares(
    now: CostingContext,
    plan: Plan,
    least: Mapping[str, float],
    policy: SheddingPolicy = DEFAULT_POLICY,
    last_step: float = LAST_STEP,
) -> Shares:
    """The shares of the streams that let a plan put out the most within the budget."""
    counted = now.has_only_rows_windows
    if policy.weights and any(counted.values()) and not all(counted.values()):
        raise PlanError("weights of streams are not supported where ROWS and time windows are mixed")

    costs: dict[tuple[float, ...], PlanCost] = {}

    def cost(keep: Shares) -> PlanCost:
        shares = tuple(keep.values())
        return costs.get(shares) or costs.setdefault(shares, now.cost(plan, keep).cost)

    def output(keep: Shares) -> float:
        return cost(keep).answer_per_s

    def load(keep: Shares) -> float:
        return now.budget.load(cost(keep))

    found: list[Shares] = []
    if any(counted.values()):
        found.append(_solve_knapsack(now, plan, least, policy))
    if not policy.weights or not any(counted.values()):
        found += [climb_shares(output, load, least, start, last_step) for start in ({}, *found)]
    best = max(found, key=lambda keep: output(keep) if not policy.weights else 0.0)
    return {name: _round_share(share, least[name]) for name, share in best.items()}


def find_window_scale(now: CostingContext, plan: Plan) -> float | None:
    """How many times as long the windows may be for the plan to keep up, or None where no window is short enough."""
    if now.budget.load(_cost_with_scaled_windows(now, plan, 1e-6)) > 1:
        return None
    fits, too_long = 1e-6, 1.0
    for _ in range(30):
        middle = (fits * too_long) ** 0.5
        fits, too_long = (
            (middle, too_long) if now.budget.load(_cost_with_scaled_windows(now, plan, middle)) <= 1 else (fits, middle)
        )
    return fits


def _solve_knapsack(now: CostingContext, plan: Plan, least: Mapping[str, float], policy: SheddingPolicy) -> Shares:
    """What each stream adds to output and load when it alone is raised from its least; exact where both are linear in
    the shares.
    """
    lowest = {name: max(share, _NOTHING) for name, share in least.items()}
    base = now.cost(plan, lowest).cost
    items = []
    for name in lowest:
        raised = now.cost(plan, {**lowest, name: 1.0}).cost
        gain = max(raised.answer_per_s - base.answer_per_s, 0.0) * policy.weights.get(name, 1.0)
        items.append(KnapsackItem(gain, max(now.budget.load(raised) - now.budget.load(base), 0.0)))
    taken = continuous_knapsack(items, max(1 - now.budget.load(base), 0.0))
    shares = {name: share + part * (1 - share) for (name, share), part in zip(lowest.items(), taken, strict=True)}
    return shrink_to_load(lambda keep: now.load_share(plan, keep), lowest, shares)


def _list_cheapest_plans(now: CostingContext, plans: Sequence[Plan]) -> list[Plan]:
    """The cheapest plans at each thinning, each once."""
    open_plans = dict.fromkeys(replace(plan, drop=()) for plan in plans)
    everything = [dict.fromkeys(now.rates, share) for share in THINNINGS]
    favoured = [{other: 1.0 if other == name else LEAST_COUNTED for other in now.rates} for name in now.rates]
    chosen: dict[Plan, None] = {}
    for keep in (*everything, *favoured):
        chosen.update(
            dict.fromkeys(sorted(open_plans, key=lambda plan: now.load_share(plan, keep))[:TRIED])
        )  # used at once
    return list(chosen)


def _plan_for_scaled_rates(now: CostingContext, plans: Sequence[Plan]) -> list[Plan]:
    """The plan that costs least at a middle thinning, its orders fixed as they are best there."""
    keep = dict.fromkeys(now.rates, THINNINGS[1])
    costs = [now.cost(replace(plan, drop=()), keep) for plan in plans]
    return [min(costs, key=lambda each: now.budget.load(each.cost)).plan]


def minimum_shares(now: CostingContext, policy: SheddingPolicy) -> Shares:
    rates = now.rates
    if strangers := sorted({*policy.least_rows_per_s, *policy.weights} - set(rates)):
        raise PlanError(
            f"policy for {listing(strangers)}, which are no streams of the query",
            hint=f"streams: {listing(list(rates))}",
        )
    for name, rate in policy.least_rows_per_s.items():
        if rate > rates[name]:
            raise PlanError(f'"{name}" is to be kept at {rate:g} rows per second, but brings only {rates[name]:g}')
    floor = {name: LEAST_COUNTED if counted else 0.0 for name, counted in now.has_only_rows_windows.items()}
    return {
        name: max(policy.least_rows_per_s.get(name, 0.0) / rate, floor[name]) if rate else 0.0
        for name, rate in rates.items()
    }


def _describe_shortfall(now: CostingContext, plans: Sequence[Plan], least: Mapping[str, float]) -> str:
    costs = [now.cost(plan, {name: max(share, _NOTHING) for name, share in least.items()}).cost for plan in plans]
    nearest = min(costs, key=now.budget.load)
    full = " ROWS windows stay full however much is dropped." if any(now.has_only_rows_windows.values()) else ""
    return f"{now.budget.shortfall(nearest)}.{full}"


def _scale_input(each: InputEstimate, share: float, *, counted: bool) -> InputEstimate:
    if share == 1:
        return each

    def part(estimate: Estimate) -> Estimate:
        return derive(estimate.value * share, estimate)

    held = each.held_rows if counted else part(each.held_rows)
    return replace(each, rows_per_s=part(each.rows_per_s), kept_per_s=part(each.kept_per_s), held_rows=held)


def _cost_with_scaled_windows(now: CostingContext, plan: Plan, scale: float) -> PlanCost:
    inputs = tuple(
        replace(each, held_rows=derive(each.held_rows.value * scale, each.held_rows)) if source.is_stream else each
        for source, each in zip(now.config.inputs, now.workload.inputs, strict=True)
    )
    gaps = tuple(tuple(int(gap * scale) if gap < FOREVER_US else gap for gap in row) for row in now.workload.gaps_us)
    shorter = replace(now.workload, inputs=inputs, gaps_us=gaps, _matches={}, _reach={})
    return now.cost_on(shorter, plan).cost


def _round_share(share: float, least: float) -> float:
    """Down to a whole number of places, so that what is said is what is dropped and still fits; never below the least."""
    return 1.0 if share >= 1 else max(least, int(share / _PLACES) * _PLACES)


@dataclass(frozen=True, slots=True)
class Remedies:
    """Each of them alone makes the query feasible; None where it cannot, or where it is not what is short."""

    processors: float | None
    memory_bytes: float | None
    window_scale: float | None
    approximation: Approximation | None
    refusal: str | None = None  # why there is no approximation

    def describe(self) -> Iterator[str]:
        if self.processors is not None or self.memory_bytes is not None:
            needs = [f"{self.processors:.3g} processors"] if self.processors is not None else []
            yield " and ".join(
                [*needs, *([f"{bytes_text(self.memory_bytes)} of memory"] if self.memory_bytes is not None else [])]
            )
        if self.window_scale is not None:
            yield f"windows {self.window_scale:.2g} times as long"
        if self.approximation is not None:
            yield describe_drops(self.approximation)
        elif self.refusal is not None:
            yield f"dropping rows does not help: {self.refusal}"

    def to_dict(self) -> dict[str, Any]:
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
    now: CostingContext, cost: PlanCost, plan: Plan, plans: Sequence[Plan], policy: SheddingPolicy = DEFAULT_POLICY
) -> Remedies:
    """What would help a plan that costs too much; the drop boxes are searched over all the plans given."""
    return find_remedies(now, cost, plan, lambda: find_approximation(now, plans, policy))


def find_remedies(now: CostingContext, cost: PlanCost, plan: Plan, shed: Callable[[], Approximation]) -> Remedies:
    """What would help a plan that costs too much; `shed` finds the drop rates, or refuses with the reason."""
    budget = now.budget
    processors = cost.cpu_per_s / (1 - budget.headroom) if cost.cpu_per_s > budget.cpu_per_s else None
    memory = cost.state_bytes if budget.memory_bytes is not None and cost.state_bytes > budget.memory_bytes else None
    try:
        found, refusal = shed(), None
    except PlanError as error:
        found, refusal = None, error.hint or str(error)
    return Remedies(processors, memory, find_window_scale(now, plan), found, refusal)


def describe_drops(found: Approximation) -> str:
    """The drop rates of an approximation in words."""
    drops = " and ".join(f"{1 - share:.1%} of {name}" for name, share in found.keep if share < 0.9995)
    if found.costed.cost.combinations_per_s is not None:
        left = f"{found.share_of_output:.1%}" if found.share_of_output >= 0.001 else "less than 0.1%"
        return f"dropping {drops}: aggregates become estimates from {left} of the combinations"
    return f"dropping {drops}, by {found.plan.algorithm}: {found.share_of_output:.1%} of the rows out are left"

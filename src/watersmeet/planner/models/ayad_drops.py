"""Drop boxes: the share of each stream to keep if no plan keeps up, for the highest output rate.

It is enough to drop at the sources (observations 2 and 3). With count windows, output and cost are linear in the kept
shares. So the best shares solve a continuous knapsack: the streams with the most output per unit of cost are kept
first. The best plan to approximate need not be the best feasible plan, so plans are searched together with their drop
boxes.

The paper leaves out drop boxes before time windows. A time window shrinks with its stream, so shares multiply. In the
logarithms of the shares, CPU and memory are convex. With time windows only, the logarithm of the output is linear, so
there is one best point. Small steps find it, each of them a continuous knapsack over the changes of output and load
(sequential linear programming). With mixed windows the result is a local optimum.

References: Ayad, Naughton, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from watersmeet.errors import PlanError, listing
from watersmeet.planner.models.ayad import BinaryPlanCost, PlanNode, RowBudget, plan_cost, plan_text, sources_of
from watersmeet.planner.models.ayad_search import MAX_LISTED_SOURCES, JoinQuery, all_plans, best_plan
from watersmeet.planner.models.checks import check_not_negative, check_positive, check_share

#: Maximum number of sources for which all plans are tried if there are time windows. Their drop boxes take longer to
#: find.
MAX_TIMED_SOURCES = 4
#: Maximum number of sources for which the search also starts from every pair of sources, if it cannot try all plans.
MAX_PAIRED_SOURCES = 7

#: Maximum number of improvements per start, and the share that a start keeps of sources that it does not favour.
_MAX_IMPROVEMENTS, _NEGLIGIBLE_SHARE = 20, 1e-6


#: Ways to shed rows: at the sources, or by role (Kang, Naughton, Viglas).
DROP, ALLOCATE = "drop", "allocate"


@dataclass(frozen=True, slots=True)
class SheddingPolicy:
    """Requirements on shedding: a least rate per stream in rows/s, and a weight for a stream's part of the output.

    If all windows are time windows, every part shrinks by the same factor, so weights change nothing.

    `strategy` is "drop" (drop boxes at the sources), "allocate" (probes and windows are divided between two streams),
    or None: whichever keeps more output.
    """

    least_rows_per_s: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    strategy: str | None = None

    def __post_init__(self) -> None:
        if self.strategy not in (None, DROP, ALLOCATE):
            raise PlanError(
                f'there is no strategy "{self.strategy}" to shed rows', hint=f"strategies: {DROP}, {ALLOCATE}"
            )
        for name, rate in self.least_rows_per_s.items():
            check_not_negative(rate, f'the least rate of "{name}"', PlanError)
        for name, weight in self.weights.items():
            check_positive(weight, f'the weight of "{name}"', PlanError)


DEFAULT_POLICY = SheddingPolicy()


@dataclass(frozen=True, slots=True)
class ApproximatePlan:
    """A plan with its drop boxes: the share of each source that is kept, and the resulting cost and output."""

    plan: PlanNode
    kept: tuple[tuple[str, float], ...]
    cost: BinaryPlanCost

    @property
    def output_rows_per_s(self) -> float:
        """Output rate with the drop boxes."""
        return self.cost.output.rows_per_s

    @property
    def drops(self) -> bool:
        """Whether any row is dropped."""
        return any(share < 1 for _, share in self.kept)


def source_coefficients(plan: PlanNode) -> dict[str, tuple[float, float]]:
    """Return the output and the CPU of the plan with each source kept alone: the coefficients of its share.

    Both are linear in the shares, without a constant, if all windows are count windows.

    References: Ayad, Naughton, eqs. 27 and 28.
    """
    sources = sources_of(plan)
    if any(source.window_rows is None for source in sources):
        raise PlanError(
            "with time windows output is not linear in the kept shares", hint="use best_drops, which takes any window"
        )
    alone = {source.name: {other.name: float(other is source) for other in sources} for source in sources}
    costs = {name: plan_cost(plan, kept) for name, kept in alone.items()}
    return {name: (cost.output.rows_per_s, cost.cpu) for name, cost in costs.items()}


def best_drops(
    plan: PlanNode, budget: RowBudget | None = None, policy: SheddingPolicy = DEFAULT_POLICY
) -> ApproximatePlan:
    """Return the drop boxes with which a plan has the highest output within the CPU budget.

    Raise `PlanError` if even the minimum rates of the policy exceed the budget.

    >>> from watersmeet.planner.models.ayad import SideCosts, SourceNode, JoinNode
    >>> cost = SideCosts(probe_s=0.05)
    >>> plan = JoinNode(SourceNode("a", 10, window_rows=10), SourceNode("b", 30, window_rows=20), 0.5, None, cost, cost)
    >>> best_drops(plan).kept
    (('a', 1.0), ('b', 0.3333333333333333))

    References: Ayad, Naughton, eq. 29 and remarks 1 to 3 of section 5.2.
    """
    allowed, least = budget or RowBudget(), _least_shares(plan, policy)
    if not allowed.holds(plan_cost(plan, least)):
        raise PlanError(
            "the plan does not keep up even with the least rates of the policy", hint=f"the plan: {plan_text(plan)}"
        )
    timed = [source.window_rows is None for source in sources_of(plan)]
    if policy.weights and any(timed) and not all(timed):
        raise PlanError("weights of streams are not supported where count and time windows are mixed")
    shares = (
        best_time_window_shares(plan, allowed, least)
        if any(timed)
        else _knapsack_shares(plan, allowed.cpu, least, policy)
    )
    return ApproximatePlan(plan, tuple(shares.items()), plan_cost(plan, shares))


def best_approximation(
    query: JoinQuery, budget: RowBudget | None = None, policy: SheddingPolicy = DEFAULT_POLICY
) -> ApproximatePlan:
    """Return the plan with the highest output with its drop boxes; on a tie, the cheaper one.

    With few sources all plans are tried. With more, plans and drop boxes are improved in turn, from several starts: the
    cheapest plan for the kept shares, then the best drop boxes of that plan.

    References: Ayad, Naughton, section 5.2, Figure 7.
    """
    allowed = budget or RowBudget()
    timed = any(source.window_rows is None for source in query.sources)
    few = len(query.sources) <= (MAX_TIMED_SOURCES if timed else MAX_LISTED_SOURCES)
    plans = all_plans(query) if few else _list_promising_plans(query, allowed, policy)
    found = [each for plan in plans if (each := _find_drops(plan, allowed, policy)) is not None]
    if not found:
        raise PlanError("no plan has enough memory for its windows and enough CPU for the least rates of the policy")
    outputs = [_weighted_output(each, policy) for each in found]
    near = [each for each, output in zip(found, outputs, strict=True) if output >= max(outputs) * (1 - 1e-9)]
    return min(near, key=lambda each: each.cost.cpu)


def _weighted_output(found: ApproximatePlan, policy: SheddingPolicy) -> float:
    """Return the output by the stream whose rows find it, times its weight. Time windows have one part only."""
    if not policy.weights or any(source.window_rows is None for source in sources_of(found.plan)):
        return found.output_rows_per_s
    gains, kept = source_coefficients(found.plan), dict(found.kept)
    return math.fsum(gain * kept[name] * policy.weights.get(name, 1.0) for name, (gain, _) in gains.items())


def _knapsack_shares(
    plan: PlanNode, cpu: float, least: Mapping[str, float], policy: SheddingPolicy
) -> dict[str, float]:
    known = source_coefficients(plan)
    items = [
        KnapsackItem(gain * policy.weights.get(name, 1.0), cost, least[name]) for name, (gain, cost) in known.items()
    ]
    return dict(zip(known, continuous_knapsack(items, cpu), strict=True))


def _least_shares(plan: PlanNode, policy: SheddingPolicy) -> dict[str, float]:
    rates = {source.name: source.rows_per_s for source in sources_of(plan)}
    named = {*policy.least_rows_per_s, *policy.weights}
    if unknown := sorted(named - set(rates)):
        raise PlanError(
            f"the shedding policy names {listing(unknown)}, but the plan has no such source",
            hint=f"sources: {listing(list(rates))}",
        )
    for name, rate in policy.least_rows_per_s.items():
        if rate > rates[name]:
            raise PlanError(f'the policy keeps {rate:g} rows/s of "{name}", but only {rates[name]:g} rows/s arrive')
    return {name: policy.least_rows_per_s.get(name, 0.0) / rate for name, rate in rates.items()}


def _find_drops(plan: PlanNode, budget: RowBudget, policy: SheddingPolicy) -> ApproximatePlan | None:
    """Return the best drop boxes, or None if this plan cannot keep even the least rates; another plan may."""
    least = plan_cost(plan, _least_shares(plan, policy))
    return best_drops(plan, budget, policy) if budget.holds(least) else None


def _list_promising_plans(query: JoinQuery, budget: RowBudget, policy: SheddingPolicy) -> list[PlanNode]:
    """List the plans found while plans and drop boxes are improved in turn.

    The searches start with everything kept, and with one or two sources favoured.
    """
    names = [source.name for source in query.sources]
    pairs = combinations(names, 2) if len(names) <= MAX_PAIRED_SOURCES else ()
    met: dict[PlanNode, None] = {}
    for favoured in (names, *((name,) for name in names), *pairs):
        kept = {name: 1.0 if name in favoured else _NEGLIGIBLE_SHARE for name in names}
        for _ in range(_MAX_IMPROVEMENTS):
            plan = best_plan(query, budget, kept=kept).plan
            if plan in met:
                break
            met[plan] = None
            found = _find_drops(plan, budget, policy)
            kept = dict(found.kept) if found is not None else kept
    return list(met)


@dataclass(frozen=True, slots=True)
class KnapsackItem:
    """An item that gains `gain` and costs `cost` if taken whole; at least the share `least` must be taken."""

    gain: float
    cost: float
    least: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(self.gain, "the gain of an item", PlanError)
        check_not_negative(self.cost, "the cost of an item", PlanError)
        check_share(self.least, "the least share of an item", PlanError)


def continuous_knapsack(items: Sequence[KnapsackItem], capacity: float) -> tuple[float, ...]:
    """Return the shares with the highest gain within the capacity: first the least shares, then by gain per cost.

    >>> continuous_knapsack([KnapsackItem(gain=10, cost=5), KnapsackItem(gain=9, cost=3)], capacity=5)
    (0.4, 1.0)

    References: Ayad, Naughton, section 5.2, after eq. 29.
    """
    check_not_negative(capacity, "the capacity", PlanError)
    shares = [item.least for item in items]
    left = capacity - sum(item.cost * item.least for item in items)
    if left < -1e-9 * max(capacity, 1.0):
        raise PlanError(f"the least shares cost {capacity - left:g}, but the capacity is {capacity:g}")
    for number in sorted(range(len(items)), key=lambda number: -_gain_per_cost(items[number])):
        item = items[number]
        room = max(left, 0.0) / item.cost if item.cost else 1.0
        more = min(1.0 - item.least, room)
        shares[number] = item.least + more if more < 1.0 - item.least else 1.0
        left -= item.cost * more
    return tuple(shares)


def _gain_per_cost(item: KnapsackItem) -> float:
    return item.gain / item.cost if item.cost else float("inf")


Shares = dict[str, float]
#: Output, or the used share of the scarcer resource, if these shares are kept.
Measure = Callable[[Shares], float]

#: Minimum share: zero has no logarithm.
_MIN_SHARE = 1e-6
_FIRST_STEP, LAST_STEP = 0.5, 1e-4
_NUDGE = 1e-6
_NEAR = 1e-9
#: Power of a common factor on all shares that load follows before any of it is known: matches have two shares.
_USUAL_POWER = 2.0


def best_time_window_shares(plan: PlanNode, budget: RowBudget, least: Mapping[str, float]) -> Shares:
    """Return the kept shares with the highest output within the budget, which must hold the least shares.

    >>> from watersmeet.planner.models.ayad import SideCosts, SourceNode, JoinNode
    >>> cost = SideCosts(probe_s=0.05)
    >>> plan = JoinNode(SourceNode("a", 20, window_s=10), SourceNode("b", 80, window_s=10), 0.5, None, cost, cost)
    >>> {name: round(share, 4) for name, share in best_time_window_shares(plan, RowBudget(), {"a": 0, "b": 0}).items()}
    {'a': 0.5, 'b': 0.125}

    """
    minimums = {source.name: least.get(source.name, 0.0) for source in sources_of(plan)}
    return climb_shares(
        lambda shares: plan_cost(plan, shares).output.rows_per_s,
        lambda shares: budget.load(plan_cost(plan, shares)),
        minimums,
    )


def climb_shares(
    output: Measure,
    load: Measure,
    least: Mapping[str, float],
    start: Mapping[str, float] | None = None,
    last_step: float = LAST_STEP,
    first_step: float = _FIRST_STEP,
) -> Shares:
    """Climb from a start (default: everything kept) to the shares with the highest output at a load of at most 1.

    No share goes below its least.

    >>> output, load = lambda kept: kept["a"] * kept["b"], lambda kept: kept["a"] + 4 * kept["b"]
    >>> shares = climb_shares(output, load, least={"a": 0, "b": 0})
    >>> {name: round(share, 3) for name, share in shares.items()}
    {'a': 0.5, 'b': 0.125}

    """
    lowest = {name: max(share, _MIN_SHARE) for name, share in least.items()}
    initial = {name: max((start or {}).get(name, 1.0), share) for name, share in lowest.items()}
    best, step = shrink_to_load(load, lowest, initial), first_step
    while step > last_step:
        moved = _step_shares(output, load, lowest, best, step)
        if output(moved) > output(best) * (1 + 1e-12):
            best = moved
        else:
            step /= 2
    return best


def shrink_to_load(load: Measure, lowest: Mapping[str, float], shares: Shares, near: float = _NEAR) -> Shares:
    """Scale all shares down by the same factor, but none below its lowest, until the load is at most 1.

    The load ends between `1 - near` and 1, unless all shares are at their lowest or the load jumps there.
    """
    scale, reached, power = 1.0, load(shares), _USUAL_POWER
    if reached <= 1:
        return shares
    fits, too_much = min(lowest[name] / share for name, share in shares.items()), 1.0
    for attempt in range(90):
        if 1 - near <= reached <= 1 or too_much - fits <= near * too_much / 10:
            break
        # Near the limit the load is nearly a power of the scale. A jump or a bound can mislead, so halve now and then.
        guess = scale * ((1 - near / 2) / reached) ** (1 / power) if reached > 0 else 0.0
        if attempt % 4 == 3 or not fits < guess < too_much:
            guess = math.sqrt(fits * too_much)
        found = load(_scale_shares(shares, guess, lowest))
        power = _fit_power(guess / scale, found / reached) if reached > 0 else _USUAL_POWER
        scale, reached = guess, found
        fits, too_much = (scale, too_much) if reached <= 1 else (fits, scale)
    return _scale_shares(shares, fits, lowest)


def _fit_power(scaled: float, loaded: float) -> float:
    """Return the power of the scale that the load follows between two points, or the usual one if there is none.

    >>> _fit_power(0.5, 0.125), _fit_power(0.5, 1.5)
    (3.0, 2.0)
    """
    power = math.log(loaded) / math.log(scaled) if loaded > 0 and scaled != 1 else 0.0
    return power if 0.05 < power < 50 else _USUAL_POWER


def _step_shares(output: Measure, load: Measure, lowest: Shares, shares: Shares, step: float) -> Shares:
    """Return the shares after one step: the best move by the slopes, at most `step` in each logarithm."""
    below = {name: max(math.log(lowest[name] / share), -step) for name, share in shares.items()}
    above = {name: min(-math.log(share), step) for name, share in shares.items()}
    current_output, current_load = output(shares), load(shares)
    items, spare = [], 1 - current_load
    for name, share in shares.items():
        width = above[name] - below[name]
        nudged = {**shares, name: share * (1 - _NUDGE)}
        gain, cost = (current_output - output(nudged)) / _NUDGE, (current_load - load(nudged)) / _NUDGE
        items.append(KnapsackItem(max(gain, 0.0) * width, max(cost, 0.0) * width))
        spare -= max(cost, 0.0) * below[name]
    taken = continuous_knapsack(items, max(spare, 0.0))
    moves = {name: below[name] + part * (above[name] - below[name]) for name, part in zip(shares, taken, strict=True)}
    return shrink_to_load(
        load, lowest, {name: min(1.0, share * math.exp(moves[name])) for name, share in shares.items()}
    )


def _scale_shares(shares: Shares, scale: float, lowest: Mapping[str, float]) -> Shares:
    return {name: max(share * scale, lowest[name]) for name, share in shares.items()}

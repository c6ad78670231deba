"""The plan and the drop boxes with the highest output, if no plan keeps up.

Rows are dropped at the sources only. If all windows are ROWS windows, output and cost are linear in the kept shares,
and the best shares solve the paper's continuous knapsack. With time windows, shares multiply. Both are searched in the
same way (`models.share_search`), from everything kept and, with ROWS windows, from the knapsack's solution as well. The
result is the global optimum if all windows are of one kind. If windows are mixed, it is the best result of both starts.

In the paper's model ROWS windows are full and stay full. Here they fill from the kept rows, so a stream with a ROWS
window is never dropped completely (`MIN_ROWS_WINDOW_SHARE`).

The plan with the highest output under drop boxes is not always the cheapest one, nor the same tree or the same probe
order. So every plan of the search is a candidate. The orders and the tree are chosen again for the rows that remain,
and shares again for those, until neither improves. Trees are also proposed for rates at which one stream or a pair of
streams is kept whole and the others hardly at all.

References: Ayad, Naughton, sections 4 and 5, Figure 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from math import floor, log, log10

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, listing
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.planner.costing import estimate_rows_by_origin
from watersmeet.planner.costing_context import CostingContext, scale_rates
from watersmeet.planner.models.ayad_drops import (
    DEFAULT_POLICY,
    KnapsackItem,
    Shares,
    SheddingPolicy,
    continuous_knapsack,
)
from watersmeet.planner.models.share_search import MAX_ROUNDS, MeasuredShares, ShareProblem
from watersmeet.planner.plan_cost import CostedPlan, PlanCost
from watersmeet.planner.workload import Workload

#: Trees are proposed with all streams scaled by each of these shares.
SCALINGS = (1.0, 0.3, 0.05)
#: Maximum number of streams for which trees are proposed that favour pairs of streams.
MAX_PAIRED_STREAMS = 5
#: Number of plans whose shares are searched roughly: those with the highest output if all streams are scaled alike.
ROUGH_PLANS, _ROUGH_ROUNDS = 6, 2
#: Number of plans with the highest output after the rough search whose shares are searched thoroughly.
FINALISTS = 2
#: How often the orders of a plan are chosen again for the shares found, and shares again for those.
_MAX_REFITS = 4
#: Maximum number of streams for which the last steps are small. Each step takes one prediction per stream, and a
#: prediction takes longer the more streams there are.
MAX_FINE_STREAMS = 5
#: Relative gain in output that is none, and the share of the budget that a first start may leave unused.
_LEAST_GAIN, _NEAR_START = 1e-4, 3e-3

#: Minimum share to keep of a stream with a ROWS window. If all rows were dropped, its window would never fill, or would
#: hold the same rows forever.
MIN_ROWS_WINDOW_SHARE = 0.01

#: Digits of reported shares, which are always rounded towards dropping more.
_SHARE_DIGITS = 4
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


def find_approximation(
    context: CostingContext,
    plans: Sequence[Plan],
    policy: SheddingPolicy = DEFAULT_POLICY,
    seed: int = 0,
    *,
    is_pinned: bool = False,
) -> Approximation:
    """Find the plan and drop rates with the highest output within the budget; on a tie, the cheaper one.

    The orders and the tree of a plan are chosen again for the rows that remain, unless the plan is pinned. Raise
    `PlanError` if no plan keeps up even with the minimum rates of the policy.
    """
    search = _ShedSearch(context, minimum_shares(context, policy), policy)
    found = search.list_candidates(plans, is_pinned=is_pinned)
    if not found:
        raise PlanError(
            "no plan keeps up even with the least rates of the policy", hint=_describe_shortfall(search, plans)
        )
    promising = sorted(found, key=_rank_roughly)[:ROUGH_PLANS]
    rough = [search.climb(each, _ROUGH_ROUNDS) for each in promising]
    finalists = sorted(rough, key=_rank_roughly)[:FINALISTS]
    best = search.polish(_choose_best([search.improve(each) for each in finalists]))
    keep = {name: round_share(share, search.least[name]) for name, share in best.keep.items()}
    costed, whole = context.cost(best.full, keep), context.cost(best.full, {}).cost.answer_per_s
    drop = tuple((name, 1 - share) for name, share in keep.items() if share < 1)
    return Approximation(
        CostedPlan(replace(costed.plan, drop=drop, drop_seed=seed), costed.cost), tuple(keep.items()), whole
    )


def find_best_shares(
    context: CostingContext, plan: Plan, least: Mapping[str, float], policy: SheddingPolicy = DEFAULT_POLICY
) -> Shares:
    """Find the kept shares with which a plan has the highest output within the budget, which the least shares fit."""
    search = _ShedSearch(context, least, policy)
    (found,) = search.list_candidates([plan], is_pinned=True)
    best = search.polish(search.improve(found))
    return {name: round_share(share, least[name]) for name, share in best.keep.items()}


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


@dataclass(frozen=True)
class ShedCandidate:
    """A plan with open orders, the same plan with orders filled, and shares with which that one fits the budget.

    `output` is the weighted output with these shares, `cpu_per_s` the CPU that it takes.
    """

    open: Plan
    full: Plan
    keep: Shares
    output: float
    cpu_per_s: float


@dataclass(frozen=True)
class _ShedSearch:
    """Search of plans and shares for one context and policy."""

    context: CostingContext
    least: Mapping[str, float]
    policy: SheddingPolicy
    _problems: dict[Plan, ShareProblem] = field(default_factory=dict)

    @property
    def lowest(self) -> Shares:
        return {name: max(share, _MIN_SHARE) for name, share in self.least.items()}

    def list_candidates(self, plans: Sequence[Plan], *, is_pinned: bool) -> list[ShedCandidate]:
        """Return the plans that can keep up, and trees for other rates. All streams are scaled alike until they fit."""
        if is_pinned:
            opened = [(plan, plan) for plan in plans]
        else:
            opened = [(_reopen(plan), plan) for plan in (*plans, *self._list_trees(plans))]
        full = {self.context.cost(start, {}).plan: plan for plan, start in opened}
        return [
            self._candidate(plan, each, self._problem(each).fit_start({}, near=_NEAR_START))
            for each, plan in full.items()
            if self._problem(each).load(self.lowest) <= 1
        ]

    def climb(self, given: ShedCandidate, rounds: int = MAX_ROUNDS) -> ShedCandidate:
        """Search the shares of a plan with its orders as they are."""
        starts = [given.keep, *self._knapsack_starts(given.full)]
        found = [self._problem(given.full).climb(start, rounds) for start in starts]
        return max((self._candidate(given.open, given.full, keep) for keep in found), key=lambda each: each.output)

    def improve(self, given: ShedCandidate) -> ShedCandidate:
        """Search the shares of a plan, and choose its orders again for them, until neither improves."""
        best = self.climb(given)
        for _ in range(_MAX_REFITS):
            full = self.context.cost(best.open, best.keep).plan
            if full == best.full:
                break
            found = self.climb(replace(best, full=full))
            if found.output <= best.output * (1 + _LEAST_GAIN):
                break
            best = found
        return best

    def polish(self, given: ShedCandidate) -> ShedCandidate:
        """Try to keep streams whole, and search on in small steps if that takes little time."""
        if len(given.keep) > MAX_FINE_STREAMS:
            return self._candidate(given.open, given.full, self._problem(given.full).unshed_nearly_full(given.keep))
        full = self.context.cost(given.open, given.keep).plan
        full = full if self._problem(full).load(given.keep) <= 1 else given.full
        problem = self._problem(full)
        return self._candidate(given.open, full, problem.polish(problem.unshed_nearly_full(given.keep)))

    def _candidate(self, plan: Plan, full: Plan, keep: Shares) -> ShedCandidate:
        problem = self._problem(full)
        return ShedCandidate(plan, full, keep, problem.output(keep), sum(problem.evaluate(keep).cpu.values()))

    def _problem(self, plan: Plan) -> ShareProblem:
        """Return the shares of one plan as a problem. Its orders are filled, so they do not change with the shares."""
        if plan not in self._problems:
            budget = self.context.budget
            self._problems[plan] = ShareProblem(
                self.lowest, partial(self._measure, plan), budget.cpu_per_s, memory_bytes=budget.memory_bytes
            )
        return self._problems[plan]

    def _list_trees(self, plans: Sequence[Plan]) -> list[Plan]:
        """List the cheapest trees at other rates, if a plan of the search is a tree."""
        for plan in plans:
            if plan.tree is not None:
                found = {self.context.cost(_reopen(plan), keep).plan for keep in self._list_scalings()}
                return sorted(found, key=str)
        return []

    def _knapsack_starts(self, plan: Plan) -> list[Shares]:
        return [self._solve_knapsack(plan)] if self._has_rows_windows else []

    def _solve_knapsack(self, plan: Plan) -> Shares:
        """Return the kept shares that solve a continuous knapsack.

        The item of a stream has the gain in output and in load when this stream alone is raised from its minimum share
        to 1. The solution is exact if output and load are linear in the shares.
        """
        problem, lowest = self._problem(plan), self.lowest
        output, load = problem.output(lowest), problem.load(lowest)
        items = []
        for name in lowest:
            raised = {**lowest, name: 1.0}
            items.append(KnapsackItem(max(problem.output(raised) - output, 0.0), max(problem.load(raised) - load, 0.0)))
        taken = continuous_knapsack(items, max(1 - load, 0.0))
        return {name: share + part * (1 - share) for (name, share), part in zip(lowest.items(), taken, strict=True)}

    def _measure(self, plan: Plan, keep: Shares) -> MeasuredShares:
        remaining = scale_rates(self.context.config, self.context.workload, keep)
        cost = self.context.cost(plan, keep).cost
        memory: dict[str, float] = {}
        for stored in cost.memory:
            what = f"{stored.kind} {stored.source}"
            memory[what] = memory.get(what, 0.0) + stored.size_bytes
        memory["other state"] = max(cost.state_bytes - sum(memory.values()), 0.0)
        cpu: dict[str, float] = {}
        for part in cost.operators:
            cpu[part.name] = cpu.get(part.name, 0.0) + part.cpu_per_s
        return MeasuredShares(cpu, memory, self._output_parts(remaining, cost))

    def _output_parts(self, remaining: Workload, cost: PlanCost) -> dict[str, float]:
        """Return the output by the stream whose new rows find it, times its weight.

        With time windows only, as in every aggregation that sheds, all these parts shrink alike. Then weights change
        nothing.
        """
        if not self._has_rows_windows:
            return {"answer": cost.answer_per_s}
        inputs, weights = self.context.config.inputs, self.policy.weights
        found = estimate_rows_by_origin(self.context.config, remaining)
        return {inputs[i].alias: rows * weights.get(inputs[i].name, 1.0) for i, rows in found.items()}

    @property
    def _has_rows_windows(self) -> bool:
        return any(each.row_limit is not None for each in self.context.config.inputs)

    def _list_scalings(self) -> Iterator[Shares]:
        """Yield shares at which the best trees differ: all alike, and one or two streams favoured."""
        names = list(self.context.rates)
        yield from (dict.fromkeys(names, share) for share in SCALINGS)
        pairs = combinations(names, 2) if len(names) <= MAX_PAIRED_STREAMS else ()
        for favoured in (*((name,) for name in names), *pairs):
            yield {name: 1.0 if name in favoured else MIN_ROWS_WINDOW_SHARE for name in names}


def _rank_roughly(found: ShedCandidate) -> float:
    """Rank by output in steps of a hundredth, as exact as a rough search is; the first of two equal plans leads."""
    return -round(log(max(found.output, _MIN_SHARE)), 2)


def _choose_best(found: Sequence[ShedCandidate]) -> ShedCandidate:
    """Return the candidate with the highest output; of two with the same, the cheaper one."""
    most = max(each.output for each in found)
    return min((each for each in found if each.output >= most * (1 - _LEAST_GAIN)), key=lambda each: each.cpu_per_s)


def _reopen(plan: Plan) -> Plan:
    """Return a plan of the search with its orders, or its tree, open."""
    opened = replace(plan, drop=(), orders=(), tree=None)
    return replace(opened, global_order=()) if find_tactic(opened).parts.orders is not None else opened


def _describe_shortfall(search: _ShedSearch, plans: Sequence[Plan]) -> str:
    context = search.context
    nearest = min((context.cost(plan, search.lowest).cost for plan in plans), key=context.budget.load)
    full = " ROWS windows stay full however much is dropped." if any(context.has_only_rows_windows.values()) else ""
    return f"{context.budget.shortfall(nearest)}.{full}"


def round_share(share: float, least: float) -> float:
    """Round a share down to a few digits, but not below the minimum, so that it still fits the budget.

    >>> round_share(0.123456, 0.0), round_share(0.00123456, 0.0), round_share(0.5, 0.6)
    (0.1234, 0.001234, 0.6)
    """
    if share >= 1 or share <= 0:
        return max(min(share, 1.0), least)
    scale = 10.0 ** (_SHARE_DIGITS - 1 - floor(log10(share)))
    return max(least, floor(share * scale) / scale)

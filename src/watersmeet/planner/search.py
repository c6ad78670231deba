"""Plan search: rules that propose plans, size their open parts, cost them and rank them, in one visible order.

A rule is a function from the current state of the search to the next one. The driver runs the rules in order, checks
the invariants after each of them, and keeps a trace. A rule that breaks an invariant is named in the error.

The search covers the space of plans by dynamic programming. `enumerate_plans` lists that space, or a random sample of
it: every candidate with every probe order per origin. Benchmarks and tests compare these plans with the search's
choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from itertools import permutations, product
from random import Random

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InternalError, PlanError
from watersmeet.operators.window_join.config import JoinConfig, build_join_config
from watersmeet.operators.window_join.tactics.plan_defaults import fill_by_structure
from watersmeet.operators.window_join.tactics.registry import compile_join_config, find_tactic
from watersmeet.operators.window_join.tactics.tactic import GLOBAL
from watersmeet.planner.algorithms import PROPOSALS, find_algorithm
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.filling import can_run
from watersmeet.planner.lazy_intervals import set_interval
from watersmeet.planner.memory import BUCKET_BYTES, estimate_window_memory
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import Budget, CostedPlan
from watersmeet.planner.proposals import Proposal
from watersmeet.planner.workload import Workload
from watersmeet.units import format_cores


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """State of the search: the query and its workload, the proposed plans, and the plans with a cost."""

    bound: BoundQuery
    config: JoinConfig
    workload: Workload
    profile: Profile
    budget: Budget
    plans: tuple[Plan, ...] = ()
    costed: tuple[CostedPlan, ...] = ()
    trace: tuple[str, ...] = ()

    def with_plans(self, plans: list[Plan]) -> PlanSearch:
        return replace(self, plans=(*self.plans, *plans))


Rule = Callable[[PlanSearch], PlanSearch]


def _make_rule(propose: Proposal) -> Rule:
    """Return the rule that adds proposed plans, under the name of the proposal."""

    @wraps(propose)
    def add_plans(search: PlanSearch) -> PlanSearch:
        return search.with_plans(propose(search.config, search.workload, search.profile))

    return add_plans


def share_out_buckets(search: PlanSearch) -> PlanSearch:
    """If memory is limited, divide the buckets that fit among the hash indexes, in proportion to √(probes · rows).

    For a given total number of buckets, this minimizes Σ probes · rows / buckets. Here `probes` is the rate at which
    a window is probed and `rows` is its size.

    References: Golab, Özsu, section 6.3, Figure 4b.
    """
    if search.budget.memory_bytes is None:
        return search
    return replace(search, plans=tuple(_limit_buckets(search, plan) for plan in search.plans))


def shorten_intervals(search: PlanSearch) -> PlanSearch:
    """If results may wait for a while, shorten longer intervals of lazy plans to that time."""
    most_us = int(search.budget.delay_s * 1e6)
    if not most_us:
        return search
    plans = (
        set_interval(plan, most_us) if lets_results_wait(search.budget, search.workload, plan) else plan
        for plan in search.plans
    )
    return replace(search, plans=tuple(plans))


def drop_what_cannot_run(search: PlanSearch) -> PlanSearch:
    """Drop plans that their algorithm refuses.

    Orders are still open, so one configuration serves all plans of an algorithm.
    """
    configs = _configs_by_kernel_thetas(search.bound)
    plans = (
        plan
        for plan in dict.fromkeys(search.plans)
        if _can_run(configs, fill_by_structure(search.config, plan, find_tactic(plan).parts))
    )
    return replace(search, plans=tuple(plans))


def predict_costs(search: PlanSearch) -> PlanSearch:
    """Cost each plan with the cheapest order for each origin. Drop plans that their algorithm then refuses."""
    configs = _configs_by_kernel_thetas(search.bound)
    found = (cost_plan(search.config, search.workload, search.profile, plan) for plan in search.plans)
    return replace(search, costed=tuple(each for each in found if _can_run(configs, each.plan)))


def cheapest_first(search: PlanSearch) -> PlanSearch:
    """Rank by CPU or by memory, as the budget requests; the other resource breaks ties.

    Plans that do not fit the budget come after those that do, and lazy plans that let results wait too long come last.
    """

    def rank(each: CostedPlan) -> tuple[bool, bool, float, float]:
        waits_too_long = lets_results_wait(search.budget, search.workload, each.plan)
        is_short = search.budget.shortfall(each.cost) is not None
        return waits_too_long, is_short, *each.cost.rank(search.budget.objective)

    return replace(search, costed=tuple(sorted(search.costed, key=rank)))


def lets_results_wait(budget: Budget, workload: Workload, plan: Plan) -> bool:
    """Return whether a lazy plan lets the results of an endless stream wait for longer than the budget allows.

    The results of a finite input are complete when it ends, whatever the instants.
    """
    return math.isinf(workload.arrivals.horizon_s) and plan.evaluate_us > budget.delay_s * 1e6


PROPOSING: tuple[Rule, ...] = tuple(_make_rule(propose) for propose in PROPOSALS)
RULES: tuple[Rule, ...] = (
    *PROPOSING,
    share_out_buckets,
    shorten_intervals,
    drop_what_cannot_run,
    predict_costs,
    cheapest_first,
)


def search_plans(
    bound: BoundQuery,
    config: JoinConfig,
    workload: Workload,
    profile: Profile,
    budget: Budget | None = None,
    rules: tuple[Rule, ...] = RULES,
) -> PlanSearch:
    """Run all rules in order. Raise `InternalError` with the name of a rule that breaks an invariant."""
    search = PlanSearch(bound, config, workload, profile, budget or Budget())
    for rule in rules:
        after = rule(search)
        broken = _find_violation(search, after)
        if broken:
            raise InternalError(f'rule "{rule.__name__}" of the planner {broken}')
        search = replace(after, trace=(*search.trace, _describe_rule(rule, search, after)))
    return search


def rank_plans(
    bound: BoundQuery, config: JoinConfig, workload: Workload, profile: Profile, budget: Budget | None = None
) -> list[CostedPlan]:
    """Return all candidates with their costs, cheapest feasible plan first.

    Grouped runs are always a candidate, so there is always a plan.
    """
    return list(search_plans(bound, config, workload, profile, budget).costed)


def list_open_plans(bound: BoundQuery, config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """Return all candidates with their loop orders left open."""
    return list(search_plans(bound, config, workload, profile, rules=(*PROPOSING, drop_what_cannot_run)).plans)


def _find_violation(before: PlanSearch, after: PlanSearch) -> str | None:
    """Describe the invariant that a rule broke, or return None.

    After every rule the query is unchanged, at least one plan is left, costs are finite, and plans name real sources.
    """
    same = all(
        getattr(after, name) is getattr(before, name)
        for name in ("bound", "config", "workload", "profile", "budget", "trace")
    )
    unknown = [plan for plan in after.plans if not {alias for alias, _ in plan.indexes} <= set(after.config.aliases)]
    infinite = [
        each
        for each in after.costed
        if not (0 <= each.cost.cpu_per_s < math.inf and 0 <= each.cost.state_bytes < math.inf)
    ]
    lost = bool(before.costed) and sorted(map(id, after.costed)) != sorted(map(id, before.costed))
    violations = {
        "changed the query or its workload": not same,
        "left no plan": bool(before.plans) and not after.plans,
        f"made plans that name no source of the query: {unknown[:1]}": bool(unknown),
        f"predicted a cost that is not a finite number: {infinite[:1]}": bool(infinite),
        "lost plans that had a cost": lost,
    }
    return next((text for text, is_violated in violations.items() if is_violated), None)


def _describe_rule(rule: Rule, before: PlanSearch, after: PlanSearch) -> str:
    name = rule.__name__.replace("_", " ")
    if after.costed:
        first, cores = after.costed[0].plan.algorithm, format_cores(after.costed[0].cost.cpu_per_s)
        return f"{name}: {len(after.costed)} plans, first {first} at {cores}"
    change = len(after.plans) - len(before.plans)
    return (
        f"{name}: {f'{change:+d} plans' if change else 'resized' if after.plans != before.plans else 'nothing to do'}"
    )


def _limit_buckets(search: PlanSearch, plan: Plan) -> Plan:
    """Return the plan with as many buckets as fit into the memory, besides everything else."""
    hashed = {alias: index.size for alias, index in plan.indexes if index.kind == "hash"}
    if not hashed or search.budget.memory_bytes is None:
        return plan
    needed = sum(
        part.size_bytes
        for part in (
            *estimate_window_memory(search.config, search.workload, plan),
            *find_algorithm(plan).indexes(search.config, search.workload, plan),
        )
    )
    excess = math.ceil((needed - search.budget.memory_bytes) / BUCKET_BYTES)
    if excess <= 0:
        return plan
    most = max(len(search.config.inputs), sum(hashed.values()) - excess)
    inputs = {alias: search.workload.inputs[search.config.aliases[alias]] for alias in hashed}
    total = sum(each.kept_per_s.value for each in search.workload.inputs)
    weights = {
        alias: math.sqrt(max(1e-9, (total - each.kept_per_s.value) * each.held_rows.value))
        for alias, each in inputs.items()
    }
    scale = most / sum(weights.values())
    sizes = {alias: max(1, int(weight * scale)) for alias, weight in weights.items()}
    return replace(
        plan,
        indexes=tuple(
            (alias, Index("hash", sizes[alias]) if alias in sizes else index) for alias, index in plan.indexes
        ),
    )


def _configs_by_kernel_thetas(bound: BoundQuery) -> dict[bool, JoinConfig]:
    """Return the config of the join with comparisons outside the kernel (False) and inside it (True)."""
    return {thetas: build_join_config(bound, Plan(), kernel_thetas=thetas) for thetas in (False, True)}


def _can_run(configs: dict[bool, JoinConfig], plan: Plan) -> bool:
    return can_run(configs[find_tactic(plan).kernel_thetas], plan)


def enumerate_plans(
    bound: BoundQuery, config: JoinConfig, workload: Workload, profile: Profile, most: int, seed: int = 0
) -> list[Plan]:
    """Return all runnable plans if there are at most `most`, else `most` distinct plans drawn at random."""
    candidates = list_open_plans(bound, config, workload, profile)
    if sum(_count_orders(config, plan) for plan in candidates) <= most:
        whole = (each for plan in candidates for each in _list_orders(config, plan))
        return [plan for plan in dict.fromkeys(whole) if _is_runnable(bound, plan)]
    rng, found = Random(seed), dict[Plan, None]()
    for _ in range(20 * most):
        plan = _draw_orders(config, rng.choice(candidates), rng)
        if plan not in found and _is_runnable(bound, plan):
            found[plan] = None
        if len(found) == most:
            break
    return list(found)


def _count_orders(config: JoinConfig, plan: Plan) -> int:
    return math.prod(math.factorial(len(names)) for _, names in _list_ordered_names(config, plan))


def _list_orders(config: JoinConfig, plan: Plan) -> list[Plan]:
    """Return the plan with every choice of its orders."""
    ordered = _list_ordered_names(config, plan)
    chosen = product(*([(origin, order) for order in permutations(names)] for origin, names in ordered))
    return [_set_orders(plan, each) for each in chosen]


def _draw_orders(config: JoinConfig, plan: Plan, rng: Random) -> Plan:
    ordered = _list_ordered_names(config, plan)
    return _set_orders(plan, tuple((origin, tuple(rng.sample(names, len(names)))) for origin, names in ordered))


def _list_ordered_names(config: JoinConfig, plan: Plan) -> list[tuple[str, list[str]]]:
    """Return the names that a plan puts in order, by origin; all names under one origin for a global order."""
    parts, aliases = find_tactic(plan).parts, [each.alias for each in config.inputs]
    if plan.tree is not None or parts.orders is None:
        return []
    if parts.orders == GLOBAL:
        return [(aliases[0], aliases)]
    placed = parts.places_new_rows(plan)
    return [(aliases[i], [alias for alias in aliases if placed or alias != aliases[i]]) for i in config.stream_inputs]


def _set_orders(plan: Plan, orders: tuple[tuple[str, tuple[str, ...]], ...]) -> Plan:
    if find_tactic(plan).parts.orders == GLOBAL:
        return replace(plan, global_order=orders[0][1])
    return replace(plan, orders=orders)


def _is_runnable(bound: BoundQuery, plan: Plan) -> bool:
    try:
        compile_join_config(bound, plan)
    except PlanError:
        return False
    return True

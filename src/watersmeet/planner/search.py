"""The search for a plan: rules that propose plans, size what they leave open, cost them and put them in order, in one
visible order.

A rule is a function from what is known so far to more of it. The driver runs them one after the other, checks after
each that nothing is broken, and keeps a trace of what each did; a rule that breaks something is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations, product
from random import Random

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import InternalError, PlanError
from watersmeet.operators.window_join.config import JoinConfig, build_join_config
from watersmeet.operators.window_join.tactics.plan_defaults import fill_intervals
from watersmeet.operators.window_join.tactics.registry import compile_join_config, find_tactic
from watersmeet.planner.cost_of_trees import TreeModel
from watersmeet.planner.costing import cost_plan
from watersmeet.planner.filling import MOST_MIXED, build_sized_index, can_run
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import Budget, CostedPlan
from watersmeet.planner.workload import Workload

#: A hash bucket: where it begins and where it ends.
BUCKET_BYTES = 16


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """What rules work on: the query and what is known of it, the plans proposed so far, and those that have a cost."""

    bound: BoundQuery
    config: JoinConfig
    workload: Workload
    profile: Profile
    budget: Budget
    plans: tuple[Plan, ...] = ()
    costed: tuple[CostedPlan, ...] = ()
    trace: tuple[str, ...] = ()

    def with_plans(self, plans: Iterator[Plan] | list[Plan]) -> PlanSearch:
        return replace(self, plans=(*self.plans, *plans))


Rule = Callable[[PlanSearch], PlanSearch]


def grouped_runs(search: PlanSearch) -> PlanSearch:
    """The production tactic, which runs every query."""
    return search.with_plans([Plan("runs")])


def nested_loops(search: PlanSearch) -> PlanSearch:
    """Eager, and lazy with an interval a tenth of the shortest window: the first paper's joins without an index."""
    plans = [Plan("eager-nlj")] if len(search.config.inputs) > 1 else []
    return search.with_plans([*plans, *(_with_intervals(search, Plan("lazy-nlj")) if plans else ())])


def hash_joins(search: PlanSearch) -> PlanSearch:
    """As many buckets as a window has distinct keys, so that a bucket holds about one key."""
    config = search.config
    if len(config.inputs) < 2 or not any(each.keys for each in config.inputs):
        return search
    indexes = tuple((each.alias, build_sized_index("hash", search.workload, each.number)) for each in config.inputs)
    return search.with_plans(
        [Plan("eager-hash", indexes=indexes), *_with_intervals(search, Plan("lazy-hash", indexes=indexes))]
    )


def indexed_windows(search: PlanSearch) -> PlanSearch:
    """An index of any kind per window: the asymmetric joins of the third paper."""
    aliases = [each.alias for each in search.config.inputs]
    if len(aliases) < 2:
        return search
    kinds = product(("list", "hash", "btree", "ttree"), repeat=len(aliases))
    same = ((kind,) * len(aliases) for kind in ("list", "hash", "btree", "ttree"))
    plans = []
    for chosen in kinds if len(aliases) <= MOST_MIXED else same:
        indexes = [build_sized_index(kind, search.workload, i) for i, kind in enumerate(chosen)]
        plans.append(Plan("window-join", indexes=tuple(zip(aliases, indexes, strict=True))))
    return search.with_plans(plans)


def join_trees(search: PlanSearch) -> PlanSearch:
    """The best tree of two-input joins, bushy ones included; selections stand below every join."""
    if len(search.config.inputs) < 3:
        return search
    return search.with_plans([Plan("tree", tree=TreeModel(search.config, search.workload, search.profile).best_tree())])


def share_out_buckets(search: PlanSearch) -> PlanSearch:
    """Where memory is short, buckets by the square root of what probing a window costs with one: fast streams' windows
    get more.

    Σ probes · rows / buckets is least, for a given number of buckets, when buckets go by √(probes · rows).

    References: Golab, Özsu, section 6.3, Figure 4b.
    """
    if search.budget.memory_bytes is None:
        return search
    windows = sum(each.held_rows.value * each.row_bytes.value for each in search.workload.inputs)
    most = max(len(search.config.inputs), int((search.budget.memory_bytes - windows) / BUCKET_BYTES))
    return replace(search, plans=tuple(_limit_buckets(search, plan, most) for plan in search.plans))


def drop_what_cannot_run(search: PlanSearch) -> PlanSearch:
    """Drop plans that their algorithm refuses. Orders are still open, so one configuration serves all plans of an
    algorithm.
    """
    configs = _configs(search.bound)
    return replace(search, plans=tuple(plan for plan in dict.fromkeys(search.plans) if _can_run(configs, plan)))


def predict_costs(search: PlanSearch) -> PlanSearch:
    """Cost each plan with the cheapest order for each origin filled in. Drop plans that their algorithm refuses by
    those orders.
    """
    configs = _configs(search.bound)
    found = (cost_plan(search.config, search.workload, search.profile, plan) for plan in search.plans)
    return replace(search, costed=tuple(each for each in found if _can_run(configs, each.plan)))


def cheapest_first(search: PlanSearch) -> PlanSearch:
    """By CPU or by memory, as the budget asks; the other decides between equals. What does not fit the budget comes
    after what does.
    """

    def rank(each: CostedPlan) -> tuple[bool, float, float]:
        cpu, memory = each.cost.cpu_per_s, each.cost.state_bytes
        first, second = (cpu, memory) if search.budget.objective == "cpu" else (memory, cpu)
        return search.budget.shortfall(each.cost) is not None, first, second

    return replace(search, costed=tuple(sorted(search.costed, key=rank)))


PROPOSING: tuple[Rule, ...] = (grouped_runs, nested_loops, hash_joins, indexed_windows, join_trees)
RULES: tuple[Rule, ...] = (*PROPOSING, share_out_buckets, drop_what_cannot_run, predict_costs, cheapest_first)


def search_plans(
    bound: BoundQuery,
    config: JoinConfig,
    workload: Workload,
    profile: Profile,
    budget: Budget | None = None,
    rules: tuple[Rule, ...] = RULES,
) -> PlanSearch:
    """All rules, one after the other. What a rule breaks is an error that names it."""
    search = PlanSearch(bound, config, workload, profile, budget or Budget())
    for rule in rules:
        after = rule(search)
        broken = _find_violation(search, after)
        if broken:
            raise InternalError(f'rule "{rule.__name__}" of the optimizer {broken}')
        search = replace(after, trace=(*search.trace, _describe_rule(rule, search, after)))
    return search


def rank_plans(
    bound: BoundQuery, config: JoinConfig, workload: Workload, profile: Profile, budget: Budget | None = None
) -> list[CostedPlan]:
    """All candidates with their costs, cheapest feasible first. Grouped runs always are one, so there is always a plan."""
    return list(search_plans(bound, config, workload, profile, budget).costed)


def list_open_plans(bound: BoundQuery, config: JoinConfig, workload: Workload, profile: Profile) -> list[Plan]:
    """All candidates, with the orders of their loops left open."""
    return list(search_plans(bound, config, workload, profile, rules=(*PROPOSING, drop_what_cannot_run)).plans)


def _find_violation(before: PlanSearch, after: PlanSearch) -> str | None:
    """What must hold after every rule: the question stays, a way to answer it stays, costs are numbers, plans name real
    sources.
    """
    same = all(
        getattr(after, name) is getattr(before, name)
        for name in ("bound", "config", "workload", "profile", "budget", "trace")
    )
    strangers = [plan for plan in after.plans if not {alias for alias, _ in plan.indexes} <= set(after.config.aliases)]
    nonsense = [
        each
        for each in after.costed
        if not (0 <= each.cost.cpu_per_s < math.inf and 0 <= each.cost.state_bytes < math.inf)
    ]
    lost = bool(before.costed) and sorted(map(id, after.costed)) != sorted(map(id, before.costed))
    found = {
        "changed the question it is to answer": not same,
        "left no plan": bool(before.plans) and not after.plans,
        f"made plans that name no source of the query: {strangers[:1]}": bool(strangers),
        f"predicted a cost that is no number: {nonsense[:1]}": bool(nonsense),
        "lost plans that had a cost": lost,
    }
    return next((what for what, is_so in found.items() if is_so), None)


def _describe_rule(rule: Rule, before: PlanSearch, after: PlanSearch) -> str:
    name = rule.__name__.replace("_", " ")
    if after.costed:
        first = after.costed[0]
        return f"{name}: {len(after.costed)} plans, first {first.plan.algorithm} at {first.cost.cpu_per_s:.3g} s per s"
    change = len(after.plans) - len(before.plans)
    return (
        f"{name}: {f'{change:+d} plans' if change else 'resized' if after.plans != before.plans else 'nothing to do'}"
    )


def _with_intervals(search: PlanSearch, plan: Plan) -> Iterator[Plan]:
    """Yield the plan with its intervals, where there is a window in time to derive them from."""
    full = fill_intervals(search.config, plan)
    if full.evaluate_us:
        yield full


def _limit_buckets(search: PlanSearch, plan: Plan, most: int) -> Plan:
    """The plan with at most so many buckets in all."""
    hashed = {alias: index.size for alias, index in plan.indexes if index.kind == "hash"}
    if sum(hashed.values()) <= most:
        return plan
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


def _configs(bound: BoundQuery) -> dict[bool, JoinConfig]:
    """Return the meet with and without comparisons in the kernel."""
    return {thetas: build_join_config(bound, Plan(), kernel_thetas=thetas) for thetas in (False, True)}


def _can_run(configs: dict[bool, JoinConfig], plan: Plan) -> bool:
    return can_run(configs[find_tactic(plan).kernel_thetas], plan)


Orders = tuple[tuple[str, tuple[str, ...]], ...]


def enumerate_plans(
    bound: BoundQuery, config: JoinConfig, workload: Workload, profile: Profile, most: int, seed: int = 0
) -> list[Plan]:
    """All plans that can run, if there are at most so many; else so many of them, drawn at random, each once."""
    candidates = list_open_plans(bound, config, workload, profile)
    orders = math.prod(math.factorial(len(config.inputs) - 1) for _ in config.stream_numbers)
    if len(candidates) * orders <= most:
        whole = (_with_orders(plan, chosen) for plan in candidates for chosen in _list_orders(config))
        return [plan for plan in dict.fromkeys(whole) if _is_runnable(bound, plan)]
    rng, found = Random(seed), dict[Plan, None]()
    for _ in range(20 * most):
        plan = _with_orders(rng.choice(candidates), _draw_orders(config, rng))
        if plan not in found and _is_runnable(bound, plan):
            found[plan] = None
        if len(found) == most:
            break
    return list(found)


def _with_orders(plan: Plan, orders: Orders) -> Plan:
    return plan if plan.tree is not None else replace(plan, orders=orders)


def _list_orders(config: JoinConfig) -> list[Orders]:
    aliases = [each.alias for each in config.inputs]
    per_origin = [
        [(aliases[i], order) for order in permutations([alias for alias in aliases if alias != aliases[i]])]
        for i in config.stream_numbers
    ]
    return [tuple(chosen) for chosen in product(*per_origin)]


def _draw_orders(config: JoinConfig, rng: Random) -> Orders:
    aliases = [each.alias for each in config.inputs]
    others = {aliases[i]: [alias for alias in aliases if alias != aliases[i]] for i in config.stream_numbers}
    return tuple((origin, tuple(rng.sample(names, len(names)))) for origin, names in others.items())


def _is_runnable(bound: BoundQuery, plan: Plan) -> bool:
    try:
        compile_join_config(bound, plan)
    except PlanError:
        return False
    return True

"""The whole space of plans of a query: every candidate with every order per origin; all of it, or so many at random.

The search goes through it by dynamic programming; benchmarks and tests go through it one by one, to see what the search
missed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations, product
from random import Random

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.tactics.registry import settled_config
from watersmeet.planner.estimates import Workload
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.search import open_plans

Orders = tuple[tuple[str, tuple[str, ...]], ...]


def plan_space(
    bound: BoundQuery, config: MeetConfig, workload: Workload, profile: Profile, most: int, seed: int = 0
) -> list[Plan]:
    """All plans that can run, if there are at most so many; else so many of them, drawn at random, each once."""
    candidates = open_plans(bound, config, workload, profile)
    orders = math.prod(math.factorial(len(config.inputs) - 1) for _ in config.streams)
    if len(candidates) * orders <= most:
        whole = (_ordered(plan, chosen) for plan in candidates for chosen in _all_orders(config))
        return [plan for plan in dict.fromkeys(whole) if _runs(bound, plan)]
    rng, found = Random(seed), dict[Plan, None]()
    for _ in range(20 * most):
        plan = _ordered(rng.choice(candidates), _random_orders(config, rng))
        if plan not in found and _runs(bound, plan):
            found[plan] = None
        if len(found) == most:
            break
    return list(found)


def _ordered(plan: Plan, orders: Orders) -> Plan:
    return plan if plan.tree is not None else replace(plan, orders=orders)


def _all_orders(config: MeetConfig) -> list[Orders]:
    aliases = [each.alias for each in config.inputs]
    per_origin = [
        [(aliases[i], order) for order in permutations([alias for alias in aliases if alias != aliases[i]])]
        for i in config.streams
    ]
    return [tuple(chosen) for chosen in product(*per_origin)]


def _random_orders(config: MeetConfig, rng: Random) -> Orders:
    aliases = [each.alias for each in config.inputs]
    others = {aliases[i]: [alias for alias in aliases if alias != aliases[i]] for i in config.streams}
    return tuple((origin, tuple(rng.sample(names, len(names)))) for origin, names in others.items())


def _runs(bound: BoundQuery, plan: Plan) -> bool:
    try:
        settled_config(bound, plan)
    except PlanError:
        return False
    return True

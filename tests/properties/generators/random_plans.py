"""Plans that must give the same rows for a case: one plan of each algorithm, with random knobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from tests.properties.generators.cases import QueryCase
from watersmeet.algebra.plan import Index, Plan, Tree
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.tactics.registry import TACTICS, compile_join_config

PlanGenerator = Callable[[Random, str, Sequence[str]], Plan]

#: Includes intervals of which neither is a multiple of the other.
_INTERVALS_US = (1, 2, 3, 7, 1_000, 1_000_000, 10**12)


def random_plans(rng: Random, case: QueryCase) -> Iterator[Plan]:
    """Yield a random plan of each algorithm.

    If an algorithm refuses the query with that plan, yield its plainest plan; if it refuses that too, yield none.
    """
    aliases = [item.alias for item in case.items]
    # The tree comes last: with this order of random draws, the tests' seeds are known to find the mutants.
    for name in sorted(TACTICS, key="tree".__eq__):
        for plan in (
            PLAN_GENERATORS.get(name, _random_orders_plan)(rng, name, aliases),
            PLAINEST_PLANS.get(name, Plan(name)),
        ):
            if _runs(case, plan):
                yield plan
                break


def _runs(case: QueryCase, plan: Plan) -> bool:
    try:
        compile_join_config(case.bound, plan)
    except PlanError:
        return False
    return True


def _random_orders_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    """Choose a random order of the other sources for every origin."""
    return Plan(
        name, orders=tuple((origin, _shuffle_names(rng, [a for a in aliases if a != origin])) for origin in aliases)
    )


def _one_order_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    evaluate_us, expire_us = _intervals_us(rng) if rng.random() < 0.5 else (0, rng.choice((0, *_INTERVALS_US)))
    return Plan(name, global_order=_shuffle_names(rng, aliases), evaluate_us=evaluate_us, expire_us=expire_us)


def _eager_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    return Plan(name, orders=_random_orders_plan(rng, name, aliases).orders, expire_us=rng.choice((0, *_INTERVALS_US)))


def _lazy_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    """Choose a random order of all sources for every origin; the origin may be at any position."""
    evaluate_us, expire_us = _intervals_us(rng)
    orders = tuple((origin, _shuffle_names(rng, aliases)) for origin in aliases)
    return Plan(name, orders=orders, evaluate_us=evaluate_us, expire_us=expire_us)


def _with_indexes_of(*kinds: str) -> Callable[[PlanGenerator], PlanGenerator]:
    """Add an index of one of these kinds to every window."""

    def with_indexes(generate: PlanGenerator) -> PlanGenerator:
        def generate_with_indexes(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
            plan = generate(rng, name, aliases)
            indexes = tuple((alias, _random_index(rng, rng.choice(kinds))) for alias in aliases)
            return Plan(
                name, orders=plan.orders, indexes=indexes, evaluate_us=plan.evaluate_us, expire_us=plan.expire_us
            )

        return generate_with_indexes

    return with_indexes


def _hybrid_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    return _with_indexes_of("list", "hash")(rng.choice((_eager_plan, _lazy_plan)))(rng, name, aliases)


def _clean_up_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    return Plan(name, cleanup_rows=rng.choice((1, 2, 3, 10_000)))


def _hashed_clean_up_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    indexes = tuple((alias, _random_index(rng, "hash")) for alias in aliases)
    return Plan(name, indexes=indexes, cleanup_rows=rng.choice((1, 2, 3, 10_000)))


def random_tree_plan(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    """Choose any tree shape over the sources in any order."""
    parts: list[Tree] = list(_shuffle_names(rng, aliases))
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [(parts[at], parts[at + 1])]
    return Plan(name, tree=parts[0])


def _random_index(rng: Random, kind: str) -> Index:
    return Index(kind, {"list": 0, "hash": rng.choice((1, 2, 5))}.get(kind, rng.choice((2, 3, 4))))


def _intervals_us(rng: Random) -> tuple[int, int]:
    """Choose an evaluation interval, and an expiration interval that is not shorter."""
    first, second = sorted(rng.choices(_INTERVALS_US, k=2))
    return first, second


def _shuffle_names(rng: Random, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(rng.sample(names, len(names)))


#: Generators by algorithm; other algorithms have only random orders.
PLAN_GENERATORS: dict[str, PlanGenerator] = {
    "naive-nlj": _one_order_plan,
    "eager-nlj": _eager_plan,
    "lazy-nlj": _lazy_plan,
    "general-lazy-nlj": _lazy_plan,
    "eager-hash": _with_indexes_of("hash")(_eager_plan),
    "lazy-hash": _with_indexes_of("hash")(_lazy_plan),
    "hybrid-nlj-hash": _hybrid_plan,
    "window-join": _with_indexes_of("list", "hash", "btree", "ttree")(_eager_plan),
    "ripple-join": _clean_up_plan,
    "xjoin": _hashed_clean_up_plan,
    "tree": random_tree_plan,
}

#: Plans with the fewest knobs that the algorithm accepts, if it needs any.
PLAINEST_PLANS = {
    name: Plan(name, evaluate_us=2, expire_us=3) for name in ("lazy-nlj", "general-lazy-nlj", "lazy-hash")
}

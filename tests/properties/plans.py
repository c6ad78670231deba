"""Every way to run a case that must give the same rows: one plan of each algorithm, its knobs turned at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from watersmeet.algebra.plan import Index, Plan, Tree
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.tactics.registry import TACTICS, settled_config

from .cases import Case

Knobs = Callable[[Random, str, Sequence[str]], Plan]

#: Also such that neither is a multiple of the other.
_INTERVALS_US = (1, 2, 3, 7, 1_000, 1_000_000, 10**12)


def plans_of(rng: Random, case: Case) -> Iterator[Plan]:
    """One plan per algorithm; where it is refused, the algorithm's plainest plan; where that is refused too, none."""
    aliases = [item.alias for item in case.items]
    for name in TACTICS:
        for plan in (KNOBS.get(name, _orders)(rng, name, aliases), PLAINEST.get(name, Plan(name))):
            if _runs(case, plan):
                yield plan
                break


def _runs(case: Case, plan: Plan) -> bool:
    try:
        settled_config(case.bound, plan)
    except PlanError:
        return False
    return True


def _orders(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    """The other sources in any order, for every origin."""
    return Plan(name, orders=tuple((origin, _shuffled(rng, [a for a in aliases if a != origin])) for origin in aliases))


def _one_order(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    evaluate_us, expire_us = _intervals_us(rng) if rng.random() < 0.5 else (0, rng.choice((0, *_INTERVALS_US)))
    return Plan(name, global_order=_shuffled(rng, aliases), evaluate_us=evaluate_us, expire_us=expire_us)


def _eager(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    return Plan(name, orders=_orders(rng, name, aliases).orders, expire_us=rng.choice((0, *_INTERVALS_US)))


def _lazy(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    """The origin at the front, or at any loop of its order."""
    evaluate_us, expire_us = _intervals_us(rng)
    orders = tuple((origin, _shuffled(rng, aliases)) for origin in aliases)
    return Plan(name, orders=orders, evaluate_us=evaluate_us, expire_us=expire_us)


def _indexed(*kinds: str) -> Callable[[Knobs], Knobs]:
    """The knobs, with an index of one of these kinds on every window."""

    def with_indexes(knobs: Knobs) -> Knobs:
        def turned(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
            plan = knobs(rng, name, aliases)
            indexes = tuple((alias, _index(rng, rng.choice(kinds))) for alias in aliases)
            return Plan(
                name, orders=plan.orders, indexes=indexes, evaluate_us=plan.evaluate_us, expire_us=plan.expire_us
            )

        return turned

    return with_indexes


def _hybrid(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    return _indexed("list", "hash")(rng.choice((_eager, _lazy)))(rng, name, aliases)


def _cleaned(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    return Plan(name, cleanup_rows=rng.choice((1, 2, 3, 10_000)))


def _hashed_and_cleaned(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    indexes = tuple((alias, _index(rng, "hash")) for alias in aliases)
    return Plan(name, indexes=indexes, cleanup_rows=rng.choice((1, 2, 3, 10_000)))


def _tree(rng: Random, name: str, aliases: Sequence[str]) -> Plan:
    """Any shape over the sources in any order."""
    parts: list[Tree] = list(_shuffled(rng, aliases))
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [(parts[at], parts[at + 1])]
    return Plan(name, tree=parts[0])


def _index(rng: Random, kind: str) -> Index:
    return Index(kind, {"list": 0, "hash": rng.choice((1, 2, 5))}.get(kind, rng.choice((2, 3, 4))))


def _intervals_us(rng: Random) -> tuple[int, int]:
    """An evaluation interval, and an expiration interval that is no shorter."""
    first, second = sorted(rng.choices(_INTERVALS_US, k=2))
    return first, second


def _shuffled(rng: Random, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(rng.sample(names, len(names)))


#: How the knobs of an algorithm are turned; those of any other algorithm: the orders only.
KNOBS: dict[str, Knobs] = {
    "naive-nlj": _one_order,
    "eager-nlj": _eager,
    "lazy-nlj": _lazy,
    "general-lazy-nlj": _lazy,
    "eager-hash": _indexed("hash")(_eager),
    "lazy-hash": _indexed("hash")(_lazy),
    "hybrid-nlj-hash": _hybrid,
    "window-join": _indexed("list", "hash", "btree", "ttree")(_eager),
    "ripple-join": _cleaned,
    "xjoin": _hashed_and_cleaned,
    "tree": _tree,
}

#: Plans with as few knobs as the algorithm can be run with, where that is more than none.
PLAINEST = {name: Plan(name, evaluate_us=2, expire_us=3) for name in ("lazy-nlj", "general-lazy-nlj", "lazy-hash")}

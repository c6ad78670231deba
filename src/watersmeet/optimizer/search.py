"""Every way to run a query that the search knows, with its cost, cheapest first.

A source of plans is a function from a workload to plans; `PLAN_SOURCES` is the whole search space, in one visible order. A plan that its
algorithm refuses is not a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from watersmeet.algebra.plan import Index, Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.cost.profile import Profile
from watersmeet.errors import PlanError
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.operators.meet.tactics.registry import settled_config
from watersmeet.optimizer.costing import Costed, costed
from watersmeet.optimizer.estimates import Workload

PlanSource = Callable[[MeetConfig, Workload], Iterator[Plan]]

#: Combinations of indexes are tried for so many inputs at most; above, all windows share one kind.
MOST_MIXED = 4


def grouped_runs(config: MeetConfig, workload: Workload) -> Iterator[Plan]:
    yield Plan("runs")


def nested_loops(config: MeetConfig, workload: Workload) -> Iterator[Plan]:
    yield Plan("eager-nlj")


def hash_joins(config: MeetConfig, workload: Workload) -> Iterator[Plan]:
    """As many buckets as a window has distinct keys, so that a bucket holds about one key."""
    if any(each.keys for each in config.inputs):
        indexes = tuple((config.inputs[i].alias, Index("hash", _buckets(workload, i))) for i in range(len(config.inputs)))
        yield Plan("eager-hash", indexes=indexes)


def indexed_windows(config: MeetConfig, workload: Workload) -> Iterator[Plan]:
    """An index of any kind per window: the asymmetric joins of the third paper."""
    aliases = [each.alias for each in config.inputs]
    if len(aliases) < 2:
        return
    kinds = product(("list", "hash", "btree", "ttree"), repeat=len(aliases))
    same = ((kind,) * len(aliases) for kind in ("list", "hash", "btree", "ttree"))
    for chosen in kinds if len(aliases) <= MOST_MIXED else same:
        indexes = [Index(kind, _size(kind, workload, i)) for i, kind in enumerate(chosen)]
        yield Plan("window-join", indexes=tuple(zip(aliases, indexes, strict=True)))


PLAN_SOURCES: tuple[PlanSource, ...] = (grouped_runs, nested_loops, hash_joins, indexed_windows)


def candidates(bound: BoundQuery, config: MeetConfig, workload: Workload, profile: Profile) -> list[Costed]:
    """All candidates with their costs, cheapest first. Grouped runs always are one, so there is always a plan."""
    found = [
        costed(config, workload, profile, plan) for source in PLAN_SOURCES for plan in source(config, workload) if _can_run(bound, plan)
    ]
    return sorted(found, key=lambda each: each.cost.cpu_per_s)


def _can_run(bound: BoundQuery, plan: Plan) -> bool:
    try:
        settled_config(bound, plan)
    except PlanError:
        return False
    return True


def _buckets(workload: Workload, number: int) -> int:
    distinct = [each.value for each in workload.inputs[number].distinct.values()]
    return int(min(max(distinct, default=1.0), 1 << 20)) or 1


def _size(kind: str, workload: Workload, number: int) -> int:
    return {"list": 0, "hash": _buckets(workload, number), "btree": 100, "ttree": 100}[kind]

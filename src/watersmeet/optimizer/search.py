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
from watersmeet.operators.meet.config import MeetConfig, meet_config
from watersmeet.operators.meet.tactics.registry import tactic_of
from watersmeet.optimizer.costing import Costed, costed
from watersmeet.optimizer.estimates import Workload

PlanSource = Callable[[MeetConfig, Workload], Iterator[Plan]]

#: Combinations of indexes are tried for so many inputs at most; above, all windows share one kind.
MOST_MIXED = 3


def grouped_runs(config: MeetConfig, workload: Workload) -> Iterator[Plan]:
    yield Plan("runs")


def nested_loops(config: MeetConfig, workload: Workload) -> Iterator[Plan]:
    if len(config.inputs) > 1:
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
    found = [costed(config, workload, profile, plan) for plan in open_plans(bound, config, workload)]
    return sorted(found, key=lambda each: each.cost.cpu_per_s)


def open_plans(bound: BoundQuery, config: MeetConfig, workload: Workload) -> list[Plan]:
    """All candidates, with the orders of their loops left open."""
    configs = {thetas: meet_config(bound, Plan(), kernel_thetas=thetas) for thetas in (False, True)}
    plans = (plan for source in PLAN_SOURCES for plan in source(config, workload))
    return [plan for plan in plans if _can_run(configs, plan)]


def _can_run(configs: dict[bool, MeetConfig], plan: Plan) -> bool:
    """Whether the plan's algorithm accepts it. Orders are left open here, so one configuration serves all plans."""
    tactic = tactic_of(plan)
    try:
        tactic.settle(configs[tactic.kernel_thetas], plan)
    except PlanError:
        return False
    return True


def _buckets(workload: Workload, number: int) -> int:
    distinct = [each.value for each in workload.inputs[number].distinct.values()]
    return int(min(max(distinct, default=1.0), 1 << 20)) or 1


def _size(kind: str, workload: Workload, number: int) -> int:
    return {"list": 0, "hash": _buckets(workload, number), "btree": 100, "ttree": 100}[kind]

"""What a plan costs per second of stream: CPU, state, rows out. Unit-time costs, by operator, from one machine's weight factors.

A loop costs what it touches for every combination that reaches it; how many do is the same for every algorithm (`Workload.matches`). The
algorithms differ in what a loop touches: a whole window, a bucket, a path down a tree, or nothing but matches.

References: Kang, Naughton, Viglas, section 3; Golab, Özsu, section 4.2; Ayad, Naughton, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from watersmeet.algebra.plan import Index, Plan
from watersmeet.cost.profile import Profile
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.optimizer.estimates import Workload
from watersmeet.optimizer.orders import Ordered, best_order

#: A probe of grouped runs looks into about so many panes: the one just made and those behind it.
PANES_PER_PROBE = 2.0


@dataclass(frozen=True, slots=True)
class Part:
    """One operator's share of the cost, with the rows it handles per second."""

    name: str
    cpu_per_s: float
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Seconds of CPU per second of stream, by operator; bytes and rows of state; rows out per second."""

    parts: tuple[Part, ...]
    state_rows: float
    state_bytes: float
    rows_out_per_s: float

    @property
    def cpu_per_s(self) -> float:
        return sum(part.cpu_per_s for part in self.parts)


@dataclass(frozen=True, slots=True)
class Costed:
    """A plan with its predicted cost."""

    plan: Plan
    cost: PlanCost


def costed(config: MeetConfig, workload: Workload, profile: Profile, plan: Plan) -> Costed:
    """The plan, its orders filled in with the cheapest where it leaves them open, and what it costs."""
    orders = {i: _order(config, workload, profile, plan, i) for i in config.streams}
    rows_out = sum(workload.inputs[i].kept_per_s.value * _results(config, workload, i) for i in config.streams) * workload.residual.value
    parts = [*_upkeep(config, workload, profile, plan)]
    for i, ordered in orders.items():
        origin = workload.inputs[i]
        path = " → ".join(config.inputs[j].alias for j in (i, *ordered.order))
        parts.append(Part(f"probe {path}", origin.kept_per_s.value * ordered.cost, origin.kept_per_s.value))
    parts.append(Part("rows out", rows_out * profile.row_out_s, rows_out))
    state_rows = sum(each.held_rows.value for each in workload.inputs)
    state_bytes = sum(each.held_rows.value * each.row_bytes.value for each in workload.inputs)
    named = tuple((config.inputs[i].alias, tuple(config.inputs[j].alias for j in ordered.order)) for i, ordered in orders.items())
    return Costed(_with_orders(plan, named), PlanCost(tuple(parts), state_rows, state_bytes, rows_out))


def _with_orders(plan: Plan, orders: tuple[tuple[str, tuple[str, ...]], ...]) -> Plan:
    return plan if plan.global_order or plan.orders or not any(order for _, order in orders) else replace(plan, orders=orders)


def _order(config: MeetConfig, workload: Workload, profile: Profile, plan: Plan, origin: int) -> Ordered:
    """The pinned order of an origin, or the cheapest one, with its cost per row of the origin."""

    def growth(known: frozenset[int], target: int) -> float:
        return workload.matches(config, known, target)

    def loop_cost(known: frozenset[int], rows: float, target: int) -> float:
        return rows * _probe_s(config, workload, profile, plan, known, target)

    pinned = plan.order(config.inputs[origin].alias)
    if pinned is None:
        return best_order(origin, len(config.inputs), loop_cost, growth)
    order = tuple(config.aliases[name] for name in pinned if config.aliases[name] != origin)
    known, rows, cost = frozenset({origin}), 1.0, 0.0
    for target in order:
        cost += loop_cost(known, rows, target)
        rows *= growth(known, target)
        known |= {target}
    return Ordered(order, cost, exact=True)


def _probe_s(config: MeetConfig, workload: Workload, profile: Profile, plan: Plan, known: frozenset[int], target: int) -> float:
    """Seconds for one combination to find its partners in the target's window."""
    matches = workload.matches(config, known, target)
    if plan.algorithm == "runs":
        return profile.runs.lookup_s * PANES_PER_PROBE + matches * (profile.runs.compare_s + profile.match_s)
    index = plan.index(config.inputs[target].alias) or default_index(plan)
    connected = bool(config.classes.connections(target, sorted(known)))
    kind = index.kind if connected or index.kind in ("btree", "ttree") else "list"
    weights = profile.structure(kind)
    return weights.lookup_s + touched_rows(index, kind, workload.inputs[target].held_rows.value, matches) * weights.compare_s


def default_index(plan: Plan) -> Index:
    """The index of a window for which a plan names none."""
    return Index("hash", 1021) if "hash" in plan.algorithm or plan.algorithm in ("hw-join", "xjoin") else Index()


def touched_rows(index: Index, kind: str, held_rows: float, matches: float) -> float:
    """Rows one probe of a window compares: all of it, a bucket, or a path down a tree and the matches.

    >>> touched_rows(Index("hash", 5), "hash", held_rows=1000, matches=2)
    200.0
    """
    if kind == "list":
        return held_rows
    if kind == "hash":
        return max(held_rows / index.size, matches)
    return math.log2(max(held_rows, 2.0)) + matches


def _upkeep(config: MeetConfig, workload: Workload, profile: Profile, plan: Plan) -> list[Part]:
    """Rows coming in, being selected, and entering and leaving the structures they are probed by."""
    parts = []
    for i in config.streams:
        source, each = config.inputs[i], workload.inputs[i]
        parts.append(Part(f"take in {source.alias}", each.rows_per_s.value * profile.row_in_s, each.rows_per_s.value))
        if source.selection is not None:
            parts.append(Part(f"select {source.alias}", each.rows_per_s.value * profile.select_s, each.rows_per_s.value))
        if len(config.inputs) > 1:
            kind = "runs" if plan.algorithm == "runs" else (plan.index(source.alias) or default_index(plan)).kind
            passes = 1 if kind == "runs" else 2  # a run is built once and let go whole; rows enter and leave the papers' structures
            depth = math.log2(max(each.held_rows.value, 2.0)) if kind in ("btree", "ttree") else 1.0
            cpu = each.kept_per_s.value * passes * depth * profile.structure(kind).update_s
            parts.append(Part(f"keep {source.alias} as {kind}", cpu, each.kept_per_s.value))
    return parts


def _results(config: MeetConfig, workload: Workload, origin: int) -> float:
    """Combinations one row of the origin ends in, before predicates that no key covers; any order gives the same."""
    known, rows = frozenset({origin}), 1.0
    for target in (i for i in range(len(config.inputs)) if i != origin):
        rows *= workload.matches(config, known, target)
        known |= {target}
    return rows

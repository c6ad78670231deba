"""What will run, what it will cost, and why: before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.render import query_text
from watersmeet.algebra.windows import FOREVER_US, duration_text
from watersmeet.cost.profile import Profile
from watersmeet.errors import PlanError
from watersmeet.operators.aggregate.config import aggregate_config
from watersmeet.operators.meet.config import MeetConfig, MeetInput
from watersmeet.operators.meet.tactics.registry import settled_config
from watersmeet.optimizer.costing import Costed, PlanCost, costed
from watersmeet.optimizer.early import early_candidates, early_costed, early_notes
from watersmeet.optimizer.estimates import Workload, workload_of
from watersmeet.optimizer.search import candidates
from watersmeet.stats.estimate import Estimate
from watersmeet.stats.stream_stats import StreamStats

#: Alternatives the text lists unless all are asked for.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Budget:
    """What the machine gives: processors, the share of them that is to stay free, bytes of memory (None: not limited)."""

    processors: float = 1.0
    headroom: float = 0.0
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        if not self.processors > 0:
            raise PlanError(f"a budget needs processors, got {self.processors}")
        if not 0 <= self.headroom < 1:
            raise PlanError(f"headroom is a share from 0 up to 1, got {self.headroom}")
        if self.memory_bytes is not None and not self.memory_bytes > 0:
            raise PlanError(f"a memory budget must be more than nothing, got {self.memory_bytes}")

    @property
    def cpu_per_s(self) -> float:
        return self.processors * (1 - self.headroom)

    def shortfall(self, cost: PlanCost) -> str | None:
        """Why a cost does not fit, or None when it does."""
        if cost.cpu_per_s > self.cpu_per_s:
            return f"it needs {cost.cpu_per_s:.2f} s of CPU per second and {self.cpu_per_s:.2f} s are to be had"
        if self.memory_bytes is not None and cost.state_bytes > self.memory_bytes:
            return f"it keeps {_bytes(cost.state_bytes)} and {_bytes(self.memory_bytes)} are to be had"
        return None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The chosen plan with its predicted cost, the plans that lost, and every number with where it comes from; prints as text."""

    bound: BoundQuery
    config: MeetConfig
    workload: Workload
    stats: Mapping[str, StreamStats]
    chosen: Costed
    others: tuple[Costed, ...]
    budget: Budget
    profile: Profile
    all_plans: bool = False
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        return self.chosen.plan

    @property
    def utilisation(self) -> float:
        return self.chosen.cost.cpu_per_s / self.budget.processors

    @property
    def feasible(self) -> bool:
        return self.budget.shortfall(self.chosen.cost) is None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for programs."""
        return {
            "query": query_text(self.bound.query),
            "plan": self.plan.to_dict(),
            "cost": _cost_dict(self.chosen.cost),
            "utilisation": self.utilisation,
            "feasible": self.feasible,
            "reason": self.budget.shortfall(self.chosen.cost),
            "inputs": [self._input(each) for each in self.config.inputs],
            "pairs": [{"first": a, "second": b, "within_us": within} for a, b, within in self._pairs()],
            "orders": self._orders(),
            "waits_for_watermark": self.config.waits_for_watermark,
            "alternatives": [{"plan": each.plan.to_dict(), "cost": _cost_dict(each.cost)} for each in self.others],
            "notes": list(self.notes),
            "profile": {"name": self.profile.name, "source": self.profile.source},
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        cost = self.chosen.cost
        yield from (query_text(self.bound.query), "", f"plan {self.plan.algorithm}")
        yield from self.notes
        for part in cost.parts:
            yield f"  {part.name:<32} {part.cpu_per_s:>10.3g} s per s  {part.rows_per_s:>12,.6g} rows per s"
        yield (
            f"predicted {self.utilisation:.1%} of {self.budget.processors:g} processor(s), {_bytes(cost.state_bytes)} in"
            f" {cost.state_rows:,.0f} rows of state, {cost.rows_out_per_s:,.6g} rows out per second"
        )
        shortfall = self.budget.shortfall(cost)
        yield "it keeps up" if shortfall is None else f"it cannot keep up: {shortfall}"
        yield f"weight factors: {self.profile.name}{f', {self.profile.source}' if self.profile.source else ''}"
        yield from self._about_inputs()
        yield from self._about_alternatives()

    def _about_inputs(self) -> Iterator[str]:
        yield "rows kept"
        for source, each in zip(self.config.inputs, self.workload.inputs, strict=True):
            yield f"  {source.alias}: {self._keeps(source)}; {_said(each.rows_per_s)} rows per s, {_said(each.held_rows)} rows held"
            for name, distinct in self.stats[source.name].distinct.items():
                yield f"    {name}: {_said(distinct)} distinct values"
        pairs = self._pairs()
        if pairs:
            yield "times in a result, given and derived"
            yield from (f"  {a} and {b} at most {_length(within)} apart" for a, b, within in pairs)
        if len(self.config.inputs) > 1:
            yield "order of probing, by the stream a new row comes from"
            yield from (f"  {origin}: {' → '.join([origin, *order])}" for origin, order in self._orders().items())
        if self.config.waits_for_watermark:
            yield "results wait for the watermark: a ROWS window is decided in time order"

    def _about_alternatives(self) -> Iterator[str]:
        shown = self.others if self.all_plans else self.others[:SHOWN]
        if shown:
            yield "plans that lost"
        for each in shown:
            indexes = ", ".join(f"{alias} {index}" for alias, index in each.plan.indexes)
            times = each.cost.cpu_per_s / self.chosen.cost.cpu_per_s if self.chosen.cost.cpu_per_s else 1.0
            name = f"{each.plan.algorithm} ({indexes})" if indexes else each.plan.algorithm
            if self.bound.is_aggregation:
                name = early_notes(self.bound, each.plan)[0]
            yield f"  {name}: {each.cost.cpu_per_s:.3g} s per s, {times:,.1f} times as much"
        if len(self.others) > len(shown):
            yield f"  and {len(self.others) - len(shown)} more"

    def _orders(self) -> dict[str, list[str]]:
        default = {
            each.alias: [self.config.inputs[step.target].alias for step in self.config.orders[each.number]] for each in self.config.inputs
        }
        streams = [self.config.inputs[i].alias for i in self.config.streams]
        return {alias: [name for name in self.plan.order(alias) or default[alias] if name != alias] for alias in streams}

    def _input(self, source: MeetInput) -> dict[str, Any]:
        each = self.workload.inputs[source.number]
        return {
            "alias": source.alias,
            "source": source.name,
            "window": None if source.window is None else str(source.window),
            "retention_us": source.retention_us if source.retention_us < FOREVER_US else None,
            "keeps": self._keeps(source),
            "rows_per_s": _estimate_dict(each.rows_per_s),
            "kept_per_s": _estimate_dict(each.kept_per_s),
            "held_rows": _estimate_dict(each.held_rows),
            "row_bytes": _estimate_dict(each.row_bytes),
            "distinct": {name: _estimate_dict(found) for name, found in self.stats[source.name].distinct.items()},
        }

    def _keeps(self, source: MeetInput) -> str:
        if not source.is_stream:
            return "the whole relation"
        if len(self.config.streams) == 1 and not source.has_ends:
            return "nothing, its rows meet no other stream"
        kept = "everything" if source.retention_us >= FOREVER_US else f"{_length(source.retention_us)} behind the watermark"
        return f"[{source.window}]" if source.has_ends else kept

    def _pairs(self) -> list[tuple[str, str, int]]:
        streams, bounds = self.config.streams, self.config.bounds
        return [
            (self.config.inputs[i].alias, self.config.inputs[j].alias, bounds.symmetric_us(i, j))
            for place, i in enumerate(streams)
            for j in streams[place + 1 :]
            if bounds.symmetric_us(i, j) < FOREVER_US
        ]


def explained(
    bound: BoundQuery,
    stats: Mapping[str, StreamStats],
    profile: Profile,
    *,
    budget: Budget | None = None,
    plan: Plan | None = None,
    all_plans: bool = False,
) -> Explanation:
    """The cheapest plan, or the pinned one, and what the others would cost."""
    if bound.is_aggregation:
        return _explained_aggregation(bound, stats, profile, budget or Budget(), plan, all_plans)
    config = settled_config(bound, plan or Plan())
    workload = workload_of(bound, config, stats)
    found = candidates(bound, config, workload, profile)
    chosen = costed(config, workload, profile, plan) if plan is not None else found[0]
    others = tuple(each for each in found if each.plan != chosen.plan)
    return Explanation(bound, config, workload, stats, chosen, others, budget or Budget(), profile, all_plans)


def _explained_aggregation(
    bound: BoundQuery, stats: Mapping[str, StreamStats], profile: Profile, budget: Budget, plan: Plan | None, all_plans: bool
) -> Explanation:
    config = aggregate_config(bound, plan)
    workload = workload_of(bound, config.join, stats)
    found = early_candidates(bound, config, workload, stats)
    chosen = early_costed(config, workload, stats, plan) if plan is not None else found[0]
    others = tuple(each for each in found if each.plan.early != chosen.plan.early)
    notes = tuple(early_notes(bound, chosen.plan))
    return Explanation(bound, config.join, workload, stats, chosen, others, budget, profile, all_plans, notes)


def _cost_dict(cost: PlanCost) -> dict[str, Any]:
    return {
        "cpu_per_s": cost.cpu_per_s,
        "state_rows": cost.state_rows,
        "state_bytes": cost.state_bytes,
        "rows_out_per_s": cost.rows_out_per_s,
        "operators": [{"name": part.name, "cpu_per_s": part.cpu_per_s, "rows_per_s": part.rows_per_s} for part in cost.parts],
    }


def _estimate_dict(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "provenance": str(estimate.provenance), "note": estimate.note}


def _said(estimate: Estimate) -> str:
    return f"{estimate.value:,.6g} ({estimate.provenance})"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def _length(length_us: int) -> str:
    return duration_text(length_us).lower() if length_us else "0 seconds"

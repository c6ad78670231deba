"""Remedies for a query that does not keep up: a larger machine, shorter windows, or rows to shed.

References: Ayad, Naughton, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import BoundQuery
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import PlanError
from watersmeet.planner.allocation_search import find_allocation
from watersmeet.planner.cost_of_allocation import AllocationCosts
from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.models.ayad_drops import ALLOCATE, DEFAULT_POLICY, DROP, SheddingPolicy
from watersmeet.planner.plan_cost import PlanCost
from watersmeet.planner.shed_search import Approximation, find_approximation
from watersmeet.stats.stream_stats import derive
from watersmeet.units import format_bytes, format_cores, format_percent


@dataclass(frozen=True, slots=True)
class Remedies:
    """Changes that each make the query feasible on their own; None if a change cannot, or is not needed."""

    processors: float | None
    memory_bytes: float | None
    window_scale: float | None
    approximation: Approximation | None
    refusal: str | None = None  # why there is no approximation
    other_strategies: tuple[Approximation, ...] = ()  # other ways to shed rows, which keep less

    def describe(self) -> Iterator[str]:
        """Yield one line per remedy."""
        if self.processors is not None or self.memory_bytes is not None:
            cores = [] if self.processors is None else [format_cores(self.processors)]
            memory = [] if self.memory_bytes is None else [f"{format_bytes(self.memory_bytes)} of memory"]
            yield f"a machine with {' and '.join([*cores, *memory])}"
        if self.window_scale is not None:
            yield f"windows shortened to {format_percent(self.window_scale)} of their length"
        if self.approximation is not None:
            yield describe_shedding(self.approximation)
            yield from (f"{describe_shedding(each)} (not chosen)" for each in self.other_strategies)
        elif self.refusal is not None:
            yield f"dropping rows is not enough: {self.refusal}"

    def to_dict(self) -> dict[str, Any]:
        """Return the remedies as plain values."""
        found = self.approximation
        return {
            "processors": self.processors,
            "memory_bytes": self.memory_bytes,
            "window_scale": self.window_scale,
            "approximation": None if found is None else _approximation_dict(found),
            "other_strategies": [_approximation_dict(each) for each in self.other_strategies],
        }


def _approximation_dict(found: Approximation) -> dict[str, Any]:
    return {
        "strategy": ALLOCATE if found.plan.is_allocated else DROP,
        "plan": found.plan.to_dict(),
        "keep": dict(found.keep),
        "share_of_output": found.share_of_output,
        "rows_out_per_s": found.costed.cost.rows_out_per_s,
        "cpu_per_s": found.costed.cost.cpu_per_s,
        "state_bytes": found.costed.cost.state_bytes,
    }


def find_join_remedies(
    context: CostingContext,
    cost: PlanCost,
    plan: Plan,
    plans: Sequence[Plan],
    policy: SheddingPolicy = DEFAULT_POLICY,
    *,
    bound: BoundQuery | None = None,
    is_pinned: bool = False,
) -> Remedies:
    """Find remedies for a plan that costs too much; search drop rates, and allocations, over all given plans.

    An allocation is searched if the bound query is given and joins two different streams.
    """
    found: list[Approximation] = []
    refusals: list[PlanError] = []
    if policy.strategy != ALLOCATE:
        _try_strategy(lambda: find_approximation(context, plans, policy, is_pinned=is_pinned), found, refusals)
    if bound is not None and policy.strategy != DROP and can_allocate(bound):
        _try_strategy(lambda: find_allocation(AllocationCosts(bound, context), plans, policy), found, refusals)
    found.sort(key=lambda each: -each.share_of_output)

    def shed() -> Approximation:
        if found:
            return found[0]
        raise refusals[0] if refusals else PlanError("probes and windows are divided between two different streams")

    return replace(find_remedies(context, cost, plan, shed), other_strategies=tuple(found[1:]))


def can_allocate(bound: BoundQuery) -> bool:
    """Return whether a query joins two different streams, between which probes and windows can be divided."""
    names = [source.schema.name for source in bound.sources]
    streams = all(source.is_stream for source in bound.sources)
    return not bound.is_aggregation and len(names) == 2 and len(set(names)) == 2 and streams


def _try_strategy(search: Callable[[], Approximation], found: list[Approximation], refusals: list[PlanError]) -> None:
    try:
        found.append(search())
    except PlanError as error:
        refusals.append(error)


def find_remedies(context: CostingContext, cost: PlanCost, plan: Plan, shed: Callable[[], Approximation]) -> Remedies:
    """Find remedies for a plan that costs too much; `shed` finds drop rates or raises `PlanError` with the reason."""
    budget = context.budget
    processors = cost.cpu_per_s / (1 - budget.headroom) if cost.cpu_per_s > budget.cpu_per_s else None
    memory = cost.memory_bytes if budget.memory_bytes is not None and cost.memory_bytes > budget.memory_bytes else None
    try:
        found, refusal = shed(), None
    except PlanError as error:
        found, refusal = None, error.hint or str(error)
    return Remedies(processors, memory, find_window_scale(context, plan), found, refusal)


def describe_shedding(found: Approximation) -> str:
    """Describe the drop rates or the allocation of an approximation, and the output that remains."""
    return describe_allocation(found) if found.plan.is_allocated else describe_drops(found)


def describe_allocation(found: Approximation) -> str:
    """Describe which rows probe and which are stored, and the output that remains."""
    roles = [
        f"{role} {format_percent(share)} of {name}"
        for role, shares in (("probing with", found.plan.probe), ("storing", found.plan.window))
        for name, share in shares
        if share < 1
    ]
    output = format_percent(found.share_of_output)
    return f"{' and '.join(roles)}, with plan {found.plan.algorithm}: keeps {output} of the output"


def describe_drops(found: Approximation) -> str:
    """Describe the drop rates of an approximation and the output that remains."""
    drops = " and ".join(f"{format_percent(1 - share)} of {name}" for name, share in found.keep if share < 0.9995)
    output = format_percent(found.share_of_output)
    if found.costed.cost.combinations_per_s is not None:
        return f"dropping {drops}: aggregates become estimates from {output} of the combinations"
    return f"dropping {drops}, with plan {found.plan.algorithm}: keeps {output} of the output"


def find_window_scale(context: CostingContext, plan: Plan) -> float | None:
    """Find the largest factor on all window lengths for which the plan keeps up; None if no window is short enough."""
    if context.budget.load(_cost_with_scaled_windows(context, plan, 1e-6)) > 1:
        return None
    fits, too_long = 1e-6, 1.0
    for _ in range(30):
        middle = (fits * too_long) ** 0.5
        fits, too_long = (
            (middle, too_long)
            if context.budget.load(_cost_with_scaled_windows(context, plan, middle)) <= 1
            else (fits, middle)
        )
    return fits


def _cost_with_scaled_windows(context: CostingContext, plan: Plan, scale: float) -> PlanCost:
    inputs = tuple(
        replace(each, held_rows=derive(each.held_rows.value * scale, each.held_rows)) if source.is_stream else each
        for source, each in zip(context.config.inputs, context.workload.inputs, strict=True)
    )
    gaps = tuple(
        tuple(int(gap * scale) if gap < FOREVER_US else gap for gap in row) for row in context.workload.gaps_us
    )
    shorter = replace(context.workload, inputs=inputs, gaps_us=gaps)
    return context.cost_on(shorter, plan).cost

"""Scale the formulas to what a rehearsal measured, so that they extrapolate to other plans and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from watersmeet.planner.costing_context import CostingContext
from watersmeet.planner.memory import INDEXES
from watersmeet.planner.overload import Remedies
from watersmeet.planner.plan_cost import Budget, CostedPlan, OperatorCost, PlanCost
from watersmeet.planner.rehearsal import Rehearsal

#: Group of a predicted operator in measurements, by the first word of its name. Other operators probe.
_GROUPS = {
    "ingest": "ingest",
    "count": "ingest",
    "shed": "ingest",
    "select": "store",
    "store": "store",
    "emit": "emit",
}


@dataclass(frozen=True, slots=True)
class Correction:
    """Measured divided by predicted figures of one plan."""

    cpu: float = 1.0
    rows_out: float = 1.0
    state_rows: float = 1.0
    state_bytes: float = 1.0

    def apply(self, found: CostedPlan, measured: Rehearsal | None = None) -> CostedPlan:
        """Return the plan with corrected figures; with a measurement, those of the plan that was rehearsed."""
        cost = found.cost
        if self == Correction():
            return found
        operators = (
            tuple(replace(part, cpu_per_s=part.cpu_per_s * self.cpu) for part in cost.operators)
            if measured is None
            else _distribute(cost.operators, measured.operators)
        )
        rows_out = cost.rows_out_per_s * self.rows_out if measured is None else measured.rows_out_per_s
        operators = tuple(replace(part, rows_per_s=rows_out) if part.name == "emit" else part for part in operators)
        memory = tuple(
            part if part.kind == INDEXES else replace(part, size_bytes=part.size_bytes * self.state_bytes)
            for part in cost.memory
        )
        return CostedPlan(
            found.plan,
            replace(
                cost,
                operators=operators,
                rows_out_per_s=rows_out,
                state_rows=cost.state_rows * self.state_rows,
                state_bytes=_size_of_state(cost) * self.state_bytes if measured is None else measured.state_bytes,
                memory=memory,
            ),
        )

    def shrink_budget(self, context: CostingContext) -> CostingContext:
        """Return the context with the budget in units of the formulas, so that remedies fit the measured figures."""
        return replace(context, budget=replace(context.budget, processors=context.budget.processors / self.cpu))

    def scale_remedies(self, found: Remedies, cost: PlanCost, budget: Budget) -> Remedies:
        """Return remedies with the processors that the measured plan needs."""
        needed = cost.cpu_per_s / (1 - budget.headroom)
        return replace(found, processors=needed if cost.cpu_per_s > budget.cpu_per_s else None)


def correct(predicted: PlanCost, measured: Rehearsal | None) -> Correction:
    """Return the correction that a rehearsal of the same plan leads to."""
    if measured is None:
        return Correction()
    return Correction(
        _divide(measured.cpu_per_s, predicted.cpu_per_s),
        _divide(measured.rows_out_per_s, predicted.rows_out_per_s),
        _divide(measured.state_rows, predicted.state_rows),
        _divide(measured.state_bytes, _size_of_state(predicted)),
    )


def _size_of_state(cost: PlanCost) -> float:
    """Return the bytes of the state without indexes."""
    return cost.state_bytes - sum(part.size_bytes for part in cost.memory if part.kind == INDEXES)


def _divide(measured: float, predicted: float) -> float:
    return measured / predicted if predicted > 0 else 1.0


def _distribute(operators: tuple[OperatorCost, ...], measured: Mapping[str, float]) -> tuple[OperatorCost, ...]:
    """Distribute the measured CPU time of each group of operators in proportion to the predictions."""
    groups = [_find_group(part.name, measured) for part in operators]
    totals = dict.fromkeys(groups, 0.0)
    for part, group in zip(operators, groups, strict=True):
        totals[group] += part.cpu_per_s
    scaled = [
        replace(part, cpu_per_s=measured[group] * (part.cpu_per_s / totals[group] if totals[group] else 0.0))
        for part, group in zip(operators, groups, strict=True)
    ]
    rest = sum(measured.values()) - sum(part.cpu_per_s for part in scaled)
    if rest <= 1e-12 * sum(measured.values()):
        return tuple(scaled)
    return (*scaled, OperatorCost("other work", rest, 0.0))


def _find_group(name: str, measured: Mapping[str, float]) -> str:
    group = "batches" if name == "batches" else _GROUPS.get(name.split(" ", maxsplit=1)[0], "probe")
    return group if group in measured else "batches"

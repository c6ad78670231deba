"""What would make a query feasible that is not: a larger machine, shorter windows, or dropping some of its rows.

References: Ayad, Naughton, section 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.planner.budget import PlanCost, bytes_text
from watersmeet.planner.models.ayad_drops import NO_WISHES, Wishes
from watersmeet.planner.overload import Approximation, Situation, approximate, window_scale


@dataclass(frozen=True, slots=True)
class Remedies:
    """Each of them alone makes the query feasible; None where it cannot, or where it is not what is short."""

    processors: float | None
    memory_bytes: float | None
    window_scale: float | None
    approximation: Approximation | None
    refusal: str | None = None  # why there is no approximation

    def sentences(self) -> Iterator[str]:
        if self.processors is not None or self.memory_bytes is not None:
            needs = [f"{self.processors:.3g} processors"] if self.processors is not None else []
            yield " and ".join(
                [*needs, *([f"{bytes_text(self.memory_bytes)} of memory"] if self.memory_bytes is not None else [])]
            )
        if self.window_scale is not None:
            yield f"windows {self.window_scale:.2g} times as long"
        if self.approximation is not None:
            yield drops_text(self.approximation)
        elif self.refusal is not None:
            yield f"dropping rows does not help: {self.refusal}"

    def to_dict(self) -> dict[str, Any]:
        found = self.approximation
        return {
            "processors": self.processors,
            "memory_bytes": self.memory_bytes,
            "window_scale": self.window_scale,
            "approximation": None
            if found is None
            else {
                "plan": found.plan.to_dict(),
                "keep": dict(found.keep),
                "share_of_output": found.share_of_output,
                "rows_out_per_s": found.costed.cost.rows_out_per_s,
                "cpu_per_s": found.costed.cost.cpu_per_s,
                "state_bytes": found.costed.cost.state_bytes,
            },
        }


def remedies(now: Situation, cost: PlanCost, plan: Plan, plans: Sequence[Plan], wishes: Wishes = NO_WISHES) -> Remedies:
    """What would help a plan that costs too much; the drop boxes are searched over all the plans given."""
    return find_remedies(now, cost, plan, lambda: approximate(now, plans, wishes))


def find_remedies(now: Situation, cost: PlanCost, plan: Plan, shed: Callable[[], Approximation]) -> Remedies:
    """What would help a plan that costs too much; `shed` finds the drop rates, or refuses with the reason."""
    budget = now.budget
    processors = cost.cpu_per_s / (1 - budget.headroom) if cost.cpu_per_s > budget.cpu_per_s else None
    memory = cost.state_bytes if budget.memory_bytes is not None and cost.state_bytes > budget.memory_bytes else None
    try:
        found, refusal = shed(), None
    except PlanError as error:
        found, refusal = None, error.hint or str(error)
    return Remedies(processors, memory, window_scale(now, plan), found, refusal)


def drops_text(found: Approximation) -> str:
    """The drop rates of an approximation in words."""
    drops = " and ".join(f"{1 - share:.1%} of {name}" for name, share in found.keep if share < 0.9995)
    if found.costed.cost.combinations_per_s is not None:
        left = f"{found.share_of_output:.1%}" if found.share_of_output >= 0.001 else "less than 0.1%"
        return f"dropping {drops}: aggregates become estimates from {left} of the combinations"
    return f"dropping {drops}, by {found.plan.algorithm}: {found.share_of_output:.1%} of the rows out are left"

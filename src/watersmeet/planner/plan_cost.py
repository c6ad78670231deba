"""What a plan may take: processors, memory, and which of the two is to be spared."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, listing

OBJECTIVES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Budget:
    """What the machine gives: processors, the share of them that is to stay free, bytes of memory (None: not limited).

    `objective` is what is to be as little as can be: "cpu" or "memory".
    """

    processors: float = 1.0
    headroom: float = 0.0
    memory_bytes: float | None = None
    objective: str = "cpu"

    def __post_init__(self) -> None:
        if not self.processors > 0:
            raise PlanError(f"a budget needs processors, got {self.processors}")
        if not 0 <= self.headroom < 1:
            raise PlanError(f"headroom is a share from 0 up to 1, got {self.headroom}")
        if self.memory_bytes is not None and not self.memory_bytes > 0:
            raise PlanError(f"a memory budget must be more than nothing, got {self.memory_bytes}")
        if self.objective not in OBJECTIVES:
            raise PlanError(f'"{self.objective}" is no objective', hint=f"objectives: {listing(OBJECTIVES)}")

    @property
    def cpu_per_s(self) -> float:
        return self.processors * (1 - self.headroom)

    def load(self, cost: PlanCost) -> float:
        """The share of the scarcer resource that a plan takes; above 1 it does not keep up."""
        memory = cost.state_bytes / self.memory_bytes if self.memory_bytes is not None else 0.0
        return max(cost.cpu_per_s / self.cpu_per_s, memory)

    def shortfall(self, cost: PlanCost) -> str | None:
        """Why a cost does not fit, or None when it does."""
        short = []
        if cost.cpu_per_s > self.cpu_per_s:
            short.append(f"it needs {cost.cpu_per_s:.3g} s of CPU per second and {self.cpu_per_s:.3g} s are to be had")
        if self.memory_bytes is not None and cost.state_bytes > self.memory_bytes:
            short.append(f"it keeps {bytes_text(cost.state_bytes)} and {bytes_text(self.memory_bytes)} are to be had")
        return "; ".join(short) or None


def bytes_text(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator's share of the cost, with the rows it handles per second."""

    name: str
    cpu_per_s: float
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Seconds of CPU per second of stream, by operator; bytes and rows of state; rows out per second.

    Estimates of a shedding aggregation rest on `combinations_per_s` combinations of kept rows; None for every other
    query.
    """

    operators: tuple[OperatorCost, ...]
    state_rows: float
    state_bytes: float
    rows_out_per_s: float
    combinations_per_s: float | None = None

    @property
    def answer_per_s(self) -> float:
        """The quantity that shedding preserves as much of as it can: rows out, or the combinations that estimates rest
        on.
        """
        return self.rows_out_per_s if self.combinations_per_s is None else self.combinations_per_s

    @property
    def cpu_per_s(self) -> float:
        return sum(part.cpu_per_s for part in self.operators)


@dataclass(frozen=True, slots=True)
class CostedPlan:
    """A plan with its predicted cost."""

    plan: Plan
    cost: PlanCost

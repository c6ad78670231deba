"""Predicted cost of a plan, operator by operator, and the budget of CPU and memory that it has to fit."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, listing
from watersmeet.units import format_bytes, format_cores, format_count

OBJECTIVES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Budget:
    """Resources for a plan: processors, fraction of CPU to keep free, bytes of memory (None: not limited).

    `objective` is the resource to minimise: "cpu" or "memory". `delay_s` is the event time for which the results of a
    stream may wait, so that a lazy plan can be chosen; a pinned plan may be lazier.
    """

    processors: float = 1.0
    headroom: float = 0.0
    memory_bytes: float | None = None
    objective: str = "cpu"
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.processors > 0:
            raise PlanError(f"a budget needs processors, got {self.processors}")
        if not 0 <= self.headroom < 1:
            raise PlanError(f"headroom must be at least 0 and below 1, got {self.headroom}")
        if self.memory_bytes is not None and not self.memory_bytes > 0:
            raise PlanError(f"a memory budget must be above zero bytes, got {self.memory_bytes}")
        if not self.delay_s >= 0:
            raise PlanError(f"results cannot wait for a negative time, got {self.delay_s} s")
        if self.objective not in OBJECTIVES:
            raise PlanError(f'there is no objective "{self.objective}"', hint=f"objectives: {listing(OBJECTIVES)}")

    @property
    def cpu_per_s(self) -> float:
        """CPU seconds per second that a plan may use."""
        return self.processors * (1 - self.headroom)

    def load(self, cost: PlanCost) -> float:
        """Return the share of the scarcer resource that a plan uses; a plan above 1 does not keep up."""
        memory = cost.memory_bytes / self.memory_bytes if self.memory_bytes is not None else 0.0
        return max(cost.cpu_per_s / self.cpu_per_s, memory)

    def shortfall(self, cost: PlanCost) -> str | None:
        """Describe the resources that a plan lacks, or return None if it fits.

        >>> cost = PlanCost((OperatorCost("ingest a", 3.2, 1000),), state_rows=100, state_bytes=5e6, rows_out_per_s=1)
        >>> Budget(processors=2).shortfall(cost), Budget(processors=4).shortfall(cost)
        ('needs 3.2 CPU cores; 2 are available', None)
        >>> Budget(processors=4, memory_bytes=1e6).shortfall(cost)
        'needs 5 MB of memory; 1 MB is available'
        """
        short = []
        if cost.cpu_per_s > self.cpu_per_s:
            short.append(_describe_cpu_shortfall(cost.cpu_per_s, self.cpu_per_s))
        if self.memory_bytes is not None and cost.memory_bytes > self.memory_bytes:
            needed, available = format_bytes(cost.memory_bytes), format_bytes(self.memory_bytes)
            short.append(f"needs {needed} of memory; {available} is available")
        return "; ".join(short) or None


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """Cost of one operator, and the rows it handles per second."""

    name: str
    cpu_per_s: float
    rows_per_s: float


@dataclass(frozen=True, slots=True)
class JoinPrediction:
    """Predicted work of one algorithm: everything between ingesting rows and emitting results.

    `plan` has no open orders and no open tree. `stored_rows` and `stored_bytes` come on top of the base windows.
    `comparisons_per_s` is None for algorithms that are not costed by comparisons.
    """

    plan: Plan
    operators: tuple[OperatorCost, ...]
    stored_rows: float = 0.0
    stored_bytes: float = 0.0
    comparisons_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Bytes of one kind (rows, expired rows, stored results, indexes) of one source, or of the whole plan."""

    kind: str
    source: str
    size_bytes: float


@dataclass(frozen=True, slots=True)
class PlanCost:
    """CPU seconds per second of stream by operator, bytes and rows of state, and rows out per second.

    `state_rows` are the rows in the windows and the stored results. `state_bytes` is all memory of the plan, and
    `memory` its parts: expired rows that are not evicted yet and indexes are among them.

    The estimates of a shedding aggregation are based on `combinations_per_s` combinations of kept rows. The field is
    None for every other query. `comparisons_per_s` are those of nested loops, and None for other algorithms.
    """

    operators: tuple[OperatorCost, ...]
    state_rows: float
    state_bytes: float
    rows_out_per_s: float
    combinations_per_s: float | None = None
    comparisons_per_s: float | None = None
    memory: tuple[MemoryPart, ...] = ()

    @property
    def answer_per_s(self) -> float:
        """The quantity that shedding maximises: rows out, or the combinations that estimates are based on."""
        return self.rows_out_per_s if self.combinations_per_s is None else self.combinations_per_s

    @property
    def cpu_per_s(self) -> float:
        """CPU seconds per second of all operators."""
        return sum(part.cpu_per_s for part in self.operators)

    @property
    def memory_bytes(self) -> float:
        """All memory of the plan. A rehearsal measures the state without indexes, which come on top of it."""
        return max(self.state_bytes, sum(part.size_bytes for part in self.memory))

    def rank(self, objective: str) -> tuple[float, float]:
        """Return the resource to minimise, and the other one, which breaks ties."""
        resources = self.cpu_per_s, self.state_bytes
        return resources if objective == "cpu" else resources[::-1]


@dataclass(frozen=True, slots=True)
class CostedPlan:
    """A plan with its predicted cost."""

    plan: Plan
    cost: PlanCost


def _describe_cpu_shortfall(needed: float, available: float) -> str:
    """Describe in cores, or as a ratio if the two numbers would look the same or too small.

    >>> _describe_cpu_shortfall(3.2, 2), _describe_cpu_shortfall(2.0001, 2)
    ('needs 3.2 CPU cores; 2 are available', 'needs 1.00005 times the available CPU')
    """
    if available < 0.01 or format_count(needed) == format_count(available):
        return f"needs {needed / available:,.6g} times the available CPU"
    if needed < 1:
        return f"needs {format_cores(needed)}; {format_cores(available)} is available"
    verb = "is" if available <= 1 else "are"
    return f"needs {format_count(needed)} CPU cores; {format_count(available)} {verb} available"

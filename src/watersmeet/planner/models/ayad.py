"""Binary plans over windows: rates, window sizes, CPU per unit of time, memory, and feasibility on a machine.

A plan is a tree of frozen nodes: sources at the leaves, selections, joins with relations, and window joins. One walk
(`plan_cost`) computes everything. In steady state all plans of a query have the same output rate, so a plan is chosen
by its cost.

    selection     λo = f·λ                      Wo = f·W
    join          λo = f·(W_R·λ_L + W_L·λ_R)    Wo = f·W_L·W_R

References: Ayad, Naughton, "Static Optimization of Conjunctive Queries with Sliding Windows over Infinite Streams",
sections 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.errors import PlanError, listing
from watersmeet.planner.models.checks import (
    check_not_negative,
    check_positive,
    check_selectivity,
    check_share,
    check_window,
)

#: Utilisation may reach its bound but not exceed it; rounding must not reject a plan that meets the bound exactly.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A stream with a window of rows (W), or of time (T), which holds λT rows."""

    name: str
    rows_per_s: float
    window_rows: float | None = None
    window_s: float | None = None

    def __post_init__(self) -> None:
        check_positive(self.rows_per_s, f'the rate of "{self.name}"')
        check_window(self.window_rows, self.window_s, f'the window of "{self.name}"')

    def flow(self, kept: float = 1.0) -> NodeFlow:
        """Return the flow after a drop box that keeps this share: a count window stays full, a time window shrinks."""
        rate = self.rows_per_s * kept
        if self.window_rows is not None:
            return NodeFlow(rate, self.window_rows)
        assert self.window_s is not None
        return NodeFlow(rate, rate * self.window_s)


@dataclass(frozen=True, slots=True)
class SelectionNode:
    """A predicate on one input; with selectivity 1 a projection. `cost_s` is C_σ per row."""

    input: PlanNode
    selectivity: float
    cost_s: float = 0.0

    def __post_init__(self) -> None:
        check_selectivity(self.selectivity, "the selectivity of a selection")
        check_not_negative(self.cost_s, "the cost of a selection per row")


@dataclass(frozen=True, slots=True)
class RelationJoinNode:
    """A join with a table that does not change. It filters the stream; its window is the table's cardinality.

    `memory_rows` counts the rows of the table in memory.
    """

    input: PlanNode
    relation_rows: float
    selectivity: float
    cost_s: float = 0.0
    memory_rows: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self.relation_rows, "the rows of a relation")
        check_selectivity(self.selectivity, "the selectivity of a join with a relation")
        check_not_negative(self.cost_s, "the cost of a join with a relation per row")
        check_not_negative(self.memory_rows, "the rows of a relation in memory")


@dataclass(frozen=True, slots=True)
class SideCosts:
    """Seconds per row for one side's window: to probe it (C_P), to insert into it (C_I), to invalidate in it (C_V)."""

    probe_s: float = 0.0
    insert_s: float = 0.0
    invalidate_s: float = 0.0

    def __post_init__(self) -> None:
        for cost in (self.probe_s, self.insert_s, self.invalidate_s):
            check_not_negative(cost, "the cost of a join per row")


@dataclass(frozen=True, slots=True)
class JoinNode:
    """A window join of two inputs.

    `right_selectivity` applies to rows that arrive on the right, if it differs (a one-to-many join).
    """

    left: PlanNode
    right: PlanNode
    selectivity: float = 1.0
    right_selectivity: float | None = None
    left_costs: SideCosts = SideCosts()
    right_costs: SideCosts = SideCosts()

    def __post_init__(self) -> None:
        check_selectivity(self.selectivity, "the selectivity of a join")
        if self.right_selectivity is not None:
            check_selectivity(self.right_selectivity, "the selectivity of a join for rows from the right")

    @property
    def selectivities(self) -> tuple[float, float]:
        """Selectivities for rows that arrive on the left, and on the right."""
        return self.selectivity, self.selectivity if self.right_selectivity is None else self.right_selectivity


PlanNode = SourceNode | SelectionNode | RelationJoinNode | JoinNode


@dataclass(frozen=True, slots=True)
class NodeFlow:
    """Output of a node: rows per second, and the rows that are valid at an instant."""

    rows_per_s: float
    window_rows: float


@dataclass(frozen=True, slots=True)
class BinaryPlanCost:
    """A plan's output, CPU seconds per second, memory in rows, and rows per second that its joins handle."""

    output: NodeFlow
    cpu: float
    memory_rows: float
    handled_rows_per_s: float


@dataclass(frozen=True, slots=True)
class RowBudget:
    """Resources of a machine: processors, the share of them to keep free as headroom, and rows of memory.

    >>> RowBudget(processors=2, headroom=0.25).cpu
    1.5

    """

    processors: float = 1.0
    headroom: float = 0.0
    memory_rows: float = math.inf

    def __post_init__(self) -> None:
        check_positive(self.processors, "the number of processors", PlanError)
        check_share(self.headroom, "the headroom", PlanError)
        if self.headroom == 1:
            raise PlanError("a headroom of one leaves nothing to compute with")
        if not self.memory_rows > 0:
            raise PlanError(f"the memory must be above zero rows, got {self.memory_rows!r}")

    @property
    def cpu(self) -> float:
        """CPU seconds per second that may be used."""
        return self.processors * (1 - self.headroom)

    def holds(self, cost: BinaryPlanCost) -> bool:
        """Return whether a plan is feasible: Σ operator costs within the processors, Σ windows within the memory.

        The paper writes Σ < 1, but calls plan (a) of Example 1 feasible at exactly 1. So the bound itself is allowed.

        References: Ayad, Naughton, eqs. 15 and 17, section 4 for processors and headroom.
        """
        return self.load(cost) <= 1 + _ROUNDING

    def load(self, cost: BinaryPlanCost) -> float:
        """Return the share of the scarcer resource that a plan uses; a plan above 1 cannot run."""
        return max(cost.cpu / self.cpu, cost.memory_rows / self.memory_rows)


def selection_flow(inner: NodeFlow, selectivity: float) -> NodeFlow:
    """Return the flow after a selection: λo = f·λ, Wo = f·W.

    The window of a selection holds the rows of the last W that passed.

    >>> selection_flow(NodeFlow(rows_per_s=100, window_rows=10), 0.5)
    NodeFlow(rows_per_s=50.0, window_rows=5.0)

    References: Ayad, Naughton, eqs. 1 and 2.
    """
    return NodeFlow(selectivity * inner.rows_per_s, selectivity * inner.window_rows)


def join_flow(left: NodeFlow, right: NodeFlow, selectivities: tuple[float, float]) -> NodeFlow:
    """Return the flow of a join: λo = f·(W_R·λ_L + W_L·λ_R), Wo = f·W_L·W_R.

    With two selectivities, each applies to the rows that arrive on its side. The paper gives no window for this case.
    We use the mean of both, which is f if they are equal.

    >>> join_flow(NodeFlow(10, 10), NodeFlow(20, 10), (0.5, 0.5))
    NodeFlow(rows_per_s=150.0, window_rows=50.0)

    References: Ayad, Naughton, eqs. 3 and 4, section 5.2 remark 3.
    """
    from_left, from_right = selectivities
    rate = from_left * right.window_rows * left.rows_per_s + from_right * left.window_rows * right.rows_per_s
    return NodeFlow(rate, (from_left + from_right) / 2 * left.window_rows * right.window_rows)


def join_cpu(left: NodeFlow, right: NodeFlow, left_costs: SideCosts, right_costs: SideCosts) -> float:
    """Return the CPU of a join: an arrival probes the other window, enters its own, and evicts one row from it.

    >>> join_cpu(NodeFlow(10, 10), NodeFlow(20, 10), SideCosts(probe_s=0.25), SideCosts(probe_s=0.5))
    10.0

    References: Ayad, Naughton, eq. 8. It prints C_I(R) + C_V(R) as a factor of λ_L. But rows that arrive on the left
    enter the left window, as in its source, eq. 2 of Kang, Naughton, Viglas.
    """
    from_left = right_costs.probe_s + left_costs.insert_s + left_costs.invalidate_s
    from_right = left_costs.probe_s + right_costs.insert_s + right_costs.invalidate_s
    return left.rows_per_s * from_left + right.rows_per_s * from_right


def nway_output(sources: Sequence[SourceNode], selectivity: float) -> NodeFlow:
    """Return the output of any plan: the product of all selectivities times Σ_k λ_k Π_{i≠k} W_i; the window is f·Π W_i.

    >>> sources = [SourceNode("a", 10, 10), SourceNode("b", 20, 10), SourceNode("c", 70, 10)]
    >>> nway_output(sources, selectivity=0.1).rows_per_s
    1000.0

    References: Ayad, Naughton, observation 1, eqs. 5 and 6.
    """
    check_selectivity(selectivity, "the product of all selectivities")
    flows = [source.flow() for source in sources]
    rates = [
        flow.rows_per_s * math.prod(other.window_rows for i, other in enumerate(flows) if i != k)
        for k, flow in enumerate(flows)
    ]
    return NodeFlow(selectivity * math.fsum(rates), selectivity * math.prod(flow.window_rows for flow in flows))


def plan_cost(plan: PlanNode, kept: Mapping[str, float] | None = None) -> BinaryPlanCost:
    """Cost a plan in one walk. `kept` is the share that the drop box at each source keeps, 1 for sources not named.

    >>> a, b = SourceNode("a", 10, window_rows=10), SourceNode("b", 20, window_rows=10)
    >>> cost = plan_cost(JoinNode(a, b, 0.5, left_costs=SideCosts(probe_s=0.001), right_costs=SideCosts(probe_s=0.001)))
    >>> cost.output.rows_per_s, cost.memory_rows, cost.handled_rows_per_s, cost.cpu
    (150.0, 20.0, 30.0, 0.03)

    References: Ayad, Naughton, eqs. 7 to 13.
    """
    shares = dict(kept or {})
    names = [source.name for source in sources_of(plan)]
    if len(set(names)) != len(names):
        raise PlanError(f"a source occurs twice in a plan: {', '.join(names)}")
    if unknown := sorted(set(shares) - set(names)):
        raise PlanError(
            f"a drop box at {listing(unknown)}, which is not a source of the plan", hint=f"sources: {listing(names)}"
        )
    for name, share in shares.items():
        check_share(share, f'the share kept of "{name}"', PlanError)
    return _cost_node(plan, shares)


def join_plan_cost(plan: JoinNode, left: BinaryPlanCost, right: BinaryPlanCost) -> BinaryPlanCost:
    """Return the cost of a join from the costs of its two inputs.

    References: Ayad, Naughton, eqs. 8, 11, 12 and 13.
    """
    sides = (left.output, right.output)
    return BinaryPlanCost(
        join_flow(*sides, plan.selectivities),
        left.cpu + right.cpu + join_cpu(*sides, plan.left_costs, plan.right_costs),
        left.memory_rows + right.memory_rows + sum(side.window_rows for side in sides),
        left.handled_rows_per_s + right.handled_rows_per_s + sum(side.rows_per_s for side in sides),
    )


def sources_of(plan: PlanNode) -> tuple[SourceNode, ...]:
    """Return the sources of a plan from left to right."""
    if isinstance(plan, SourceNode):
        return (plan,)
    if isinstance(plan, JoinNode):
        return sources_of(plan.left) + sources_of(plan.right)
    return sources_of(plan.input)


def plan_text(plan: PlanNode) -> str:
    """Format a plan on one line.

    >>> plan_text(JoinNode(SelectionNode(SourceNode("a", 1, 1), 0.5), SourceNode("b", 1, 1)))
    '(σ(a) ⋈ b)'

    """
    if isinstance(plan, SourceNode):
        return plan.name
    if isinstance(plan, JoinNode):
        return f"({plan_text(plan.left)} ⋈ {plan_text(plan.right)})"
    return f"{'σ' if isinstance(plan, SelectionNode) else '⋉'}({plan_text(plan.input)})"


def _cost_node(plan: PlanNode, kept: Mapping[str, float]) -> BinaryPlanCost:
    if isinstance(plan, SourceNode):
        return BinaryPlanCost(plan.flow(kept.get(plan.name, 1.0)), 0.0, 0.0, 0.0)
    if isinstance(plan, JoinNode):
        return join_plan_cost(plan, _cost_node(plan.left, kept), _cost_node(plan.right, kept))
    inner = _cost_node(plan.input, kept)
    cpu = inner.cpu + plan.cost_s * inner.output.rows_per_s
    if isinstance(plan, SelectionNode):
        return BinaryPlanCost(
            selection_flow(inner.output, plan.selectivity), cpu, inner.memory_rows, inner.handled_rows_per_s
        )
    grown = selection_flow(inner.output, plan.selectivity * plan.relation_rows)
    return BinaryPlanCost(grown, cpu, inner.memory_rows + plan.memory_rows, inner.handled_rows_per_s)

"""The best binary plan of a join query: dynamic programming over subsets of its sources.

Rates and windows of a partial join depend on the set of its sources, not on the join order. So the best plan of a set
joins best plans of its parts. For each set the search keeps the plans that no other plan beats in both CPU and memory,
so that either can be minimised under a bound on the other. Up to `MAX_EXACT_SOURCES` sources this is exact, cross
products and bushy trees included. With more, a greedy search always makes the join that adds the least cost. Predicates
on one source are evaluated before any join.

References: Ayad, Naughton, section 4, "Complexity of Optimization".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from watersmeet.errors import PlanError, listing
from watersmeet.planner.models.ayad import (
    BinaryPlanCost,
    JoinNode,
    NodeFlow,
    PlanNode,
    RelationJoinNode,
    RowBudget,
    SelectionNode,
    SideCosts,
    SourceNode,
    join_plan_cost,
    plan_cost,
)
from watersmeet.planner.models.checks import check_not_negative, check_selectivity
from watersmeet.planner.models.kang import STRUCTURE_COSTS, Weights, WindowLoad, structure_cost

#: Maximum number of sources for which the search is exact.
MAX_EXACT_SOURCES = 9
#: Maximum number of sources for which all plans are listed.
MAX_LISTED_SOURCES = 6

#: Costs per row of a join of two inputs, for either side.
JoinCosts = Callable[[NodeFlow, NodeFlow], tuple[SideCosts, SideCosts]]
Objective = Literal["cpu", "memory"]


def cost_per_row(seconds: float) -> JoinCosts:
    """Charge every arriving row the same in every join: the simplification of Example 1.

    >>> cost_per_row(0.004)(NodeFlow(10, 10), NodeFlow(20, 10))[0].probe_s
    0.004

    """
    check_not_negative(seconds, "the cost of a join per row", PlanError)
    side = SideCosts(probe_s=seconds)
    return lambda left, right: (side, side)


def cost_by_structure(weights: Weights) -> JoinCosts:
    """Store each side's window in the structure that suits its rates best.

    References: Kang, Naughton, Viglas, eqs. 2 to 6; Ayad, Naughton, section 3.3.2.
    """
    return lambda left, right: (_side_costs(left, right, weights), _side_costs(right, left, weights))


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """A predicate on one source, or a join of it with a relation of `relation_rows` rows."""

    source: str
    selectivity: float
    cost_s: float = 0.0
    relation_rows: float | None = None

    def __post_init__(self) -> None:
        self.over(SourceNode(self.source, 1, window_rows=1))  # the node validates its arguments

    def over(self, plan: PlanNode) -> PlanNode:
        if self.relation_rows is None:
            return SelectionNode(plan, self.selectivity, self.cost_s)
        return RelationJoinNode(plan, self.relation_rows, self.selectivity, self.cost_s)

    @property
    def rank(self) -> float:
        """Rows added per second of cost, negative if rows are removed: filters are applied by ascending rank."""
        added = self.selectivity * (1.0 if self.relation_rows is None else self.relation_rows) - 1
        return added / self.cost_s if self.cost_s else math.copysign(math.inf, added) if added else 0.0


@dataclass(frozen=True, slots=True)
class JoinPredicate:
    """A join predicate between two sources.

    `right_selectivity` applies to rows that arrive on the second source, if it differs.
    """

    left: str
    right: str
    selectivity: float
    right_selectivity: float | None = None

    def __post_init__(self) -> None:
        check_selectivity(self.selectivity, "the selectivity of a join predicate")
        if self.right_selectivity is not None:
            check_selectivity(self.right_selectivity, "the selectivity of a join predicate")

    def selectivities(self, left: frozenset[str], right: frozenset[str]) -> tuple[float, float] | None:
        """Return the selectivities for rows from either side of a join of these sets; None if not between them."""
        forth, back = self.selectivity, self.selectivity if self.right_selectivity is None else self.right_selectivity
        if self.left in left and self.right in right:
            return forth, back
        return (back, forth) if self.left in right and self.right in left else None


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A conjunctive query over windows: sources, predicates on one source and between two, and the costs of joins."""

    sources: tuple[SourceNode, ...]
    predicates: tuple[JoinPredicate, ...]
    join_costs: JoinCosts
    filters: tuple[SourceFilter, ...] = ()

    def __post_init__(self) -> None:
        names = [source.name for source in self.sources]
        if not names or len(set(names)) != len(names):
            raise PlanError(f"a query needs sources of different names, got {listing(names)}")
        named = [name for tie in self.predicates for name in (tie.left, tie.right)] + [
            each.source for each in self.filters
        ]
        if unknown := sorted(set(named) - set(names)):
            raise PlanError(
                f"predicates on {listing(unknown)}, which are not sources", hint=f"sources: {listing(names)}"
            )

    def leaf(self, source: SourceNode) -> PlanNode:
        """Return a source under its filters; the filter that removes the most rows per cost comes first."""
        plan: PlanNode = source
        for each in sorted((each for each in self.filters if each.source == source.name), key=lambda each: each.rank):
            plan = each.over(plan)
        return plan

    def join(self, left: PartialPlan, right: PartialPlan) -> JoinNode:
        """Return a join of two partial plans, with all predicates between them."""
        between = [both for tie in self.predicates if (both := tie.selectivities(left.names, right.names)) is not None]
        from_left, from_right = math.prod(both[0] for both in between), math.prod(both[1] for both in between)
        costs = self.join_costs(left.cost.output, right.cost.output)
        return JoinNode(left.plan, right.plan, from_left, None if from_left == from_right else from_right, *costs)


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """A plan for some of the sources, and its cost."""

    names: frozenset[str]
    plan: PlanNode
    cost: BinaryPlanCost


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """The chosen plan, whether it is feasible, whether it is provably the best, and how many joins were costed."""

    plan: PlanNode
    cost: BinaryPlanCost
    feasible: bool
    exact: bool
    joins_costed: int


def best_plan(
    query: JoinQuery,
    budget: RowBudget | None = None,
    objective: Objective = "cpu",
    kept: Mapping[str, float] | None = None,
) -> PlanChoice:
    """Return the feasible plan with the least CPU or memory; if none is feasible, the cheapest plan, marked so.

    References: Ayad, Naughton, eqs. 14 to 17.
    """
    leaves = [_cost_leaf(query, source, kept or {}) for source in query.sources]
    allowed, exact = budget or RowBudget(), len(leaves) <= MAX_EXACT_SOURCES
    found, joins_costed = _search_exactly(query, leaves) if exact else _search_greedily(query, leaves, objective)
    feasible = [each for each in found if allowed.holds(each.cost)]
    best = min(feasible or found, key=lambda each: _objective_key(objective, each.cost))
    return PlanChoice(best.plan, best.cost, bool(feasible), exact, joins_costed)


def all_plans(query: JoinQuery) -> list[PlanNode]:
    """List every binary tree over the sources, bushy ones and cross products included; mirror images count once.

    >>> from watersmeet.planner.models.ayad import plan_text
    >>> streams = tuple(SourceNode(name, 1, window_rows=1) for name in "abc")
    >>> [plan_text(plan) for plan in all_plans(JoinQuery(streams, (), cost_per_row(0)))]
    ['(a ⋈ (b ⋈ c))', '((a ⋈ b) ⋈ c)', '((a ⋈ c) ⋈ b)']

    """
    if len(query.sources) > MAX_LISTED_SOURCES:
        raise PlanError(
            f"{len(query.sources)} sources have too many plans to list",
            hint=f"plans are listed for up to {MAX_LISTED_SOURCES}",
        )
    return [each.plan for each in _list_trees(query, tuple(_cost_leaf(query, source, {}) for source in query.sources))]


def _list_trees(query: JoinQuery, leaves: tuple[PartialPlan, ...]) -> list[PartialPlan]:
    if len(leaves) == 1:
        return list(leaves)
    found = []
    for left, right in _list_splits(leaves):
        pairs = [(one, other) for one in _list_trees(query, left) for other in _list_trees(query, right)]
        found += [_join_plans(query, one, other) for one, other in pairs]
    return found


def _search_exactly(query: JoinQuery, leaves: list[PartialPlan]) -> tuple[list[PartialPlan], int]:
    """Return the plans that no other plan beats in both CPU and memory, and how many joins were costed."""
    fronts, joins_costed = {leaf.names: [leaf] for leaf in leaves}, 0
    for size in range(2, len(leaves) + 1):
        for chosen in combinations(leaves, size):
            parts = [(fronts[_names(left)], fronts[_names(right)]) for left, right in _list_splits(chosen)]
            found = [_join_plans(query, one, other) for left, right in parts for one in left for other in right]
            fronts[_names(chosen)] = _pareto_front(found)
            joins_costed += len(found)
    return fronts[_names(tuple(leaves))], joins_costed


def _search_greedily(
    query: JoinQuery, leaves: list[PartialPlan], objective: Objective
) -> tuple[list[PartialPlan], int]:
    """Return one plan: of all possible next joins, always make the one that adds the least."""
    parts, joins_costed = list(leaves), 0
    while len(parts) > 1:
        joins = [(_join_plans(query, one, other), one, other) for one, other in combinations(parts, 2)]
        joins_costed += len(joins)
        joined, one, other = min(joins, key=lambda join: _added_cost(objective, *join))
        parts = [part for part in parts if part is not one and part is not other] + [joined]
    return parts, joins_costed


def _added_cost(objective: Objective, joined: PartialPlan, one: PartialPlan, other: PartialPlan) -> tuple[float, float]:
    """Return the increase of the objective by a join, and its output rate, which breaks ties."""
    added = (
        _objective_key(objective, joined.cost)[0]
        - _objective_key(objective, one.cost)[0]
        - _objective_key(objective, other.cost)[0]
    )
    return added, joined.cost.output.rows_per_s


def _list_splits(leaves: tuple[PartialPlan, ...]) -> Iterator[tuple[tuple[PartialPlan, ...], tuple[PartialPlan, ...]]]:
    """Yield each way to split the leaves in two, once: the first leaf is always on the left."""
    first, *rest = leaves
    for size in range(len(rest)):
        for chosen in combinations(rest, size):
            yield (first, *chosen), tuple(leaf for leaf in rest if leaf not in chosen)


def _pareto_front(found: list[PartialPlan]) -> list[PartialPlan]:
    front: list[PartialPlan] = []
    for each in sorted(found, key=lambda each: (each.cost.cpu, each.cost.memory_rows)):
        if not front or each.cost.memory_rows < front[-1].cost.memory_rows:
            front.append(each)
    return front


def _cost_leaf(query: JoinQuery, source: SourceNode, kept: Mapping[str, float]) -> PartialPlan:
    plan = query.leaf(source)
    return PartialPlan(frozenset((source.name,)), plan, plan_cost(plan, {source.name: kept.get(source.name, 1.0)}))


def _join_plans(query: JoinQuery, left: PartialPlan, right: PartialPlan) -> PartialPlan:
    plan = query.join(left, right)
    return PartialPlan(left.names | right.names, plan, join_plan_cost(plan, left.cost, right.cost))


def _names(leaves: tuple[PartialPlan, ...]) -> frozenset[str]:
    return frozenset(name for leaf in leaves for name in leaf.names)


def _objective_key(objective: Objective, cost: BinaryPlanCost) -> tuple[float, float]:
    return (cost.cpu, cost.memory_rows) if objective == "cpu" else (cost.memory_rows, cost.cpu)


def _side_costs(own: NodeFlow, other: NodeFlow, weights: Weights) -> SideCosts:
    """Return the cheapest structure's cost of one probe, one insertion and one invalidation."""
    load = WindowLoad(own.window_rows, own.rows_per_s, other.rows_per_s)
    best = min(STRUCTURE_COSTS, key=lambda structure: structure_cost(structure, load, weights))
    update_s = structure_cost(best, WindowLoad(own.window_rows, 1, 0), weights) / 2
    return SideCosts(structure_cost(best, WindowLoad(own.window_rows, 0, 1), weights), update_s, update_s)

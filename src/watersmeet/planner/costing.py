"""Cost of a plan per second of stream: CPU by operator, state, and rows out, from the weights of one machine.

The model of an algorithm (`cost_of_runs`, `cost_of_loops`, `cost_of_trees`) knows the fan-out of its loops and the rows
they touch. This module has the common part: ingest and select rows, order the loops of each origin, emit rows.

The best order of loops for an origin is exact over subsets up to `MAX_EXACT_INPUTS` inputs, and greedy above.

References: Kang, Naughton, Viglas, section 3; Golab, Özsu, section 4.2; Ayad, Naughton, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Protocol

from watersmeet.algebra.plan import Plan, Tree
from watersmeet.algebra.windows import RowsWindow
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.plan_defaults import (
    GLOBAL,
    PER_ORIGIN,
    add_orders,
    fill_by_structure,
    list_open_parts,
)
from watersmeet.planner.cost_of_loops import LoopsModel
from watersmeet.planner.cost_of_runs import RunsModel
from watersmeet.planner.cost_of_trees import TreeModel
from watersmeet.planner.models.profile import Profile
from watersmeet.planner.plan_cost import CostedPlan, OperatorCost, PlanCost
from watersmeet.planner.workload import Workload

#: Maximum number of inputs for which every order is considered, by dynamic programming over subsets: n · 2ⁿ steps.
MAX_EXACT_INPUTS = 8

#: Cost of a loop: (inputs bound before it, combinations of them, input it binds) → cost.
LoopCost = Callable[[frozenset[int], float, int], float]
#: Combinations with the input bound, per combination before.
Fanout = Callable[[frozenset[int], int], float]


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """An order of the other inputs, its cost per row of the origin, and whether it is known to be the best."""

    order: tuple[int, ...]
    cost: float
    exact: bool


#: Whether an algorithm can bind the input after the set of inputs bound so far.
IsAllowed = Callable[[frozenset[int], int], bool]


def best_order(
    origin: int,
    inputs: int,
    loop_cost: LoopCost,
    fanout: Fanout,
    allowed: IsAllowed | None = None,
    preferred: Sequence[int] = (),
) -> ProbeOrder:
    """Return the cheapest allowed order, or the cheapest of all if none is allowed; on a tie, the `preferred` one.

    The cost of a loop depends on the set bound before it, not on the order of that set. So only the best way to reach
    each set counts.
    """
    targets = [*preferred, *(i for i in range(inputs) if i not in preferred)]
    if inputs > MAX_EXACT_INPUTS:
        return _greedy_order(origin, inputs, loop_cost, fanout, allowed)
    start = frozenset({origin})
    best: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {start: (0.0, 1.0, ())}
    for _ in range(inputs - 1):
        reached: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {}
        for known, (cost, rows, order) in best.items():
            for target in targets:
                if target in known or (allowed is not None and not allowed(known, target)):
                    continue
                grown = known | {target}
                found = cost + loop_cost(known, rows, target)
                if grown not in reached or found < reached[grown][0]:
                    reached[grown] = found, rows * fanout(known, target), (*order, target)
        if not reached:
            return best_order(origin, inputs, loop_cost, fanout, preferred=preferred)
        best = reached
    ((cost, _, order),) = best.values()
    return ProbeOrder(order, cost, exact=True)


def _greedy_order(
    origin: int, inputs: int, loop_cost: LoopCost, fanout: Fanout, allowed: IsAllowed | None = None
) -> ProbeOrder:
    """Add the input that leaves the fewest combinations; on a tie, the one with the cheapest loop."""
    known, cost, rows = frozenset({origin}), 0.0, 1.0
    order: tuple[int, ...] = ()
    while len(known) < inputs:
        left = [i for i in range(inputs) if i not in known]
        left = [i for i in left if allowed is None or allowed(known, i)] or left
        target = min(left, key=lambda i: (fanout(known, i), loop_cost(known, rows, i), i))
        cost += loop_cost(known, rows, target)
        rows *= fanout(known, target)
        order, known = (*order, target), known | {target}
    return ProbeOrder(order, cost, exact=False)


#: Maximum number of inputs for which every global order is tried.
MAX_PERMUTED_INPUTS = 5


class AlgorithmModel(Protocol):
    """Costs of an algorithm: its loops, by the origin and the inputs bound before, and the upkeep of its structures."""

    def fanout(self, origin: int, known: frozenset[int], target: int) -> float: ...

    def loop_s(self, origin: int, known: frozenset[int], target: int) -> float: ...

    def upkeep_costs(self) -> list[OperatorCost]: ...

    def window_rows(self, target: int) -> float: ...


def cost_plan(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> CostedPlan:
    """Fill the tree or the orders that the plan leaves open with the cheapest ones, and predict its cost."""
    open_parts = list_open_parts(plan)
    if open_parts.has_tree:
        tree = TreeModel(config, workload, profile).best_tree() if plan.tree is None else plan.tree
        return _cost_tree(config, workload, profile, replace(plan, tree=tree), tree)
    model = build_cost_model(config, workload, profile, plan)
    if open_parts.orders == GLOBAL:
        plan = _fill_global_order(config, workload, model, plan)
        orders = {i: _cost_global_order(config, model, i, plan.global_order) for i in config.stream_inputs}
    else:
        orders = {i: _choose_probe_order(config, model, plan, i) for i in config.stream_inputs}
    rows_out = _estimate_rows_out(config, workload)
    parts = [*_ingest_costs(config, workload, profile), *model.upkeep_costs()]
    for i, ordered in orders.items():
        origin = workload.inputs[i]
        path = " → ".join(config.inputs[j].alias for j in (i, *ordered.order))
        parts.append(OperatorCost(f"probe {path}", origin.kept_per_s.value * ordered.cost, origin.kept_per_s.value))
    parts.append(OperatorCost("emit", rows_out * profile.row_out_s, rows_out))
    state_rows, state_bytes = _estimate_base_state(workload)
    named = tuple(
        (config.inputs[i].alias, tuple(config.inputs[j].alias for j in ordered.order)) for i, ordered in orders.items()
    )
    if open_parts.orders == PER_ORIGIN:
        plan = add_orders(plan, named)
    return CostedPlan(plan, PlanCost(tuple(parts), state_rows, state_bytes, rows_out))


def _cost_tree(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan, tree: Tree) -> CostedPlan:
    """Cost a tree plan. It has no orders to choose; its nodes store rows in addition to the base windows."""
    model = TreeModel(config, workload, profile)
    rows_out = _estimate_rows_out(config, workload)
    parts = [
        *_ingest_costs(config, workload, profile),
        *model.operator_costs(tree),
        OperatorCost("emit", rows_out * profile.row_out_s, rows_out),
    ]
    (rows, size), (kept_rows, kept_bytes) = _estimate_base_state(workload), model.kept_rows(tree)
    return CostedPlan(plan, PlanCost(tuple(parts), rows + kept_rows, size + kept_bytes, rows_out))


def _estimate_rows_out(config: JoinConfig, workload: Workload) -> float:
    return sum(
        workload.inputs[i].kept_per_s.value * _results_per_row(config, workload, i) for i in config.stream_inputs
    )


def _estimate_base_state(workload: Workload) -> tuple[float, float]:
    """Return rows and bytes of the base windows."""
    rows = sum(each.held_rows.value for each in workload.inputs)
    return rows, sum(each.held_rows.value * each.row_bytes.value for each in workload.inputs)


def build_cost_model(config: JoinConfig, workload: Workload, profile: Profile, plan: Plan) -> AlgorithmModel:
    return (
        RunsModel(config, workload, profile)
        if plan.algorithm == "runs"
        else LoopsModel(config, workload, profile, plan)
    )


def _fill_global_order(config: JoinConfig, workload: Workload, model: AlgorithmModel, plan: Plan) -> Plan:
    """Fill an open global order: the cheapest of all orders for a few inputs, the structural one for many."""
    if plan.global_order or plan.orders or len(config.inputs) > MAX_PERMUTED_INPUTS:
        return fill_by_structure(config, plan)

    def cpu_per_s(names: tuple[str, ...]) -> float:
        return sum(
            workload.inputs[i].kept_per_s.value * _cost_global_order(config, model, i, names).cost
            for i in config.stream_inputs
        )

    return replace(plan, global_order=min(permutations(each.alias for each in config.inputs), key=cpu_per_s))


def _cost_global_order(config: JoinConfig, model: AlgorithmModel, origin: int, names: tuple[str, ...]) -> ProbeOrder:
    """Return one order of all windows with its cost per row of the origin, the only row scanned in its own loop.

    References: Golab, Özsu, section 3.1.
    """
    order = tuple(config.aliases[name] for name in names)
    known, rows, cost = frozenset[int](), 1.0, 0.0
    for target in order:
        share = 1 / max(model.window_rows(target), 1.0) if target == origin else 1.0
        cost += rows * model.loop_s(origin, known, target) * share
        rows *= model.fanout(origin, known, target) * share
        known |= {target}
    return ProbeOrder(tuple(target for target in order if target != origin), cost, exact=True)


def _choose_probe_order(config: JoinConfig, model: AlgorithmModel, plan: Plan, origin: int) -> ProbeOrder:
    """Return the pinned order of an origin, or the cheapest one that the algorithm can run."""

    def fanout(known: frozenset[int], target: int) -> float:
        return model.fanout(origin, known, target)

    def loop_cost(known: frozenset[int], rows: float, target: int) -> float:
        return rows * model.loop_s(origin, known, target)

    pinned = plan.order(config.inputs[origin].alias)
    if pinned is None:
        by_key = list_open_parts(plan).probes_by_key_only
        allowed = (
            (lambda known, target: bool(config.classes.find_connections(target, sorted(known)))) if by_key else None
        )
        # On a tie, for example if no match is predicted, prefer the structural order: rows may still match.
        structural = [step.target for step in config.orders[origin]]
        return best_order(origin, len(config.inputs), loop_cost, fanout, allowed, structural)
    order = tuple(config.aliases[name] for name in pinned if config.aliases[name] != origin)
    known, rows, cost = frozenset({origin}), 1.0, 0.0
    for target in order:
        cost += loop_cost(known, rows, target)
        rows *= fanout(known, target)
        known |= {target}
    return ProbeOrder(order, cost, exact=True)


def _ingest_costs(config: JoinConfig, workload: Workload, profile: Profile) -> list[OperatorCost]:
    """Return the costs of ingesting and selecting rows, and the fixed cost of a batch."""
    parts = []
    for i in config.stream_inputs:
        source, each = config.inputs[i], workload.inputs[i]
        parts.append(
            OperatorCost(f"ingest {source.alias}", each.rows_per_s.value * profile.row_in_s, each.rows_per_s.value)
        )
        if isinstance(source.window, RowsWindow):
            parts.append(
                OperatorCost(f"count {source.alias}", each.rows_per_s.value * profile.count_s, each.rows_per_s.value)
            )
        if source.selection is not None:
            parts.append(
                OperatorCost(f"select {source.alias}", each.rows_per_s.value * profile.select_s, each.rows_per_s.value)
            )
    batches = 1 / workload.arrivals.batch_s
    parts.append(OperatorCost("batches", batches * profile.batch_s, batches))
    return parts


def _results_per_row(config: JoinConfig, workload: Workload, origin: int) -> float:
    """Estimate the results per row of the origin; every order gives the same."""
    known, rows = frozenset({origin}), 1.0
    for target in (i for i in range(len(config.inputs)) if i != origin):
        rows *= workload.fanout(config, known, target)
        known |= {target}
    return rows

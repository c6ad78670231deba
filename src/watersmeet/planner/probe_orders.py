"""Probe orders: the cheapest order of the loops for each origin, and the cost of an algorithm that runs in orders.

The best order of loops for an origin is exact over subsets up to `MAX_EXACT_INPUTS` inputs, and greedy above.

References: Golab, Özsu, sections 3.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Protocol

from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.plan_defaults import add_orders, fill_by_structure
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import GLOBAL, OpenParts
from watersmeet.planner.plan_cost import JoinPrediction, OperatorCost
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


class LoopModel(Protocol):
    """Costs of an algorithm: its loops, by the origin and the inputs bound before, and the upkeep of its structures."""

    def fanout(self, origin: int, known: frozenset[int], target: int) -> float: ...

    def loop_s(self, origin: int, known: frozenset[int], target: int) -> float: ...

    def upkeep_costs(self) -> list[OperatorCost]: ...

    def window_rows(self, target: int) -> float: ...


def predict_in_orders(config: JoinConfig, workload: Workload, model: LoopModel, plan: Plan) -> JoinPrediction:
    """Fill the orders that the plan leaves open with the cheapest ones, and predict the cost of its loops."""
    parts = find_tactic(plan).parts
    if parts.orders == GLOBAL:
        plan = _fill_global_order(config, workload, model, plan, parts)
        orders = {i: _cost_global_order(config, model, i, plan.global_order) for i in config.stream_inputs}
    else:
        orders = {i: _choose_probe_order(config, model, plan, i, parts) for i in config.stream_inputs}
        aliases = [each.alias for each in config.inputs]
        plan = add_orders(plan, [(aliases[i], tuple(aliases[j] for j in each.order)) for i, each in orders.items()])
    probes = [
        probe_cost(config, workload, (i, *ordered.order), workload.inputs[i].kept_per_s.value * ordered.cost)
        for i, ordered in orders.items()
    ]
    return JoinPrediction(plan, (*model.upkeep_costs(), *probes))


def probe_cost(config: JoinConfig, workload: Workload, path: Sequence[int], cpu_per_s: float) -> OperatorCost:
    """Return the cost of the probes along a path of inputs, which starts at the input of the new row."""
    names = " → ".join(config.inputs[i].alias for i in path)
    return OperatorCost(f"probe {names}", cpu_per_s, workload.inputs[path[0]].kept_per_s.value)


def _fill_global_order(config: JoinConfig, workload: Workload, model: LoopModel, plan: Plan, parts: OpenParts) -> Plan:
    """Fill an open global order: the cheapest of all orders for a few inputs, the structural one for many."""
    if plan.global_order or plan.orders or len(config.inputs) > MAX_PERMUTED_INPUTS:
        return fill_by_structure(config, plan, parts)

    def cpu_per_s(names: tuple[str, ...]) -> float:
        return sum(
            workload.inputs[i].kept_per_s.value * _cost_global_order(config, model, i, names).cost
            for i in config.stream_inputs
        )

    return replace(plan, global_order=min(permutations(each.alias for each in config.inputs), key=cpu_per_s))


def _cost_global_order(config: JoinConfig, model: LoopModel, origin: int, names: tuple[str, ...]) -> ProbeOrder:
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


def _choose_probe_order(config: JoinConfig, model: LoopModel, plan: Plan, origin: int, parts: OpenParts) -> ProbeOrder:
    """Return the pinned order of an origin, or the cheapest one that the algorithm can run."""

    def fanout(known: frozenset[int], target: int) -> float:
        return model.fanout(origin, known, target)

    def loop_cost(known: frozenset[int], rows: float, target: int) -> float:
        return rows * model.loop_s(origin, known, target)

    pinned = plan.order(config.inputs[origin].alias)
    if pinned is None:
        allowed = (
            (lambda known, target: bool(config.classes.find_connections(target, sorted(known))))
            if parts.probes_by_key_only
            else None
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

"""Probe orders: the cheapest order of the loops for each origin, and the cost of an algorithm that runs in orders.

Most algorithms have the new rows in the outermost loop. In an order of the naive join, and of a general lazy one, they
may be in any loop. The loops outside theirs run before the new rows are known, once per evaluation.

The best order of loops for an origin is exact over subsets up to `MAX_EXACT_INPUTS` inputs, and greedy above.

References: Golab, Özsu, sections 3.1, 3.3 and 4.2, appendix A.
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
    """An order of inputs, its cost per row of the origin, and whether it is known to be the best.

    The order has the other inputs, or all inputs with the origin at its place.
    """

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
    if inputs > MAX_EXACT_INPUTS:
        return _greedy_order(origin, inputs, loop_cost, fanout, allowed)
    targets = [*preferred, *(i for i in range(inputs) if i not in preferred)]
    found = _search_subsets(frozenset({origin}), targets, inputs, loop_cost, fanout, allowed)
    return found or best_order(origin, inputs, loop_cost, fanout, preferred=preferred)


def _search_subsets(
    start: frozenset[int],
    targets: Sequence[int],
    inputs: int,
    loop_cost: LoopCost,
    fanout: Fanout,
    allowed: IsAllowed | None,
) -> ProbeOrder | None:
    """Return the cheapest order of all inputs that follow `start`, or None if none is allowed."""
    best: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {start: (0.0, 1.0, ())}
    for _ in range(inputs - len(start)):
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
            return None
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
    """Costs of an algorithm: its loops, by the origin and the inputs bound before, and the upkeep of its structures.

    Loops whose bound inputs do not include the origin run before the new rows are known. One evaluation joins
    `new_rows` rows of the origin together.
    """

    def fanout(self, origin: int, known: frozenset[int], target: int) -> float: ...

    def loop_s(self, origin: int, known: frozenset[int], target: int) -> float: ...

    def new_rows(self, origin: int) -> float: ...

    def upkeep_costs(self) -> list[OperatorCost]: ...


def predict_in_orders(config: JoinConfig, workload: Workload, model: LoopModel, plan: Plan) -> JoinPrediction:
    """Fill the orders that the plan leaves open with the cheapest ones, and predict the cost of its loops."""
    parts = find_tactic(plan).parts
    if parts.orders == GLOBAL:
        plan = _fill_global_order(config, workload, model, plan, parts)
    orders = {i: _choose_probe_order(config, model, plan, i, parts) for i in config.stream_inputs}
    if parts.orders != GLOBAL:
        aliases = [each.alias for each in config.inputs]
        plan = add_orders(plan, [(aliases[i], tuple(aliases[j] for j in each.order)) for i, each in orders.items()])
    probes = [
        _cost_probes(config, workload, i, ordered.order, workload.inputs[i].kept_per_s.value * ordered.cost)
        for i, ordered in orders.items()
    ]
    return JoinPrediction(plan, (*model.upkeep_costs(), *probes))


def probe_cost(config: JoinConfig, workload: Workload, path: Sequence[int], cpu_per_s: float) -> OperatorCost:
    """Return the cost of the probes along a path of inputs, which starts at the input of the new row."""
    return _cost_probes(config, workload, path[0], path[1:], cpu_per_s)


def _cost_probes(
    config: JoinConfig, workload: Workload, origin: int, order: Sequence[int], cpu_per_s: float
) -> OperatorCost:
    """Return the cost of the probes of an origin's new rows; the order has the origin only if it is not outermost."""
    names = describe_order(config.inputs[origin].alias, [config.inputs[i].alias for i in order])
    return OperatorCost(f"probe {names}", cpu_per_s, workload.inputs[origin].kept_per_s.value)


def describe_order(origin: str, order: Sequence[str]) -> str:
    """Describe the loops of an origin's new rows, from the outermost one.

    >>> describe_order("c", ["a", "b"]), describe_order("c", ["a", "b", "c"])
    ('c → a → b', 'c: a → b → c')
    """
    return f"{origin}: {' → '.join(order)}" if origin in order else " → ".join([origin, *order])


def find_pinned_order(config: JoinConfig, plan: Plan, origin: int) -> tuple[int, ...] | None:
    """Return the order in which the plan joins new rows of an origin, or None if the plan leaves it open.

    The order has the other inputs. It also has the origin if the new rows are not in the outermost loop.
    """
    pinned = plan.order(config.inputs[origin].alias)
    if pinned is None:
        return None
    order = tuple(config.aliases[name] for name in pinned)
    if find_tactic(plan).parts.places_new_rows(plan) and origin in order[1:]:
        return order
    return tuple(i for i in order if i != origin)


def _fill_global_order(config: JoinConfig, workload: Workload, model: LoopModel, plan: Plan, parts: OpenParts) -> Plan:
    """Fill an open global order: the cheapest of all orders for a few inputs, the structural one for many."""
    if plan.global_order or plan.orders or len(config.inputs) > MAX_PERMUTED_INPUTS:
        return fill_by_structure(config, plan, parts)

    def cpu_per_s(order: tuple[int, ...]) -> float:
        return sum(
            workload.inputs[i].kept_per_s.value * _cost_order(model, i, order if order[0] != i else order[1:])
            for i in config.stream_inputs
        )

    cheapest = min(permutations(range(len(config.inputs))), key=cpu_per_s)
    return replace(plan, global_order=tuple(config.inputs[i].alias for i in cheapest))


def _cost_order(model: LoopModel, origin: int, order: tuple[int, ...]) -> float:
    """Return the cost per new row of an origin. The order has the origin if other loops run outside that of its rows.

    References: Golab, Özsu, section 3.1 and appendix A, G and H.
    """
    placed = origin in order
    known, rows, cost = frozenset[int]() if placed else frozenset({origin}), 1.0, 0.0
    for target in order:
        cost += rows * model.loop_s(origin, known, target)
        rows *= model.fanout(origin, known, target)
        known |= {target}
    return cost / model.new_rows(origin) if placed else cost


def _choose_probe_order(config: JoinConfig, model: LoopModel, plan: Plan, origin: int, parts: OpenParts) -> ProbeOrder:
    """Return the pinned order of an origin, or the cheapest one that the algorithm can run."""
    pinned = find_pinned_order(config, plan, origin)
    if pinned is not None:
        return ProbeOrder(pinned, _cost_order(model, origin, pinned), exact=True)

    def fanout(known: frozenset[int], target: int) -> float:
        return model.fanout(origin, known, target)

    def loop_cost(known: frozenset[int], rows: float, target: int) -> float:
        return rows * model.loop_s(origin, known, target)

    def reaches_by_key(known: frozenset[int], target: int) -> bool:
        return not known or target == origin or bool(config.classes.find_connections(target, sorted(known)))

    allowed = reaches_by_key if parts.probes_by_key_only else None
    # On a tie, for example if no match is predicted, prefer the structural order: rows may still match.
    structural = [step.target for step in config.orders[origin]]
    first = best_order(origin, len(config.inputs), loop_cost, fanout, allowed, structural)
    if not parts.places_new_rows(plan):
        return first
    placed = _search_placed_order(config, model, origin, first, loop_cost, fanout, allowed)
    return placed if placed.cost < first.cost * (1 - _EQUAL_SHARE) else first


#: Costs closer than this share are equal: the new rows stay outermost.
_EQUAL_SHARE = 1e-9


def _search_placed_order(
    config: JoinConfig,
    model: LoopModel,
    origin: int,
    first: ProbeOrder,
    loop_cost: LoopCost,
    fanout: Fanout,
    allowed: IsAllowed | None,
) -> ProbeOrder:
    """Return the cheapest order with the new rows in any loop, given the best one with them outermost.

    With many inputs, only the place of the new rows in that order is searched.

    References: Golab, Özsu, sections 3.3 and 5.2.
    """
    inputs = len(config.inputs)
    if inputs <= MAX_EXACT_INPUTS:
        found = _search_subsets(frozenset(), (origin, *first.order), inputs, loop_cost, fanout, allowed)
        if found is not None and found.order[0] != origin:
            return replace(found, cost=found.cost / model.new_rows(origin))
        return first
    orders = [(*first.order[:place], origin, *first.order[place:]) for place in range(1, inputs)]
    if allowed is not None:
        orders = [order for order in orders if all(allowed(frozenset(order[:i]), order[i]) for i in range(inputs))]
    costed = [ProbeOrder(order, _cost_order(model, origin, order), exact=False) for order in orders]
    return min((first, *costed), key=lambda each: each.cost)

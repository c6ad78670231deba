"""Probe orders: the cheapest order of the loops for each origin, and the cost of an algorithm that runs in orders.

Most algorithms have the new rows in the outermost loop. In an order of the naive join, and of a general lazy one, they
may be in any loop. The loops outside theirs run before the new rows are known, once per evaluation.

The best order of loops for an origin is exact over subsets up to `MAX_EXACT_INPUTS` inputs. Above, heuristics
of the paper find it (`planner.order_heuristics`).

References: Golab, Özsu, sections 3.1, 3.3 and 4.2, appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Protocol

from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.config import JoinConfig
from watersmeet.operators.window_join.tactics.plan_defaults import add_orders, fill_by_structure
from watersmeet.operators.window_join.tactics.registry import find_tactic
from watersmeet.operators.window_join.tactics.tactic import GLOBAL, OpenParts
from watersmeet.planner.order_heuristics import (
    OrderCost,
    build_greedy_order,
    favour_fluctuating,
    improve_order,
    put_first,
)
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


@dataclass(frozen=True, slots=True)
class FavouredInputs:
    """Inputs that a heuristic puts near the top: no index, an expensive predicate, a rate that fluctuates."""

    unindexed: frozenset[int] = frozenset()
    expensive: frozenset[int] = frozenset()
    fluctuating: frozenset[int] = frozenset()


#: Whether an algorithm can bind the input after the set of inputs bound so far.
IsAllowed = Callable[[frozenset[int], int], bool]


def best_order(
    origin: int,
    inputs: int,
    loop_cost: LoopCost,
    fanout: Fanout,
    allowed: IsAllowed | None = None,
    preferred: Sequence[int] = (),
    favoured: FavouredInputs | None = None,
) -> ProbeOrder:
    """Return the cheapest allowed order, or the cheapest of all if none is allowed; on a tie, the `preferred` one.

    The cost of a loop depends on the set bound before it, not on the order of that set. So only the best way to reach
    each set counts.
    """
    if inputs > MAX_EXACT_INPUTS:
        return search_by_heuristics(origin, inputs, loop_cost, fanout, allowed, favoured)
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


def search_by_heuristics(
    origin: int,
    inputs: int,
    loop_cost: LoopCost,
    fanout: Fanout,
    allowed: IsAllowed | None = None,
    favoured: FavouredInputs | None = None,
) -> ProbeOrder:
    """Return the best allowed order that the heuristics of the paper find, or the best of all if none is allowed."""
    favoured = favoured or FavouredInputs()
    targets = [i for i in range(inputs) if i != origin]

    def is_allowed(known: frozenset[int], target: int) -> bool:
        return allowed is None or allowed(known, target)

    def cost(order: tuple[int, ...]) -> float:
        known, rows, found = frozenset({origin}), 1.0, 0.0
        for target in order:
            if not is_allowed(known, target):
                return math.inf
            found += loop_cost(known, rows, target)
            rows *= fanout(known, target)
            known |= {target}
        return found

    selective = build_greedy_order(
        [origin],
        targets,
        lambda known, i: (not is_allowed(known, i), fanout(known, i), loop_cost(known, 1.0, i)),
    )
    cheap = build_greedy_order(
        [origin], targets, lambda known, i: (not is_allowed(known, i), loop_cost(known, 1.0, i), fanout(known, i))
    )
    starts = (selective, cheap, put_first(selective, favoured.unindexed), put_first(selective, favoured.expensive))
    order, found = improve_order(starts, cost)
    if math.isinf(found):
        return search_by_heuristics(origin, inputs, loop_cost, fanout, None, favoured)
    return ProbeOrder(*favour_fluctuating(order, cost, favoured.fluctuating), exact=False)


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

    def favoured_inputs(self) -> FavouredInputs: ...

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
    """Fill an open global order: the cheapest of all orders for a few inputs, the best of the heuristics for many."""
    if plan.global_order or plan.orders or not config.stream_inputs:
        return fill_by_structure(config, plan, parts)
    inputs = range(len(config.inputs))

    def cpu_per_s(order: tuple[int, ...]) -> float:
        return sum(
            workload.inputs[i].kept_per_s.value * _cost_order(model, i, order if order[0] != i else order[1:])
            for i in config.stream_inputs
        )

    if len(inputs) <= MAX_PERMUTED_INPUTS:
        cheapest = min(permutations(inputs), key=cpu_per_s)
    else:
        # Ascending join sizes, then fast streams up: no input is the origin of all new rows.
        starts = [
            (first, *build_greedy_order([first], [i for i in inputs if i != first], partial(_rank_join_size, model)))
            for first in inputs
        ]
        cheapest, _ = improve_order(starts, cpu_per_s)
    return replace(plan, global_order=tuple(config.inputs[i].alias for i in cheapest))


def _rank_join_size(model: LoopModel, known: frozenset[int], target: int) -> tuple[float, ...]:
    return (model.fanout(NO_ORIGIN, known, target),)


#: Stands for the origin where all windows are joined as they are stored.
NO_ORIGIN = -1


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
    favoured = model.favoured_inputs()
    first = best_order(origin, len(config.inputs), loop_cost, fanout, allowed, structural, favoured)
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

    References: Golab, Özsu, section 3.3.
    """
    inputs = len(config.inputs)
    if inputs <= MAX_EXACT_INPUTS:
        found = _search_subsets(frozenset(), (origin, *first.order), inputs, loop_cost, fanout, allowed)
        if found is not None and found.order[0] != origin:
            return replace(found, cost=found.cost / model.new_rows(origin))
        return first

    def cost(order: tuple[int, ...]) -> float:
        runs = allowed is None or all(allowed(frozenset(order[:i]), each) for i, each in enumerate(order))
        return _cost_order(model, origin, order if order[0] != origin else order[1:]) if runs else math.inf

    return _move_new_rows(origin, first, fanout, cost)


def _move_new_rows(origin: int, first: ProbeOrder, fanout: Fanout, cost: OrderCost) -> ProbeOrder:
    """Return the best order with the new rows in any loop.

    The heuristics start with them at each place of the best order that has them outermost, and with orders by ascending
    join sizes from each input. There, the origin's window counts as the rows of the last τ.

    References: Golab, Özsu, section 5.2.
    """
    inputs = range(len(first.order) + 1)
    placed = [(*first.order[:place], origin, *first.order[place:]) for place in inputs]
    ascending = [
        (start, *build_greedy_order([start], [i for i in inputs if i != start], lambda known, i: (fanout(known, i),)))
        for start in inputs
    ]
    order, found = improve_order([*placed, *ascending], cost)
    return first if order[0] == origin else ProbeOrder(order, found, exact=False)

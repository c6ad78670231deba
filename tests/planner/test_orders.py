"""The best order over subsets is the best of all orders."""

from __future__ import annotations

import itertools
from random import Random

from watersmeet.planner import probe_orders
from watersmeet.planner.probe_orders import best_order


def test_the_order_found_over_subsets_costs_as_little_as_the_best_of_all() -> None:
    for seed in range(200):
        rng = Random(seed)
        count = rng.randint(1, 6)
        rows = [rng.choice((0.1, 1.0, 5.0, 300.0)) for _ in range(count)]
        tie = {(i, j): rng.choice((0.01, 0.5, 1.0)) for i in range(count) for j in range(count)}

        def growth(
            known: frozenset[int], target: int, rows: list[float] = rows, tie: dict[tuple[int, int], float] = tie
        ) -> float:
            return rows[target] * min(tie[min(i, target), max(i, target)] for i in known)

        def loop_cost(known: frozenset[int], combinations: float, target: int, rows: list[float] = rows) -> float:
            return combinations * rows[target]

        found = best_order(0, count, loop_cost, growth)
        best = min(_cost(order, loop_cost, growth) for order in itertools.permutations(range(1, count)))
        # Here the combinations of a set depend on the order, so the result may not be the best. Its reported cost
        # must still be its own.
        assert found.cost == _cost(found.order, loop_cost, growth)
        assert found.cost >= best
        assert sorted(found.order) == list(range(1, count))


def test_the_subset_search_is_exact_if_fanout_depends_on_the_set_alone() -> None:
    for seed in range(200):
        rng = Random(seed)
        count = rng.randint(2, 6)
        size = {
            frozenset(chosen): rng.uniform(0.1, 50)
            for n in range(1, count + 1)
            for chosen in itertools.combinations(range(count), n)
        }

        def growth(known: frozenset[int], target: int, size: dict[frozenset[int], float] = size) -> float:
            return size[known | {target}] / size[known]

        def loop_cost(known: frozenset[int], combinations: float, target: int) -> float:
            return combinations * (target + 1)

        found = best_order(0, count, loop_cost, growth)
        best = min(_cost(order, loop_cost, growth) for order in itertools.permutations(range(1, count)))
        assert abs(found.cost - best) <= 1e-9 * best


def test_orders_of_equal_cost_follow_the_preferred_one() -> None:
    found = best_order(0, 4, lambda known, rows, target: 0.0, lambda known, target: 1.0, preferred=(2, 3, 1))
    assert found.order == (2, 3, 1)


def test_only_allowed_orders_are_considered() -> None:
    def is_next_in_chain(known: frozenset[int], target: int) -> bool:
        return target - 1 in known

    assert best_order(
        0, 4, lambda known, rows, target: rows / (1 + target), lambda known, target: 1.0, is_next_in_chain
    ).order == (1, 2, 3)


def test_many_inputs_are_ordered_greedily_and_marked_as_inexact() -> None:
    count = probe_orders.MAX_EXACT_INPUTS + 1
    found = best_order(0, count, lambda known, rows, target: rows, lambda known, target: float(target))
    assert not found.exact
    assert found.order == tuple(range(1, count))


def _cost(order: tuple[int, ...], loop_cost: probe_orders.LoopCost, growth: probe_orders.Fanout) -> float:
    known, rows, cost = frozenset({0}), 1.0, 0.0
    for target in order:
        cost += loop_cost(known, rows, target)
        rows *= growth(known, target)
        known |= {target}
    return cost

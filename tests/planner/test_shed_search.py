"""Shed rates of many streams and of several trees, against slower searches."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import watersmeet as wm
from tests.planner.test_feasibility import COUNTED, scarce
from watersmeet.algebra.plan import Plan, Tree
from watersmeet.planner import costing_context
from watersmeet.planner.costing import cost_plan, estimate_rows_by_origin
from watersmeet.planner.costing_context import CostingContext, scale_rates
from watersmeet.planner.models.ayad_drops import Shares, climb_shares
from watersmeet.planner.plan_cost import CostedPlan
from watersmeet.planner.shed_search import find_approximation, find_best_shares, minimum_shares

RATES = [5_000, 200, 1_000, 50, 3_000, 700, 100, 2_000]
DISTINCT = [1_000, 3_000, 500, 20_000, 1_000, 2_000, 400, 900, 5_000]


def build_chain(streams: int) -> tuple[str, dict[str, wm.StreamStats]]:
    """Return a chain of equalities between neighbours, with rates and distinct values that differ by stream."""
    names = "abcdefgh"[:streams]
    sources = ", ".join(f"{name} [RANGE 10 SECONDS]" for name in names)
    equalities = " AND ".join(f"{left}.y = {right}.x" for left, right in itertools.pairwise(names))
    stats = {
        name: wm.stats(rate=RATES[i], distinct={"x": DISTINCT[i], "y": DISTINCT[i + 1]}, row_bytes=24)
        for i, name in enumerate(names)
    }
    return f"SELECT a.x FROM {sources} WHERE {equalities}", stats


def explain_half(streams: int) -> wm.Explanation:
    """Explain a chain with half the CPU it needs."""
    query, stats = build_chain(streams)
    needed = wm.explain(query, stats, budget=wm.Budget(processors=1e9)).chosen.cost.cpu_per_s
    return wm.explain(query, stats, budget=wm.Budget(processors=needed / 2))


def search_slowly(context: CostingContext, plans: list[Plan], starts: int, seed: int) -> float:
    """Climb with the cost model itself, in fine steps, from random starts; return the highest output."""
    rng, best = Random(seed), 0.0
    lowest = dict.fromkeys(context.rates, 1e-6)
    for _ in range(starts):
        plan = rng.choice(plans)
        start = {name: rng.random() ** rng.choice((0.2, 1, 3)) for name in lowest}
        full = context.cost(plan, start).plan
        if context.load_share(full, lowest) > 1:
            continue

        def output(keep: Shares, plan: Plan = full) -> float:
            return context.cost(plan, keep).cost.answer_per_s

        def load(keep: Shares, plan: Plan = full) -> float:
            return context.load_share(plan, keep)

        best = max(best, output(climb_shares(output, load, lowest, start, last_step=0.01)))
    return best


@pytest.mark.parametrize(("streams", "starts"), [(6, 4), (8, 2)])
def test_a_chain_of_many_streams_keeps_what_a_slow_search_keeps(streams: int, starts: int) -> None:
    about = explain_half(streams)
    assert about.remedies is not None
    found = about.remedies.approximation
    assert found is not None
    keep = dict(found.keep)
    assert max(keep.values()) / min(keep.values()) > 1.3, "streams differ, so their shares do"
    assert about.budget.load(found.costed.cost) <= 1
    context = CostingContext(about.config, about.workload, about.profile, about.budget)
    plans = [replace(about.plan, orders=()), replace(found.plan, orders=(), drop=()), Plan("runs"), Plan("tree")]
    slow = search_slowly(context, plans, starts, seed=streams)
    assert found.costed.cost.answer_per_s >= 0.95 * slow


def test_half_the_cpu_of_a_chain_keeps_more_than_a_third_of_its_output() -> None:
    """Equal rates for all streams kept a twelfth of the output of six streams, and a nineteenth of eight."""
    shares = [explain_half(streams).remedies.approximation.share_of_output for streams in (6, 8)]  # type: ignore[union-attr]
    assert shares[0] > 0.36
    assert shares[1] > 0.47


def test_the_shares_of_eight_streams_take_few_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prediction of eight streams takes milliseconds, so their number decides how long `explain` takes."""
    query, stats = build_chain(8)
    needed = wm.explain(query, stats, budget=wm.Budget(processors=1e9)).chosen.cost.cpu_per_s
    predicted: list[Plan] = []

    def count_plan(*given: Any) -> CostedPlan:
        predicted.append(given[-1])
        return cost_plan(*given)

    monkeypatch.setattr(costing_context, "cost_plan", count_plan)
    wm.explain(query, stats, budget=wm.Budget(processors=needed / 2))
    assert 0 < len(predicted) < 700


def list_trees(names: tuple[str, ...]) -> list[Tree]:
    if len(names) == 1:
        return [names[0]]
    first, *rest = names
    found: list[Tree] = []
    for size in range(len(rest)):
        for chosen in itertools.combinations(rest, size):
            others = tuple(name for name in rest if name not in chosen)
            found += [(left, right) for left in list_trees((first, *chosen)) for right in list_trees(others)]
    return found


@pytest.mark.parametrize("window", ["ROWS 300", "RANGE 3 SECONDS"])
def test_no_other_tree_has_a_higher_output_with_its_own_drop_boxes(window: str) -> None:
    """References: Ayad, Naughton, Figure 7."""
    rng = Random(window)
    query = f"SELECT a.x FROM a [{window}], b [{window}], c [{window}] WHERE a.x < b.x AND b.y < c.x"
    for _ in range(2):
        stats = {name: wm.stats(rate=10 ** rng.uniform(1.5, 3), row_bytes=24) for name in "abc"}
        rich = wm.explain(query, stats, plan=wm.plan("tree"), budget=wm.Budget(processors=1e9))
        budget = wm.Budget(processors=rich.chosen.cost.cpu_per_s / rng.choice((2, 5)))
        context = CostingContext(rich.config, rich.workload, rich.profile, budget)
        least = minimum_shares(context, wm.SheddingPolicy())
        trees = [Plan("tree", tree=tree) for tree in list_trees(("a", "b", "c"))]
        able = [plan for plan in trees if context.load_share(plan, least) <= 1]
        outputs = [context.cost(plan, find_best_shares(context, plan, least)).cost.answer_per_s for plan in able]
        assert find_approximation(context, [rich.plan]).costed.cost.answer_per_s >= max(outputs) * (1 - 2e-3)


@pytest.mark.parametrize("weights", [{"a": 5.0}, {"b": 3.0, "c": 40.0}])
def test_weighted_shares_of_rows_windows_are_exact(weights: dict[str, float]) -> None:
    now, plans = scarce(COUNTED, 0.4)
    policy = wm.SheddingPolicy(weights=weights)
    least = minimum_shares(now, policy)
    plan = now.cost(plans[0], {}).plan

    def weigh_output(keep: Shares) -> float:
        rows = estimate_rows_by_origin(now.config, scale_rates(now.config, now.workload, keep))
        return sum(each * weights.get(now.config.inputs[i].name, 1.0) for i, each in rows.items())

    best = find_best_shares(now, plan, least, policy)
    assert now.load_share(plan, best) <= 1 + 1e-9
    steps = [i / 24 for i in range(25)]
    grid = [
        {name: least[name] + part * (1 - least[name]) for name, part in zip(least, parts, strict=True)}
        for parts in itertools.product(steps, repeat=3)
    ]
    fitting = [weigh_output(keep) for keep in grid if now.load_share(plan, keep) <= 1]
    assert weigh_output(best) >= max(fitting) * (1 - 1e-3)
    unweighted = find_best_shares(now, plan, least)
    assert weigh_output(best) >= weigh_output(unweighted) * (1 - 1e-3)

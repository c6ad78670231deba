"""Drop boxes: the coefficients of Example 1 and Figure 7 to the digit; random drop settings never do better."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from tests.planner.models.test_ayad import random_query
from watersmeet.errors import PlanError
from watersmeet.planner.models.ayad import (
    JoinNode,
    PlanNode,
    RowBudget,
    SelectionNode,
    SideCosts,
    SourceNode,
    plan_cost,
    plan_text,
    sources_of,
)
from watersmeet.planner.models.ayad_drops import (
    ApproximatePlan,
    KnapsackItem,
    SheddingPolicy,
    best_approximation,
    best_drops,
    continuous_knapsack,
    source_coefficients,
)
from watersmeet.planner.models.ayad_search import MAX_LISTED_SOURCES, all_plans, best_plan
from watersmeet_lab.papers.ayad.models import example_1, example_1_plans, figure_7

ROW = SideCosts(probe_s=0.05)


def shares(found: ApproximatePlan) -> dict[str, float]:
    return dict(found.kept)


@pytest.mark.parametrize(("name", "costs"), [("a", (60, 120, 70)), ("b", (10, 60, 210)), ("c", (110, 20, 770))])
def test_the_knapsack_coefficients_of_example_1(name: str, costs: tuple[float, ...]) -> None:
    known = source_coefficients(example_1_plans(1.0)[name])
    assert tuple(known[source][0] for source in "ABC") == pytest.approx((100, 200, 700))
    assert tuple(known[source][1] for source in "ABC") == pytest.approx(costs)


def test_figure_7_in_numbers() -> None:
    figure = figure_7((0.001, 0.004, 0.02, 0.0210526, 0.022, 0.05, 0.08, 0.099, 0.1, 0.12))
    a, b, c = (figure.line(name) for name in "abc")
    assert [round(each[0]) for each in (a, b, c)] == [1000, 1000, 1000]
    assert round(a[1]) == 1000, "up to 0.004 plan (a) drops nothing"
    assert a[5] == pytest.approx(200), "at 0.05 (a) and (c) meet"
    assert c[5] == pytest.approx(200)
    assert [a[place] for place in range(5, 10)] == pytest.approx([c[place] for place in range(5, 10)])
    assert all(ours > theirs for ours, theirs in zip(a[1:5], c[1:5], strict=True))
    assert b[2] > c[2], "at 0.02 (b) is still ahead of (c)"
    assert b[3] == pytest.approx(c[3], rel=1e-5), "they meet at 1/47.5"
    assert all(theirs > ours for ours, theirs in zip(b[4:8], c[4:8], strict=True))
    assert [line[8] for line in (a, b, c)] == pytest.approx([100, 100, 100]), "from 0.1 on all are equal"
    assert [line[9] for line in (a, b, c)] == pytest.approx([1 / 0.012] * 3)


def test_the_drop_boxes_of_plan_a_at_5_milliseconds() -> None:
    found = best_drops(example_1_plans(0.005)["a"])
    assert shares(found)["C"] == 1
    assert found.cost.cpu == pytest.approx(1)
    assert found.output_rows_per_s == pytest.approx(700 + 130 * 100 / 60)


def test_a_feasible_plan_drops_nothing() -> None:
    found = best_drops(example_1_plans(0.001)["b"])
    assert not found.drops
    assert found.output_rows_per_s == 1000


def test_a_stream_may_be_guaranteed_a_least_rate() -> None:
    plan = example_1_plans(0.05)["a"]
    assert shares(best_drops(plan)) == pytest.approx({"A": 0, "B": 0, "C": 20 / 70})
    held = best_drops(plan, policy=SheddingPolicy(least_rows_per_s={"A": 1}))
    assert shares(held) == pytest.approx({"A": 0.1, "B": 0, "C": (20 - 6) / 70})
    assert held.cost.cpu == pytest.approx(1)
    with pytest.raises(PlanError, match="does not keep up even with the least"):
        best_drops(plan, policy=SheddingPolicy(least_rows_per_s={"A": 5, "B": 5}))
    with pytest.raises(PlanError, match='the policy keeps 11 rows/s of "A", but only 10 rows/s arrive'):
        best_drops(plan, policy=SheddingPolicy(least_rows_per_s={"A": 11}))


def test_a_weight_makes_a_stream_more_important_than_its_output() -> None:
    plan = example_1_plans(0.05)["a"]
    favoured = best_drops(plan, policy=SheddingPolicy(weights={"A": 10}))
    assert shares(favoured)["A"] == pytest.approx(20 / 60)
    assert shares(favoured)["C"] == 0
    assert favoured.output_rows_per_s < best_drops(plan).output_rows_per_s
    assert favoured.output_rows_per_s == pytest.approx(100 / 3), "the output that counts is the true one"


def test_two_sided_selectivities_change_the_kept_streams() -> None:
    one, many = SourceNode("one", 10, window_rows=10), SourceNode("many", 10, window_rows=10)
    even = best_drops(JoinNode(one, many, 0.1, None, ROW, ROW), RowBudget(processors=0.5))
    skewed = best_drops(JoinNode(one, many, 0.1, 0.5, ROW, ROW), RowBudget(processors=0.5))
    assert even.output_rows_per_s == pytest.approx(0.1 * 10 * 10)
    assert shares(skewed) == pytest.approx({"one": 0, "many": 1}), "rows from the many side meet five times as much"


def test_rows_are_dropped_before_filters_at_the_source_only() -> None:
    plan = SelectionNode(SelectionNode(SourceNode("s", 1000, window_rows=1), 0.5, 1e-3), 0.25, 5e-4)
    found = best_drops(plan)
    assert shares(found)["s"] == pytest.approx(0.8)
    assert found.output_rows_per_s == pytest.approx(0.8 * 125)


def within_budget(plan: PlanNode, drawn: dict[str, float], budget: RowBudget) -> dict[str, float]:
    """Scale random shares up or down alike until they use the budget; most would fall short of it."""
    low, high = 0.0, 1e6
    for _ in range(50):
        middle = (low + high) / 2
        scaled = {name: min(1.0, share * middle) for name, share in drawn.items()}
        low, high = (middle, high) if budget.load(plan_cost(plan, scaled)) <= 1 else (low, middle)
    return {name: min(1.0, share * low) for name, share in drawn.items()}


def random_settings_never_beat(plan: PlanNode, budget: RowBudget, tries: int, draw: Callable[[], float]) -> None:
    best = best_drops(plan, budget)
    assert budget.holds(best.cost)
    for _ in range(tries):
        drawn = within_budget(plan, {source.name: draw() for source in sources_of(plan)}, budget)
        assert plan_cost(plan, drawn).output.rows_per_s <= best.output_rows_per_s * (1 + 1e-7)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_thousands_of_random_drop_settings_never_beat_the_knapsack_in_example_1(name: str) -> None:
    rng = random.Random(1)
    for row_s in (0.005, 0.02, 0.06, 0.2):
        plan = example_1_plans(row_s)[name]
        best = best_drops(plan).output_rows_per_s
        for _ in range(1000):
            kept = {source: rng.random() ** 2 for source in "ABC"}
            cost = plan_cost(plan, kept)
            scale = min(1 / cost.cpu, 1 / max(kept.values()))
            assert cost.output.rows_per_s * scale <= best * (1 + 1e-9)


def test_random_drop_settings_never_beat_the_knapsack_in_random_plans() -> None:
    rng = random.Random(2)
    for count in (2, 3, 4):
        plan = rng.choice(all_plans(random_query(rng, count)))
        random_settings_never_beat(plan, RowBudget(processors=plan_cost(plan).cpu / 3), 60, rng.random)


def test_random_drop_settings_never_beat_the_shares_found_for_time_windows() -> None:
    rng = random.Random(3)
    for count in (2, 3, 4):
        plan = rng.choice(all_plans(random_query(rng, count, timed=True)))
        random_settings_never_beat(
            plan, RowBudget(processors=plan_cost(plan).cpu / 5), 60, lambda: 10 ** rng.uniform(-3, 0)
        )


def test_two_time_windows_are_shed_to_equal_cost() -> None:
    plan = JoinNode(SourceNode("a", 20, window_s=10), SourceNode("b", 80, window_s=10), 0.5, None, ROW, ROW)
    assert shares(best_drops(plan)) == pytest.approx({"a": 0.5, "b": 0.125}, rel=1e-3)
    slow = JoinNode(SourceNode("a", 5, window_s=10), SourceNode("b", 80, window_s=10), 0.5, None, ROW, ROW)
    assert shares(best_drops(slow)) == pytest.approx({"a": 1.0, "b": 15 / 80}, rel=1e-3), (
        "a stream cannot be kept more than whole"
    )


def test_dropping_shrinks_time_windows_but_not_count_windows() -> None:
    timed = JoinNode(SourceNode("a", 10, window_s=10), SourceNode("b", 10, window_s=10), 0.5)
    assert best_drops(timed, RowBudget(memory_rows=100)).cost.memory_rows == pytest.approx(100, rel=1e-3)
    counted = JoinNode(SourceNode("a", 10, window_rows=100), SourceNode("b", 10, window_rows=100), 0.5)
    with pytest.raises(PlanError, match="does not keep up"):
        best_drops(counted, RowBudget(memory_rows=100))


def test_the_best_plan_to_approximate_need_not_be_the_best_feasible_plan() -> None:
    """The scarcer the CPU, the less often the cheapest plan has the highest output."""
    rng = random.Random(5)
    gains = []
    for _ in range(40):
        query = random_query(rng, 4, row_s=0.01)
        cheapest = best_plan(query).plan
        found, naive = best_approximation(query), best_drops(cheapest)
        assert found.output_rows_per_s >= naive.output_rows_per_s * (1 - 1e-9)
        gains.append(found.output_rows_per_s / naive.output_rows_per_s)
    assert max(gains) > 1.2


def test_the_search_with_drop_boxes_over_example_1() -> None:
    assert plan_text(best_approximation(example_1(0.004)).plan) == "((A ⋈ B) ⋈ C)"
    assert best_approximation(example_1(0.02)).output_rows_per_s == pytest.approx(500)
    assert best_approximation(example_1(0.1)).output_rows_per_s == pytest.approx(100)
    with pytest.raises(PlanError, match="no plan has enough memory"):
        best_approximation(example_1(0.1), RowBudget(memory_rows=49))
    small = best_approximation(example_1(0.02), RowBudget(memory_rows=50))
    assert plan_text(small.plan) == "(A ⋈ (B ⋈ C))", "the only one that fits"


def test_improving_plans_and_drop_boxes_in_turn_is_close_to_trying_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    queries = [random_query(rng, 4, row_s=0.01) for _ in range(25)]
    exact = [best_approximation(query).output_rows_per_s for query in queries]
    assert MAX_LISTED_SOURCES >= 4
    monkeypatch.setattr("watersmeet.planner.models.ayad_drops.MAX_LISTED_SOURCES", 1)
    close = [best_approximation(query).output_rows_per_s for query in queries]
    ratios = sorted(ours / best for ours, best in zip(close, exact, strict=True))
    assert ratios[-1] <= 1 + 1e-9
    assert ratios[0] > 0.9
    assert ratios[len(ratios) // 10] > 0.999, "nine times out of ten it is the best"


def test_the_knapsack_takes_the_minimums_then_the_best_value() -> None:
    items = [
        KnapsackItem(gain=10, cost=10),
        KnapsackItem(gain=30, cost=10, least=0.1),
        KnapsackItem(gain=5, cost=0),
        KnapsackItem(gain=4, cost=8, least=0.5),
    ]
    assert continuous_knapsack(items, 16) == pytest.approx((0.2, 1.0, 1.0, 0.5))
    assert continuous_knapsack(items, 28) == pytest.approx((1, 1, 1, 1))
    assert continuous_knapsack(items, 5) == pytest.approx((0, 0.1, 1.0, 0.5))
    with pytest.raises(PlanError, match="the least shares cost 5, but the capacity is 4"):
        continuous_knapsack(items, 4)


def test_a_policy_with_unknown_streams_or_mixed_weights_is_refused() -> None:
    plan = example_1_plans(0.05)["a"]
    with pytest.raises(PlanError, match="the shedding policy names Z, but the plan has no such source"):
        best_drops(plan, policy=SheddingPolicy(weights={"Z": 2}))
    mixed = JoinNode(SourceNode("a", 10, window_s=10), SourceNode("b", 10, window_rows=10), 0.5, None, ROW, ROW)
    with pytest.raises(PlanError, match="not supported where count and time windows are mixed"):
        best_drops(mixed, policy=SheddingPolicy(weights={"a": 2}))
    with pytest.raises(PlanError, match="not linear"):
        source_coefficients(mixed)


def best_vertex(plan: PlanNode, cpu: float) -> float:
    """Return the highest output over all corners of the knapsack: every source whole or dropped, except one."""
    known = source_coefficients(plan)
    best = 0.0
    for partial in known:
        others = [name for name in known if name != partial]
        for chosen in itertools.product((0.0, 1.0), repeat=len(others)):
            kept = dict(zip(others, chosen, strict=True))
            left = cpu - sum(share * known[name][1] for name, share in kept.items())
            if left >= -1e-12:
                kept[partial] = min(1.0, max(left, 0.0) / known[partial][1])
                best = max(best, sum(share * known[name][0] for name, share in kept.items()))
    return best


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_search_agrees_with_every_corner_of_every_plan(count: int) -> None:
    rng = random.Random(11 * count)
    for _ in range(3 if count == 5 else 10):
        query = random_query(rng, count, row_s=0.01)
        cpu = best_plan(query).cost.cpu / rng.choice((1.5, 3, 10))
        exhaustive = max(best_vertex(plan, cpu) for plan in all_plans(query))
        assert best_approximation(query, RowBudget(processors=cpu)).output_rows_per_s == pytest.approx(
            exhaustive, rel=1e-9
        )


def test_ten_thousand_random_drop_settings_never_beat_the_knapsack() -> None:
    rng = random.Random(13)
    for count in (2, 3, 4, 5):
        plan = rng.choice(all_plans(random_query(rng, count, row_s=0.01)))
        budget = RowBudget(processors=plan_cost(plan).cpu / 4)
        best, known = best_drops(plan, budget).output_rows_per_s, source_coefficients(plan)
        for _ in range(10_000):
            kept = {name: rng.random() for name in known}
            scale = min(
                budget.cpu / sum(kept[name] * cost for name, (_, cost) in known.items()), 1 / max(kept.values())
            )
            assert scale * sum(kept[name] * gain for name, (gain, _) in known.items()) <= best * (1 + 1e-9)

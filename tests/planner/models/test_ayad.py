"""Binary plans: Example 1 to the digit, output that is the same for all plans, feasibility, and the best plan."""

from __future__ import annotations

import random

import pytest

from watersmeet.errors import PlanError
from watersmeet.planner.models.ayad import (
    JoinNode,
    NodeFlow,
    PlanNode,
    RelationJoinNode,
    RowBudget,
    SelectionNode,
    SideCosts,
    SourceNode,
    join_cpu,
    join_flow,
    nway_output,
    plan_cost,
    plan_text,
    sources_of,
)
from watersmeet.planner.models.ayad_search import (
    JoinPredicate,
    JoinQuery,
    SourceFilter,
    all_plans,
    best_plan,
    cost_by_structure,
    cost_per_row,
)
from watersmeet.planner.models.kang import PAPER_WEIGHTS
from watersmeet_lab.papers.ayad.models import A, B, C, example_1, example_1_plans

PLANS = "abc"


def random_query(rng: random.Random, count: int, row_s: float = 0.001, *, timed: bool = False) -> JoinQuery:
    sources = []
    for number in range(count):
        rate, size = rng.choice([1, 5, 20, 100]), rng.choice([2, 5, 10])
        sources.append(
            SourceNode(f"s{number}", rate, window_s=size)
            if timed
            else SourceNode(f"s{number}", rate, window_rows=5 * size)
        )
    ties = tuple(
        JoinPredicate(f"s{number}", f"s{rng.randrange(number)}", rng.choice([0.01, 0.1, 0.5]))
        for number in range(1, count)
    )
    return JoinQuery(tuple(sources), ties, cost_per_row(row_s))


def first_join(plan: PlanNode) -> JoinNode:
    """Return the join below the topmost one."""
    assert isinstance(plan, JoinNode)
    return next(each for each in (plan.left, plan.right) if isinstance(each, JoinNode))


def test_intermediate_rates_and_windows_of_example_1() -> None:
    inner = [plan_cost(first_join(plan)).output for plan in example_1_plans(0.0005).values()]
    assert [flow.rows_per_s for flow in inner] == [150, 180, 800]
    assert [flow.window_rows for flow in inner] == [50, 20, 100]


def test_buffers_rows_handled_and_utilisation_of_example_1() -> None:
    costs = [plan_cost(plan) for plan in example_1_plans(0.0005).values()]
    assert [cost.memory_rows for cost in costs] == [80, 50, 130]
    assert [cost.handled_rows_per_s for cost in costs] == [250, 280, 900]
    assert [f"{cost.cpu:.1%}" for cost in costs] == ["12.5%", "14.0%", "45.0%"], "the paper prints 50 % for the last"


@pytest.mark.parametrize(("row_s", "feasible"), [(0.0005, "abc"), (0.004, "a"), (0.005, "")])
def test_feasible_plans_of_example_1(row_s: float, feasible: str) -> None:
    held = [name for name, plan in example_1_plans(row_s).items() if RowBudget().holds(plan_cost(plan))]
    assert "".join(held) == feasible


def test_the_output_of_example_1_is_1000_rows_per_second_whatever_the_plan() -> None:
    outputs = [plan_cost(plan).output for plan in example_1_plans(0.001).values()]
    assert outputs == [nway_output([A, B, C], 0.1)] * 3
    assert outputs[0].rows_per_s == 1000


def test_processors_headroom_and_memory_bound_a_plan() -> None:
    cost = plan_cost(example_1_plans(0.005)["a"])
    assert cost.cpu == 1.25
    assert not RowBudget().holds(cost)
    assert RowBudget(processors=2).holds(cost)
    assert not RowBudget(processors=2, headroom=0.4).holds(cost)
    assert not RowBudget(processors=2, memory_rows=79).holds(cost)
    assert RowBudget(processors=2, memory_rows=80).holds(cost)


def test_the_two_orders_of_selections_of_figure_4() -> None:
    source = SourceNode("s", 1000, window_rows=1)
    first, second = (0.25, 5e-4), (0.5, 1e-3)
    plan_a = SelectionNode(SelectionNode(source, *first), *second)
    plan_b = SelectionNode(SelectionNode(source, *second), *first)
    assert plan_cost(plan_a).cpu == 0.5 + 0.25
    assert plan_cost(plan_b).cpu == 1 + 0.25
    assert RowBudget().holds(plan_cost(plan_a))
    assert not RowBudget().holds(plan_cost(plan_b))
    query = JoinQuery((source,), (), cost_per_row(0), (SourceFilter("s", *second), SourceFilter("s", *first)))
    assert best_plan(query).plan == plan_a


def test_a_selection_below_a_join_shrinks_its_window_so_that_both_plans_mean_the_same() -> None:
    """Figure 2: σ(A) ⋈ B and σ(A ⋈ B)."""
    below, above = JoinNode(SelectionNode(A, 0.3), B, 0.5), SelectionNode(JoinNode(A, B, 0.5), 0.3)
    assert plan_cost(below).output.rows_per_s == pytest.approx(plan_cost(above).output.rows_per_s)
    assert plan_cost(below).output.window_rows == pytest.approx(plan_cost(above).output.window_rows)
    assert plan_cost(below).memory_rows == 13
    assert plan_cost(above).memory_rows == 20


def test_a_time_window_holds_rate_times_length() -> None:
    timed, counted = SourceNode("a", 10, window_s=3), SourceNode("a", 10, window_rows=30)
    other = SourceNode("b", 20, window_rows=10)
    assert plan_cost(JoinNode(timed, other, 0.5)) == plan_cost(JoinNode(counted, other, 0.5))
    half = plan_cost(JoinNode(timed, other, 0.5), {"a": 0.5})
    assert half.output.rows_per_s == 0.5 * (10 * 5 + 15 * 20), "a drop box thins a time window out as well"


def test_a_relation_is_a_filter_whose_window_is_its_cardinality() -> None:
    stream = SourceNode("s", 100, window_rows=50)
    cost = plan_cost(RelationJoinNode(stream, relation_rows=1000, selectivity=0.002, cost_s=0.001, memory_rows=1000))
    assert cost.output == NodeFlow(200.0, 100.0)
    assert cost.cpu == pytest.approx(0.1)
    assert cost.memory_rows == 1000
    as_window = join_flow(NodeFlow(100, 50), NodeFlow(0, 1000), (0.002, 0.002))
    assert cost.output == as_window


def test_arrivals_probe_the_other_side_and_enter_their_own() -> None:
    left, right = (
        SideCosts(probe_s=1, insert_s=10, invalidate_s=100),
        SideCosts(probe_s=2, insert_s=20, invalidate_s=200),
    )
    assert join_cpu(NodeFlow(1, 5), NodeFlow(0, 5), left, right) == 2 + 10 + 100
    assert join_cpu(NodeFlow(0, 5), NodeFlow(1, 5), left, right) == 1 + 20 + 200


def test_two_sided_selectivities_separate_the_one_side_from_the_many() -> None:
    join = JoinNode(A, B, selectivity=0.1, right_selectivity=0.4)
    assert plan_cost(join).output.rows_per_s == 0.1 * 10 * 10 + 0.4 * 10 * 20
    assert plan_cost(JoinNode(A, B, 0.3, 0.3)).output == plan_cost(JoinNode(A, B, 0.3)).output


def test_a_two_sided_predicate_means_the_same_on_either_side() -> None:
    forth = JoinQuery((A, B), (JoinPredicate("A", "B", 0.1, 0.4),), cost_per_row(0))
    back = JoinQuery((A, B), (JoinPredicate("B", "A", 0.4, 0.1),), cost_per_row(0))
    assert best_plan(forth).plan == best_plan(back).plan == JoinNode(A, B, 0.1, 0.4)


def test_no_plan_changes_the_output_of_a_query() -> None:
    rng = random.Random(1)
    for count in (2, 3, 4, 5):
        query = random_query(rng, count)
        selectivity = 1.0
        for tie in query.predicates:
            selectivity *= tie.selectivity
        expected = nway_output(query.sources, selectivity)
        plans = all_plans(query)
        assert len(plans) == {2: 1, 3: 3, 4: 15, 5: 105}[count]
        for plan in plans:
            assert plan_cost(plan).output.rows_per_s == pytest.approx(expected.rows_per_s, rel=1e-9)
            assert plan_cost(plan).output.window_rows == pytest.approx(expected.window_rows, rel=1e-9)


def test_the_search_finds_the_least_cpu_or_memory_of_all_plans() -> None:
    rng = random.Random(2)
    for count in (3, 4, 5):
        for _ in range(5):
            query = random_query(rng, count, timed=rng.random() < 0.5)
            costs = [plan_cost(plan) for plan in all_plans(query)]
            plenty = RowBudget(processors=1e9)
            assert best_plan(query, plenty).cost.cpu == pytest.approx(min(cost.cpu for cost in costs))
            assert best_plan(query, plenty, "memory").cost.memory_rows == pytest.approx(
                min(cost.memory_rows for cost in costs)
            )


def test_the_search_respects_both_bounds() -> None:
    rng = random.Random(3)
    for _ in range(20):
        query = random_query(rng, 4)
        costs = [plan_cost(plan) for plan in all_plans(query)]
        memory_rows = sorted(cost.memory_rows for cost in costs)[3]
        budget = RowBudget(processors=1e9, memory_rows=memory_rows)
        found = best_plan(query, budget)
        assert found.feasible
        assert found.cost.cpu == pytest.approx(min(cost.cpu for cost in costs if cost.memory_rows <= memory_rows))


def test_plan_a_wins_example_1_by_cpu_and_plan_b_by_memory() -> None:
    assert plan_text(best_plan(example_1(0.0005)).plan) == "((A ⋈ B) ⋈ C)"
    assert plan_text(best_plan(example_1(0.0005), objective="memory").plan) == "(A ⋈ (B ⋈ C))"
    assert best_plan(example_1(0.004)).feasible
    assert not best_plan(example_1(0.005)).feasible


def test_many_sources_get_a_plan_that_is_marked_as_inexact() -> None:
    query = random_query(random.Random(4), 20)
    found = best_plan(query)
    assert not found.exact
    assert {source.name for source in sources_of(found.plan)} == {source.name for source in query.sources}
    assert found.cost == plan_cost(found.plan)
    assert best_plan(random_query(random.Random(4), 6)).exact


def test_structures_of_the_third_paper_can_price_the_joins() -> None:
    query = JoinQuery(example_1(0).sources, example_1(0).predicates, cost_by_structure(PAPER_WEIGHTS))
    found = best_plan(query)
    assert found.feasible
    assert found.cost.cpu == pytest.approx(min(plan_cost(plan).cpu for plan in all_plans(query)))


def test_invalid_plans_and_queries_are_refused() -> None:
    with pytest.raises(PlanError, match="a source occurs twice in a plan: A, A"):
        plan_cost(JoinNode(A, A, 0.5))
    with pytest.raises(PlanError, match="a drop box at Z, which is not a source"):
        plan_cost(A, {"Z": 0.5})
    with pytest.raises(PlanError, match='the share kept of "A" must be between zero and one'):
        plan_cost(A, {"A": 1.5})
    with pytest.raises(PlanError, match="predicates on D, which are not sources"):
        JoinQuery((A, B), (JoinPredicate("A", "D", 0.5),), cost_per_row(0))
    with pytest.raises(PlanError, match="7 sources have too many plans to list"):
        all_plans(random_query(random.Random(0), 7))

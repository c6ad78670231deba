"""Rules of the search: a trace line for each, a named culprit, and sensible buckets and trees."""

from __future__ import annotations

from dataclasses import replace

import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Index, Plan, tree_leaves
from watersmeet.errors import InternalError, PlanError
from watersmeet.planner.cost_of_trees import TreeModel
from watersmeet.planner.explain import Explanation
from watersmeet.planner.search import RULES, PlanSearch, Rule, search_plans

CHAIN = "SELECT a.k FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS] WHERE a.k = b.k AND b.j = c.j"
STATS = {
    "a": wm.stats(rate=1000, distinct={"k": 100}),
    "b": wm.stats(rate=10, distinct={"k": 100, "j": 10}),
    "c": wm.stats(rate=1000, distinct={"j": 10}),
}


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return wm.explain(CHAIN, STATS, all_plans=True)


def test_every_rule_leaves_a_line_in_the_trace(explanation: Explanation) -> None:
    assert [line.split(":")[0].replace(" ", "_") for line in explanation.trace] == [rule.__name__ for rule in RULES]
    assert "cheapest first" in str(explanation)
    assert explanation.to_dict()["trace"] == list(explanation.trace)


@pytest.mark.parametrize(
    ("breaks", "what"),
    [
        (lambda found: replace(found, plans=()), "left no plan"),
        (lambda found: replace(found, workload=replace(found.workload)), "changed the query or its workload"),
        (
            lambda found: found.with_plans([Plan("window-join", indexes=(("z", Index()),))]),
            "made plans that name no source",
        ),
        (lambda found: replace(found, costed=found.costed[1:]), "lost plans"),
        (lambda found: replace(found, trace=()), "changed the query or its workload"),
    ],
)
def test_a_rule_that_breaks_an_invariant_is_named(explanation: Explanation, breaks: Rule, what: str) -> None:
    def careless_rule(found: PlanSearch) -> PlanSearch:
        return breaks(found)

    with pytest.raises(InternalError, match=f'rule "careless_rule" of the planner {what}'):
        search_plans(
            explanation.bound,
            explanation.config,
            explanation.workload,
            explanation.profile,
            rules=(*RULES, careless_rule),
        )


def test_the_best_tree_joins_the_slow_stream_first_and_counts_its_state(explanation: Explanation) -> None:
    (tree,) = (each for each in explanation.others if each.plan.algorithm == "tree")
    assert tree.plan.tree is not None
    assert sorted(tree_leaves(tree.plan.tree)) == ["a", "b", "c"]
    assert ("a", "c") not in tree.plan.tree
    assert ("c", "a") not in tree.plan.tree
    assert tree.cost.state_rows > explanation.chosen.cost.state_rows
    assert any(part.name.startswith("join ") for part in tree.cost.operators)


def test_all_subsets_and_splits_find_a_tree_as_cheap_as_any(explanation: Explanation) -> None:
    model = TreeModel(explanation.config, explanation.workload, explanation.profile)
    costs = {
        tree: sum(part.cpu_per_s for part in model.operator_costs(tree))
        for tree in ((("a", "b"), "c"), (("a", "c"), "b"), (("b", "c"), "a"), ("a", ("b", "c")), ("b", ("a", "c")))
    }
    assert sum(part.cpu_per_s for part in model.operator_costs(model.best_tree())) <= min(costs.values()) * (1 + 1e-9)


def test_lazy_joins_are_proposed_with_intervals_that_suit_the_windows(explanation: Explanation) -> None:
    lazy = [each.plan for each in explanation.others if each.plan.evaluate_us]
    assert {plan.algorithm for plan in lazy} == {
        "naive-nlj",
        "lazy-nlj",
        "general-lazy-nlj",
        "lazy-hash",
        "hybrid-nlj-hash",
    }
    assert all(0 < plan.evaluate_us == plan.expire_us <= 9_000_000 for plan in lazy)


def test_the_objective_is_cpu_or_memory() -> None:
    spared = wm.explain(CHAIN, STATS, budget=wm.Budget(objective="memory"))
    assert spared.chosen.cost.state_bytes == min(each.cost.state_bytes for each in (spared.chosen, *spared.others))
    with pytest.raises(PlanError, match="objectives: cpu, memory"):
        wm.Budget(objective="beauty")


def test_spark_costs_appear_only_for_the_spark_engine() -> None:
    embedded, spark = wm.explain(CHAIN, STATS), wm.explain(CHAIN, STATS, engine="spark")
    assert "Spark" not in str(embedded)
    assert "Spark starts in about" in str(spark)
    assert spark.chosen.cost.cpu_per_s > embedded.chosen.cost.cpu_per_s
    assert spark.plan == embedded.plan

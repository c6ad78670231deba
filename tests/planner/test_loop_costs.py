"""The model of the nested loops counts what runs: the place of the new rows in an order decides the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

import watersmeet as wm
from watersmeet.planner.algorithms import ALGORITHMS

#: Table 5 of Golab and Özsu, with seconds as units of time.
TABLE_5 = """
    SELECT s1.k FROM s1 [RANGE 100 SECONDS], s2 [RANGE 100 SECONDS], s3 [RANGE 200 SECONDS], s4 [RANGE 100 SECONDS]
    WHERE s1.k = s2.k AND s1.k = s3.k AND s1.k = s4.k
"""
NAMES = ["s1", "s2", "s3", "s4"]
STATS = {
    name: wm.stats(rate=rate, distinct={"k": distinct})
    for name, rate, distinct in zip(NAMES, (10, 1, 1, 3), (500, 50, 40, 5), strict=True)
}


def test_a_naive_order_is_costed_with_the_new_rows_in_their_own_loop() -> None:
    naive = wm.explain(TABLE_5, STATS, plan=wm.plan("naive-nlj", order=NAMES))
    assert naive.chosen.cost.comparisons_per_s == pytest.approx(531_400), "appendix A, G1 to G4"
    assert "the loops compare 531,400 rows/s" in str(naive)
    eager = wm.explain(TABLE_5, STATS, plan=wm.plan("eager-nlj", order=NAMES))
    assert eager.chosen.cost.comparisons_per_s == pytest.approx(16_000), "appendix A, C1 to C4"
    assert naive.to_dict()["cost"]["comparisons_per_s"] == naive.chosen.cost.comparisons_per_s


def test_explain_prints_the_loop_of_the_new_rows_where_it_runs() -> None:
    naive = wm.explain(TABLE_5, STATS, plan=wm.plan("naive-nlj", order=NAMES))
    assert naive.to_dict()["orders"] == {"s1": ["s2", "s3", "s4"], **dict.fromkeys(NAMES[1:], NAMES)}
    text = str(naive)
    assert "  s1: s1 → s2 → s3 → s4\n" in text
    assert "  s3: s1 → s2 → s3 → s4\n" in text
    assert "probe s3: s1 → s2 → s3 → s4" in text
    orders = {"s1": ["s2", "s1", "s3", "s4"]}
    general = wm.explain(
        TABLE_5, STATS, plan=wm.plan("general-lazy-nlj", order=orders, evaluate="5 seconds", expire="5 seconds")
    )
    assert general.to_dict()["orders"]["s1"] == orders["s1"]
    eager = wm.explain(TABLE_5, STATS, plan=wm.plan("eager-nlj", order=NAMES))
    assert eager.to_dict()["orders"]["s3"] == ["s1", "s2", "s4"], "an eager join starts with the new row"


def test_a_general_lazy_join_scans_many_new_rows_innermost() -> None:
    # One stream is ten times as fast, and τ is half a window: Figure 3b of the paper, at its right end.
    stats = {name: wm.stats(rate=10 if name == "s4" else 1, distinct={"k": 50}) for name in NAMES}
    query = TABLE_5.replace("200", "100")
    lazy = {
        name: wm.explain(query, stats, plan=wm.plan(name, evaluate="50 seconds", expire="50 seconds"))
        for name in ("lazy-nlj", "general-lazy-nlj")
    }
    order = dict(lazy["general-lazy-nlj"].plan.orders)["s4"]
    assert order[-1] == "s4"
    assert lazy["general-lazy-nlj"].chosen.cost.cpu_per_s < lazy["lazy-nlj"].chosen.cost.cpu_per_s


def test_all_joins_of_golab_and_oezsu_are_compared_at_their_own_costs() -> None:
    found = wm.explain(TABLE_5, STATS, all_plans=True)
    loops = [name for name in ALGORITHMS if name.endswith(("-nlj", "-hash"))]
    compared = {each.plan.algorithm: each for each in (found.chosen, *found.others)}
    assert set(loops) <= set(compared)
    cheapest_naive = min(
        each.cost.cpu_per_s for each in found.others if each.plan.algorithm == "naive-nlj" and not each.plan.evaluate_us
    )
    assert cheapest_naive > compared["eager-nlj"].cost.cpu_per_s


@pytest.mark.parametrize("name", ["naive-nlj", "general-lazy-nlj", "lazy-hash", "hybrid-nlj-hash"])
def test_the_filled_orders_cost_no_more_than_the_orders_of_another_plan(name: str) -> None:
    tau_us = 0 if name == "naive-nlj" else 20_000_000

    def cost_cpu(order: list[str]) -> float:
        pinned = order if name == "naive-nlj" or not order else dict.fromkeys(NAMES, order)
        plan = replace(wm.plan(name, order=pinned), evaluate_us=tau_us, expire_us=tau_us)
        return wm.explain(TABLE_5, STATS, plan=plan).chosen.cost.cpu_per_s

    for order in (NAMES, NAMES[::-1], ["s3", "s1", "s4", "s2"]):
        assert cost_cpu([]) <= cost_cpu(order)

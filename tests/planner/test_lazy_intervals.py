"""The planner searches the evaluation interval of a lazy join: it is interior, and longer with more buckets."""

from __future__ import annotations

from dataclasses import replace

import pytest

import watersmeet as wm
from watersmeet.planner.lazy_intervals import SHARES, search_interval, set_interval
from watersmeet.planner.workload import ArrivalPattern

#: The join of Figure 4a: four equal windows of 100 units, here seconds.
FIGURE_4A = "SELECT a.k FROM {} WHERE a.k = b.k AND b.k = c.k AND c.k = d.k".format(
    ", ".join(f"{name} [RANGE 100 SECONDS]" for name in "abcd")
)
STATS = {name: wm.stats(rate=100, distinct={"k": 1000}) for name in "abcd"}


def explain_lazy(buckets: int, evaluate_us: int = 0) -> wm.Explanation:
    plan = wm.plan("lazy-hash", indexes=dict.fromkeys("abcd", f"hash({buckets})"))
    return wm.explain(FIGURE_4A, STATS, plan=set_interval(plan, evaluate_us) if evaluate_us else plan)


def test_the_interval_is_interior_and_grows_with_the_number_of_buckets() -> None:
    chosen = [explain_lazy(buckets).plan.evaluate_us for buckets in (100, 300, 1000)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]
    for buckets, interval_us in zip((100, 300, 1000), chosen, strict=True):
        assert 100e6 * SHARES[-1] < interval_us < 100e6
        best = explain_lazy(buckets).chosen.cost.cpu_per_s
        assert best < explain_lazy(buckets, 1_000).chosen.cost.cpu_per_s
        assert best < explain_lazy(buckets, 100_000_000).chosen.cost.cpu_per_s


def test_no_interval_of_a_grid_is_much_cheaper_than_the_chosen_one() -> None:
    best = explain_lazy(30).chosen.cost.cpu_per_s
    assert min(explain_lazy(30, 1_000_000 * step).chosen.cost.cpu_per_s for step in range(1, 60, 4)) > best / 1.02


def test_a_pinned_interval_stays() -> None:
    assert explain_lazy(30, 7_000_000).plan.evaluate_us == 7_000_000


def test_short_batches_make_lazy_plans_worthwhile() -> None:
    # Every batch of an eager join lays out the windows again; a lazy one joins the rows of many batches at once.
    about = explain_lazy(1000)
    short, long = (replace(about.workload, arrivals=ArrivalPattern(batch_s)) for batch_s in (0.1, 200.0))
    intervals = [
        search_interval(about.config, workload, about.profile, replace(about.plan, orders=(), evaluate_us=0))
        for workload in (short, long)
    ]
    assert intervals[0] is not None
    assert intervals[1] is not None
    assert intervals[0].evaluate_us > 10 * intervals[1].evaluate_us


@pytest.mark.parametrize("window", ["[ROWS 100]", "[LANDMARK]"])
def test_without_a_time_window_there_is_no_interval(window: str) -> None:
    query = f"SELECT a.k FROM a {window}, b {window} WHERE a.k = b.k"
    stats = {name: wm.stats(rate=100, distinct={"k": 1000}) for name in "ab"}
    about = wm.explain(query, stats, all_plans=True)
    assert not any(each.plan.evaluate_us for each in (about.chosen, *about.others))


def test_a_lazy_plan_is_chosen_only_if_results_may_wait() -> None:
    prompt = wm.explain(FIGURE_4A, STATS, all_plans=True)
    assert prompt.plan.evaluate_us == 0
    cheaper = [each for each in prompt.others if each.cost.cpu_per_s < prompt.chosen.cost.cpu_per_s]
    assert {each.plan.evaluate_us > 0 for each in cheaper} == {True}
    patient = wm.explain(FIGURE_4A, STATS, budget=wm.Budget(delay_s=5))
    assert 0 < patient.plan.evaluate_us <= 5_000_000
    assert patient.chosen.cost.cpu_per_s < prompt.chosen.cost.cpu_per_s
    with pytest.raises(wm.WatersmeetError, match="results cannot wait for a negative time"):
        wm.Budget(delay_s=-1)


def test_explain_states_how_long_results_wait() -> None:
    assert "results wait until the watermark passes the next evaluation, every 7 s of event time" in str(
        explain_lazy(30, 7_000_000)
    )

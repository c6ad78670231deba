"""The placement of early aggregation that the planner chooses, and its explanation."""

from __future__ import annotations

import pytest

import watersmeet as wm
from watersmeet.planner.explain import Explanation
from watersmeet.planner.models.tran import plan_name
from watersmeet_lab.bench.early_aggregation import CLEAR_SETTINGS, PAPER_SETTING, AggregationSetting
from watersmeet_lab.papers.tran.models import SHOWCASES


def explain_setting(setting: AggregationSetting) -> Explanation:
    streams = {
        alias: wm.stats(
            rate=each.rows_per_s, distinct={"j": round(1 / each.selectivity), "g": each.groups}, row_bytes=24
        )
        for alias, each in zip(setting.aliases, setting.inputs, strict=True)
    }
    return wm.explain(setting.query(), streams)


FIGURE_10 = tuple(AggregationSetting(best, inputs, rows=0) for best, inputs in SHOWCASES.items())


@pytest.mark.parametrize("setting", [*FIGURE_10, *CLEAR_SETTINGS], ids=lambda setting: setting.name)
def test_each_plan_is_chosen_where_the_paper_shows_it_and_where_it_measures_best(
    setting: AggregationSetting,
) -> None:
    found = explain_setting(setting)
    picked = plan_name({setting.aliases.index(alias) for alias in found.plan.early}, len(setting.aliases))
    assert picked == setting.name
    assert len(found.others) == 3
    assert found.notes[0].startswith(setting.name)


def test_the_default_setting_is_aggregated_early_and_predicted_to_gain_five_times_and_more() -> None:
    found = explain_setting(PAPER_SETTING)
    late = next(each for each in found.others if not each.plan.early)
    assert late.cost.cpu_per_s > 5 * found.chosen.cost.cpu_per_s


def test_explain_gives_the_reason_why_an_input_cannot_be_aggregated_early() -> None:
    streams = {name: wm.stats(rate=100, distinct={"k": 10}) for name in ("a", "b", "c")}
    found = wm.explain(
        """SELECT a.k, COUNT(*) AS n FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE], c [RANGE 1 MINUTE]
           WINDOW (a, b) = 5 SECONDS WHERE a.k = b.k AND b.k = c.k GROUP BY a.k""",
        streams,
    )
    assert set(found.plan.early) <= {"c"}
    assert '"a" cannot be aggregated early: WINDOW (a, b) compares the times of single rows' in str(found)
    assert [note for note in found.to_dict()["notes"] if note.startswith('"b"')]


def test_a_pinned_placement_is_explained() -> None:
    streams = {name: wm.stats(rate=100, distinct={"k": 10}) for name in ("a", "b")}
    query = "SELECT COUNT(*) AS n FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k"
    found = wm.explain(query, streams, plan=wm.plan(early=["a"]))
    assert found.plan.early == ("a",)
    assert {each.plan.early for each in found.others} == {(), ("b",), ("a", "b")}

"""Ranges and sources of predicted figures."""

import json

import pytest

import watersmeet as wm
from watersmeet.planner.ranges import DECLARED, Range

QUERY = "SELECT a.v, b.v FROM s [RANGE 10 SECONDS] AS a, r [RANGE 10 SECONDS] AS b WHERE a.k = b.k"


@pytest.fixture(scope="module")
def about() -> wm.Explanation:
    declared = wm.stats(rate=100, distinct={"k": 50}, row_bytes=24)
    return wm.explain(QUERY, {"s": declared, "r": declared})


@pytest.mark.parametrize("figure", ["cpu_per_s", "rows_out_per_s", "state_rows", "state_bytes"])
def test_a_range_is_a_pair_around_the_figure(about: wm.Explanation, figure: str) -> None:
    low, high = about.ranges[figure]
    assert 0 < low < getattr(about.chosen.cost, figure) < high


def test_declared_statistics_are_named_as_the_source(about: wm.Explanation) -> None:
    assert set(about.forecast.sources.values()) == {DECLARED}


def test_ranges_and_sources_are_in_the_json(about: wm.Explanation) -> None:
    facts = json.loads(json.dumps(about.to_dict()))
    assert tuple(facts["ranges"]["rows_out_per_s"]) == about.ranges["rows_out_per_s"]
    assert facts["sources"]["cpu_per_s"] == DECLARED


def test_the_ends_belong_to_a_range() -> None:
    assert Range(1, 2).contains(1)
    assert Range(1, 2).contains(2)
    assert not Range(1, 2).contains(2.1)

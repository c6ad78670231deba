"""The papers' algorithms: a regression test from Golab and Özsu, refused plans, and counted work."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.volume import scale_volume
from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError
from watersmeet.operators.window_join.tactics.registry import TACTICS
from watersmeet_lab.workloads.golab_streams import (
    TABLE_5,
    TABLE_6,
    TABLE_7,
    StreamSpec,
    run_join,
    stream_names,
    unit_us,
)

THREE_WAY = """
    SELECT s1.ts AS a, s2.ts AS b, s3.ts AS c
    FROM s1 [RANGE 100 MICROSECONDS], s2 [RANGE 100 MICROSECONDS], s3 [RANGE 100 MICROSECONDS]
    WHERE s1.attr = s2.attr AND s2.attr = s3.attr
"""


def _stream(*times: int, attr: int = 1) -> wm.Stream:
    return wm.stream(
        pa.table({"ts": pa.array(times, pa.int64()), "attr": pa.array([attr] * len(times), pa.int64())}), time="ts"
    )


def _build_plan(name: str) -> Plan:
    interval = "20 microseconds" if "lazy" in name else 0
    return wm.plan(name, evaluate=interval, expire=interval)


@pytest.mark.parametrize("name", TACTICS)
def test_a_row_that_expired_before_the_newest_row_came_is_in_no_result(name: str) -> None:
    #  Tables 2 and 3 of Golab and Özsu: windows of 100, the present is 210
    #  S1   90   100
    #  S2              150   180
    #  S3                          195   205        90 is out of reach of both, 100 of the second
    streams = {"s1": _stream(90, 100), "s2": _stream(150, 180), "s3": _stream(195, 205)}
    rows = wm.collect(THREE_WAY, streams, plan=_build_plan(name)).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(100, 150, 195), (100, 180, 195)]


@pytest.mark.parametrize("name", TACTICS)
def test_equal_times_on_every_stream_match_once(name: str) -> None:
    streams = {"s1": _stream(5, 5), "s2": _stream(5), "s3": _stream(5, 5)}
    assert wm.collect(THREE_WAY, streams, plan=_build_plan(name)).num_rows == 4


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (wm.plan("lazy-nlj", evaluate=5), "eager expiration would drop rows"),
        (wm.plan("lazy-nlj", evaluate=5, expire=4), "expiration may come at most as often"),
        (wm.plan("lazy-nlj", expire=5), "needs an evaluation interval"),
        (wm.plan("eager-nlj", evaluate=5, expire=5), "evaluates at every arrival"),
        (wm.plan("naive-nlj", order={"a": ["b"]}), "one order for all origins"),
        (wm.plan("eager-hash", indexes={"a": "btree"}), 'gives "a" a btree'),
        (wm.plan("eager-nlj", order=["a", "x"]), "not a source"),
        (wm.plan("eager-nlj", indexes={"a": "hash(3)"}), "has no indexes"),
        (wm.plan("mw-join", order=["a", "b"]), "has no global order"),
        (wm.plan("general"), "no algorithm"),
    ],
)
def test_options_that_an_algorithm_lacks_are_refused_with_the_reason(plan: Plan, reason: str) -> None:
    query = "SELECT a.ts AS x FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.attr = b.attr"
    with pytest.raises(PlanError, match=reason):
        wm.collect(query, {"a": _stream(1), "b": _stream(2)}, plan=plan)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (wm.plan("eager-hash"), "a hash index answers nothing but equality"),
        (wm.plan("hw-join"), "there is none"),
        (wm.plan("window-join", indexes={"a": "hash(3)"}), "no equality leads"),
    ],
)
def test_a_hash_index_on_a_theta_predicate_is_refused(plan: Plan, reason: str) -> None:
    query = "SELECT a.ts AS x FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.attr < b.attr"
    with pytest.raises(PlanError, match=reason):
        wm.collect(query, {"a": _stream(1), "b": _stream(2)}, plan=plan)


def test_only_the_merge_join_requires_one_window_for_all_pairs() -> None:
    query = (
        "SELECT a.ts AS x FROM a [RANGE 5 SECONDS], b [RANGE 9 SECONDS], c [RANGE 5 SECONDS] "
        "WHERE a.attr = b.attr AND b.attr = c.attr"
    )
    streams = {"a": _stream(1), "b": _stream(2), "c": _stream(3)}
    with pytest.raises(PlanError, match="gca"):
        wm.collect(query, streams, plan=wm.plan("mw-join"))
    for name in ("lca", "gca"):
        assert wm.collect(query, streams, plan=wm.plan(name)).num_rows == 1


#: A hundredth of the rows of Table 6 causes most of its work, so only very long runs average out. `make test` checks
#: every fourth of its 24 orders, `make test-long` all of them.
TABLE_6_STEP = max(1, 4 // scale_volume(1))


@pytest.mark.parametrize(
    ("streams", "step"), [(TABLE_5, 1), (TABLE_6, TABLE_6_STEP), (TABLE_7, 1)], ids=["table 5", "table 6", "table 7"]
)
def test_counted_comparisons_agree_with_the_papers_formula_in_any_order(
    streams: tuple[StreamSpec, ...], step: int
) -> None:
    for order in list(itertools.permutations(stream_names(streams)))[::step]:
        plan, rows = wm.plan("eager-nlj", order=order), 4000 * unit_us(streams)
        counted = run_join(streams, plan, rows, balanced=True, only_count=True).comparisons_per_unit
        assert counted == pytest.approx(_predict_comparisons(streams, order), rel=0.05), order


def _predict_comparisons(streams: tuple[StreamSpec, ...], order: tuple[str, ...]) -> float:
    """Return the comparisons of section 4.2: the rows that each loop scans per row of the outer loops, over origins."""
    by_name = dict(zip(stream_names(streams), streams, strict=True))
    total = 0.0
    for origin in order:
        passed, distinct = float(by_name[origin].rate), by_name[origin].distinct
        for other in (by_name[name] for name in order if name != origin):
            total += passed * other.rate * other.window
            passed *= other.rate * other.window / max(distinct, other.distinct)
            distinct = min(distinct, other.distinct)
    return total


def test_trees_answer_range_predicates_with_far_fewer_comparisons_than_a_list() -> None:
    query = (
        "SELECT a.ts AS x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.attr BETWEEN b.attr - 1 AND b.attr + 1"
    )
    times = pa.array(range(4000), pa.int64())
    values = pa.array([(7919 * i) % 100_003 for i in range(4000)], pa.int64())
    streams = {name: wm.stream(pa.table({"ts": times, "attr": values}), time="ts") for name in "ab"}
    counted = {}
    for kind in ("list", "btree(16)", "ttree(16)"):
        running = wm.run(query, streams, plan=wm.plan("window-join", indexes={"a": kind, "b": kind}))
        assert running.collect().num_rows == wm.collect(query, streams).num_rows
        counted[kind] = int(running.tally.comparisons.sum())
    assert counted["btree(16)"] * 20 < counted["list"] > 20 * counted["ttree(16)"]

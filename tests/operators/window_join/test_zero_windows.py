"""Joins over windows of length 0, which contain only the rows of the same instant, on timelines checked by hand."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.operators.window_join.tactics.registry import TACTICS

#: Every notation for rows of equal times.
SAME_INSTANT = {
    "RANGE": "FROM a [RANGE 0 SECONDS], b [RANGE 0 SECONDS] WHERE a.k = b.k",
    "WINDOW": "FROM a [WINDOW 0 SECONDS], b [WINDOW 0 SECONDS] WHERE a.k = b.k",
    "all pairs": "FROM a, b WINDOW = 0 SECONDS WHERE a.k = b.k",
    "pair": "FROM a [RANGE 1 HOUR], b WINDOW (a, b) = 0 SECONDS WHERE a.k = b.k",
    "directed pair": "FROM a, b [RANGE 1 HOUR] DWINDOW (a, b) = 0 SECONDS WHERE a.k = b.k",
}
MS = 1_000


def _stream(*rows: tuple[int, str]) -> wm.Stream:
    """Return a stream of ids at times in milliseconds, in one batch."""
    return wm.stream(_table(*rows), time="ts")


def _table(*rows: tuple[int, str]) -> pa.Table:
    times = pa.array([MS * time for time, _ in rows], pa.int64())
    return pa.table(
        {"ts": times.cast(pa.timestamp("us")), "k": pa.array([1] * len(rows)), "id": [row for _, row in rows]}
    )


def _sorted_ids(table: pa.Table) -> list[str]:
    return sorted("".join(row.values()) for row in table.to_pylist())


def _build_plan(name: str) -> Plan:
    """Return a plan without intervals: lazy joins get theirs from the query."""
    return wm.plan(name)


@pytest.mark.parametrize("name", TACTICS)
@pytest.mark.parametrize("form", SAME_INSTANT)
def test_only_rows_of_equal_times_match(form: str, name: str) -> None:
    #  ms   1    2      3    4
    #  a    A    BC          D
    #  b         xy     z    w
    a = _stream((1, "A"), (2, "B"), (2, "C"), (4, "D"))
    b = _stream((2, "x"), (2, "y"), (3, "z"), (4, "w"))
    query = f"SELECT a.id AS a, b.id AS b {SAME_INSTANT[form]}"
    assert _sorted_ids(wm.collect(query, {"a": a, "b": b}, plan=_build_plan(name))) == ["Bx", "By", "Cx", "Cy", "Dw"]


@pytest.mark.parametrize("name", TACTICS)
def test_a_microsecond_apart_is_too_far(name: str) -> None:
    a, b = (
        wm.stream(pa.table({"ts": pa.array(times, pa.int64()), "k": [1, 1]}), time="ts")
        for times in ([10, 20], [11, 20])
    )
    query = "SELECT a.ts AS x, b.ts AS y FROM a [RANGE 0 SECONDS], b [RANGE 0 SECONDS] WHERE a.k = b.k"
    assert wm.collect(query, {"a": a, "b": b}, plan=_build_plan(name)).to_pylist() == [{"x": 20, "y": 20}]


@pytest.mark.parametrize("name", TACTICS)
def test_a_row_in_a_zero_window_matches_only_as_the_latest_row(name: str) -> None:
    #  ms                1    2    3
    #  a [RANGE 0]       A         B        A has expired when x arrives; B matches x, which is still valid
    #  b [RANGE 1 ms]         x
    query = "SELECT a.id AS a, b.id AS b FROM a [RANGE 0 SECONDS], b [RANGE 1 MILLISECOND] WHERE a.k = b.k"
    assert _sorted_ids(
        wm.collect(query, {"a": _stream((1, "A"), (3, "B")), "b": _stream((2, "x"))}, plan=_build_plan(name))
    ) == ["Bx"]


def test_a_zero_window_joins_rows_and_tumble_windows_and_relations() -> None:
    #  ms               1    2    3    4      [TUMBLE 2 ms] starts at 2 and 4
    #  a [RANGE 0]      A         B
    #  b                x    y    z    w
    a, b = _stream((1, "A"), (3, "B")), _stream((1, "x"), (2, "y"), (3, "z"), (4, "w"))
    query = "SELECT a.id AS a, b.id AS b FROM a [RANGE 0 SECONDS], b [{}] WHERE a.k = b.k"
    assert _sorted_ids(wm.collect(query.format("ROWS 2"), {"a": a, "b": b})) == ["Ax", "By", "Bz"]
    assert _sorted_ids(wm.collect(query.format("TUMBLE 2 MILLISECONDS"), {"a": a, "b": b})) == ["Ax", "By", "Bz"]
    assert _sorted_ids(wm.collect(query.format("LANDMARK"), {"a": a, "b": b})) == ["Ax", "Bx", "By", "Bz"]
    names = wm.relation(pa.table({"k": [1], "name": ["one"]}))
    related = "SELECT a.id AS a, r.name FROM a [RANGE 0 SECONDS], r WHERE a.k = r.k"
    assert _sorted_ids(wm.collect(related, {"a": a, "r": names})) == ["Aone", "Bone"]


@pytest.mark.parametrize("name", TACTICS)
def test_rows_of_the_watermarks_instant_stay_for_later_batches_and_earlier_ones_are_evicted(name: str) -> None:
    #  batch         first        second
    #  a             1A 5B        5C 4D       4 is late: the watermark is 5
    #  b             1x 5y        5z
    a = wm.stream([_table((1, "A"), (5, "B")), _table((5, "C"), (4, "D"))], time="ts")
    b = wm.stream([_table((1, "x"), (5, "y")), _table((5, "z"))], time="ts")
    query = "SELECT a.id AS a, b.id AS b FROM a [RANGE 0 SECONDS], b [RANGE 0 SECONDS] WHERE a.k = b.k"
    found = wm.collect(query, {"a": a, "b": b}, plan=_build_plan(name))
    assert _sorted_ids(found) == ["Ax", "By", "Bz", "Cy", "Cz"]
    assert json.loads(found.schema.metadata[b"watersmeet"])["ledger"]["a"]["late"] == 1


def test_state_does_not_grow_with_the_stream() -> None:
    rounds = 50
    batches = {name: [_table((at, f"{name}{at}")) for at in range(rounds)] for name in "ab"}
    query = "SELECT a.id AS a, b.id AS b FROM a, b WINDOW = 0 SECONDS WHERE a.k = b.k"
    run = wm.run(query, {name: wm.stream(each, time="ts") for name, each in batches.items()})
    for at in range(rounds):
        assert len(run.advance({name: batches[name][at] for name in "ab"})) == 1
        assert run.state.rows <= 2

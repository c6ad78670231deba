"""Aggregates of the join's result set at an instant, and the rows emitted at each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.oracle import evaluations, every_instants, groups_at
from tests.oracle.tests.timelines import Timeline, bind_query, build_table
from watersmeet.errors import QueryError

GROUPED = (
    "SELECT a.k, COUNT(*), SUM(a.v), AVG(a.v), MIN(a.v), MAX(a.v) FROM a [RANGE 10 MICROSECONDS]"
    " GROUP BY a.k EVERY 10 MICROSECONDS"
)


def emit_rows(text: str, **timelines: Timeline) -> list[tuple[Any, ...]]:
    tables = {name: build_table(timeline) for name, timeline in timelines.items()}
    bound = bind_query(text, tables)
    return [(found.as_of_us, *found.row) for found in evaluations(bound, tables, every_instants(bound, tables))]


def test_aggregates_of_a_window_at_an_instant() -> None:
    #  µs   0   5   10   11
    #  k    x   x    y    x       at 10 all but the last are inside
    tables = {"a": build_table({"ts": [0, 5, 10, 11], "k": ["x", "x", "y", "x"], "v": [1, None, 5, 7]})}
    rows = groups_at(bind_query(GROUPED, tables), tables, 10)
    assert sorted(rows.values()) == [("x", 2, 1, 1.0, 1, 1), ("y", 1, 5, 5.0, 5, 5)]


def test_changed_groups_are_emitted_and_an_emptied_group_once_more() -> None:
    #  µs   0   10   20   30   40
    #  x    1
    #  y         2              3
    found = emit_rows(GROUPED, a={"ts": [0, 10, 40], "k": ["x", "y", "y"], "v": [1, 2, 3]})
    assert found == [
        (0, "x", 1, 1, 1.0, 1, 1),
        (10, "y", 1, 2, 2.0, 2, 2),
        (20, "x", 0, None, None, None, None),
        (30, "y", 0, None, None, None, None),
        (40, "y", 1, 3, 3.0, 3, 3),
    ]


def test_every_row_is_in_its_window_at_the_instant_not_at_the_last_row() -> None:
    #  a 0 and b 5 match, but at 20 neither is inside any more
    text = "SELECT COUNT(*) FROM a [RANGE 9 MICROSECONDS], b [RANGE 9 MICROSECONDS] EVERY 10 MICROSECONDS"
    assert emit_rows(text, a=[1, 20], b=[5]) == [(10, 1), (20, 0)]


def test_evaluation_begins_at_the_first_multiple_that_sees_a_row_also_before_the_epoch() -> None:
    text = "SELECT COUNT(*) FROM a [LANDMARK] EVERY 10 MICROSECONDS"
    assert emit_rows(text, a=[-15, -10, 3]) == [(-10, 2)]
    assert emit_rows(text, a=[]) == []


def test_having_filters_what_is_emitted() -> None:
    text = "SELECT a.k, COUNT(*) FROM a [LANDMARK] GROUP BY a.k HAVING COUNT(*) > 1 EVERY 1 MICROSECOND"
    assert emit_rows(text, a={"ts": [1, 2, 2], "k": ["x", "x", "y"]}) == [(2, "x", 2)]


def test_a_sum_that_overflows_names_its_column() -> None:
    tables = {"a": pa.table({"ts": [0, 0], "v": [2**62, 2**62]})}
    with pytest.raises(QueryError, match=r"a\.v"):
        groups_at(bind_query("SELECT SUM(a.v) FROM a [LANDMARK] EVERY 1 SECOND", tables), tables, 0)

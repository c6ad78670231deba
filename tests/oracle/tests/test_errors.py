"""Which errors count, by the oracle.

Own predicates come first, operands of one source always count, and predicates over several count on results only.
"""

from __future__ import annotations

import pytest

from tests.oracle.tests.timelines import join_timelines
from watersmeet.errors import QueryError

LARGEST = 2**63 - 1
QUERY = "SELECT a.x, b.x FROM a [RANGE 5 MICROSECONDS], b [RANGE 5 MICROSECONDS] WHERE "


def test_a_row_that_fails_its_own_predicate_is_evaluated_nowhere_else() -> None:
    rows = {"ts": [0, 1], "x": [LARGEST, 3]}
    assert join_timelines(QUERY + "b.x + 1 = a.x AND b.x < 9", a={"ts": [0], "x": [4]}, b=rows) == [(4, 3)]


def test_false_beats_an_error_in_any_order() -> None:
    rows = {"ts": [0, 1], "x": [LARGEST, 3]}
    assert join_timelines(QUERY + "b.x + 1 > 0 AND b.x < 9", a={"ts": [0], "x": [4]}, b=rows) == [(4, 3)]


def test_an_operand_of_one_source_raises_even_where_its_row_meets_nothing() -> None:
    with pytest.raises(QueryError, match="overflow"):
        join_timelines(QUERY + "a.x < b.x + 1", a={"ts": [0], "x": [1]}, b={"ts": [1000], "x": [LARGEST]})


def test_a_part_that_only_some_rows_reach_is_no_operand() -> None:
    query = QUERY + "CASE WHEN a.x > 5 THEN b.x + 1 ELSE 2 END = 2"
    assert join_timelines(query, a={"ts": [0], "x": [1]}, b={"ts": [0], "x": [LARGEST]}) == [(1, LARGEST)]


def test_an_error_over_several_sources_counts_on_what_would_be_a_result() -> None:
    a, b = {"ts": [0], "x": [LARGEST]}, {"ts": [0], "x": [3]}
    assert join_timelines(QUERY + "a.x * b.x > 5 AND a.x = b.x", a=a, b=b) == []
    assert join_timelines(QUERY + "a.x * b.x > 5", a=a, b={"ts": [6], "x": [3]}) == []
    with pytest.raises(QueryError, match="overflow"):
        join_timelines(QUERY + "a.x * b.x > 5 AND a.x + b.x > 5", a=a, b=b)

"""Errors that count: a row that fails its source's own predicates is evaluated nowhere else, in any plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, QueryError
from watersmeet.operators.window_join.tactics.registry import TACTICS

LARGEST = 2**63 - 1

KINDS = "SELECT a.k AS k FROM a [RANGE 10 SECONDS], b [{window}] WHERE b.kind = 'n' AND CAST(b.f AS BIGINT) = a.k"


def build_plan(name: str) -> Plan:
    interval = "2 seconds" if "lazy" in name else 0
    return wm.plan(name, evaluate=interval, expire=interval)


def stream(**columns: Sequence[Any]) -> wm.Stream:
    rows = len(next(iter(columns.values())))
    table = pa.table(
        {"ts": pa.array(range(rows), pa.timestamp("s")), **{name: pa.array(values) for name, values in columns.items()}}
    )
    return wm.stream(table, time="ts")


def kinds() -> dict[str, wm.Stream]:
    return {"a": stream(k=[2, 1, 3]), "b": stream(kind=["n", "x", "n"], f=[1.0, math.nan, 3.0])}


def outcome(query: str, streams: dict[str, wm.Stream], plan: Plan | None = None) -> object:
    """Return the sorted rows, the word "raises", or None if the algorithm does not run the query."""
    try:
        return sorted(tuple(row.values()) for row in wm.collect(query, streams, plan=plan).to_pylist())
    except QueryError:
        return "raises"
    except PlanError:
        return None


def outcomes(query: str, streams: dict[str, wm.Stream]) -> list[object]:
    """Return the different outcomes of all algorithms that run the query, and of the default plan."""
    found = [outcome(query, streams), *(outcome(query, streams, build_plan(name)) for name in TACTICS)]
    return [each for at, each in enumerate(found) if each is not None and each not in found[:at]]


@pytest.mark.parametrize("window", ["RANGE 10 SECONDS", "ROWS 3", "PARTITION BY kind ROWS 1", "TUMBLE 10 SECONDS"])
def test_a_key_is_not_computed_for_rows_that_fail_their_own_predicate(window: str) -> None:
    assert outcomes(KINDS.format(window=window), kinds()) == [[(1,), (3,)]]


def test_a_rejected_row_still_counts_in_a_rows_window() -> None:
    assert outcomes(KINDS.format(window="ROWS 1"), kinds()) == [[(3,)]]


def test_no_argument_or_key_of_an_aggregation_is_computed_for_rejected_rows() -> None:
    query = """
        SELECT CAST(b.f AS BIGINT) AS g, SUM(CAST(b.f AS BIGINT) + 1) AS n, MAX(CAST(b.f AS INT)) AS m
        FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS]
        WHERE b.kind = 'n' AND CAST(b.f AS BIGINT) = a.k GROUP BY CAST(b.f AS BIGINT)
    """
    for plan in (None, wm.plan(early=["b"]), wm.plan(early=["a", "b"])):
        rows = wm.collect(query, kinds(), plan=plan).to_pylist()
        assert sorted((row["g"], row["n"], row["m"]) for row in rows) == [(1, 2, 1), (3, 4, 3)]


@pytest.mark.parametrize(
    "where",
    [
        "CAST(b.f AS BIGINT) > 0 AND b.kind = 'n'",
        "b.kind = 'n' AND CAST(b.f AS BIGINT) > 0",
        "CAST(b.f AS BIGINT) > 0 AND NULLIF(b.kind, 'x') = 'n'",
        "CAST(b.f AS BIGINT) > 0 AND CAST(b.f AS INT) > 0 AND b.kind = 'n'",
        "CAST(b.f AS BIGINT) BETWEEN 1 AND 3 AND b.kind = 'n'",
    ],
)
def test_an_own_predicate_that_is_false_or_null_beats_one_that_raises_in_any_order(where: str) -> None:
    query = f"SELECT a.k AS k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.f AND {where}"
    streams = kinds() | {"a": stream(k=[2.0, 1.0, 3.0])}
    assert outcomes(query, streams) == [[(1.0,), (3.0,)]]


def test_two_own_predicates_that_raise_on_rows_the_other_rejects() -> None:
    streams = {"b": stream(x=[1, LARGEST, -LARGEST, 2])}
    query = "SELECT b.x AS x FROM b [RANGE 1 SECOND] WHERE b.x - 2 < 5 AND b.x + 2 > -5"
    assert outcome(query, streams) == [(1,), (2,)]


def test_an_own_predicate_that_raises_where_no_other_rejects_the_row_stops_the_query() -> None:
    query = "SELECT b.x AS x FROM b [RANGE 1 SECOND] WHERE b.x + 1 > 0 AND b.x > 0"
    assert outcome(query, {"b": stream(x=[1, LARGEST])}) == "raises"


@pytest.mark.parametrize(
    "where",
    [
        "a.x < b.x + 1",
        "a.x = b.x + 1",
        "a.x + b.x > 0 AND a.x < b.x + 1",
        "a.x BETWEEN b.x - 1 AND b.x + 1",
        "a.x IN (b.x + 1, 2)",
    ],
)
def test_an_operand_of_one_source_raises_in_every_plan_even_where_its_row_matches_nothing(where: str) -> None:
    query = f"SELECT a.x AS x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE {where}"
    streams = {"a": stream(x=[1, 1, 1, 1, 1, 1]), "b": stream(x=[LARGEST])}
    far = {
        "a": stream(x=[1]),
        "b": wm.stream(pa.table({"ts": pa.array([99], pa.timestamp("s")), "x": [LARGEST]}), time="ts"),
    }
    assert outcomes(query, streams) == ["raises"]
    assert outcomes(query, far) == ["raises"]


def test_the_same_row_raises_nothing_if_it_is_late_or_fails_its_own_predicate() -> None:
    query = "SELECT a.x AS x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.x < b.x + 1"
    times = [
        pa.table({"ts": pa.array(ts, pa.timestamp("s")), "x": x}) for ts, x in (([100, 101], [1, 2]), ([5], [LARGEST]))
    ]
    late = {"a": stream(x=[1]), "b": wm.stream(times, time="ts")}
    assert outcome(query, late | {"a": wm.stream([times[0]], time="ts")}) != "raises"
    assert outcomes(f"{query} AND b.x < 9", {"a": stream(x=[1]), "b": stream(x=[LARGEST])}) == [[]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a.x * b.x > 5", "raises"),
        ("a.x * b.x > 5 AND a.k = b.k", [(3,)]),  # the pair on which it raises has other keys
        ("a.x * b.x > 5 AND a.k + b.k = 4", [(3,)]),
        ("a.k + b.k = 4 AND a.x * b.x > 5", [(3,)]),
        ("a.x * b.x > 5 AND a.x + b.x > 5 AND a.k - b.k = 0", [(3,)]),
        ("CASE WHEN a.k = b.k THEN a.x * b.x ELSE 9 END > 5 AND a.k = 2", [(3,), (3,)]),
    ],
)
def test_an_error_in_a_predicate_over_two_sources_counts_on_what_would_be_a_result(
    where: str, expected: object
) -> None:
    query = f"SELECT a.x AS x FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE {where}"
    streams = {"a": stream(x=[LARGEST, 3], k=[1, 2]), "b": stream(x=[LARGEST, 3], k=[5, 2])}
    assert outcomes(query, streams) == [expected]


def test_between_is_two_predicates_so_a_false_half_beats_one_that_raises() -> None:
    query = "SELECT a.x AS x FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.x BETWEEN b.x AND a.x * b.x"
    streams = {"a": stream(x=[-LARGEST, 4]), "b": stream(x=[3])}
    assert outcomes(query, streams) == [[(4,)]]


def test_partial_matches_on_which_a_predicate_raises_stay_until_another_stream_decides() -> None:
    query = """
        SELECT a.x AS x FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS]
        WHERE a.x * b.x > 5 AND b.k + c.k = {sum}
    """
    streams = {"a": stream(x=[LARGEST, 3]), "b": stream(x=[3, 3], k=[1, 2]), "c": stream(k=[5])}
    assert outcomes(query.format(sum=6), streams) == ["raises"]
    assert outcomes(query.format(sum=9), streams) == [[]]
    small = streams | {"a": stream(x=[3, 3])}
    assert outcomes(query.format(sum=6), small) == [[(3,), (3,)]]


def test_outputs_are_evaluated_on_results_only() -> None:
    query = "SELECT a.x + 1 AS y FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k"
    streams = {"a": stream(x=[LARGEST, 3], k=[1, 2]), "b": stream(k=[2])}
    assert outcomes(query, streams) == [[(4,)]]
    assert outcomes(query, streams | {"b": stream(k=[1])}) == ["raises"]


def test_errors_of_an_aggregation_do_not_depend_on_where_it_aggregates() -> None:
    query = """
        SELECT COUNT(*) AS n FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS]
        WHERE a.k = b.k AND a.x * b.x > 5 AND a.x + b.x < {most}
    """
    streams = {"a": stream(x=[LARGEST, 3], k=[1, 1]), "b": stream(x=[3], k=[1])}
    plans = (None, wm.plan(early=["b"]), wm.plan(early=["a", "b"]))
    assert [outcome(query.format(most=9), streams, plan) for plan in plans] == ["raises"] * 3
    fine = streams | {"a": stream(x=[LARGEST, 3], k=[2, 1])}
    rows = [wm.collect(query.format(most=9), fine, plan=plan).column("n").to_pylist() for plan in plans]
    assert rows == [[1]] * 3

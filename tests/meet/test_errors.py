"""Which errors count: a row that fails its source's own predicates is evaluated nowhere else, and no error depends on the plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.algebra.plan import Plan
from watersmeet.errors import PlanError, QueryError
from watersmeet.operators.meet.tactics.registry import TACTICS

LARGEST = 2**63 - 1

KINDS = "SELECT a.k AS k FROM a [RANGE 10 SECONDS], b [{window}] WHERE b.kind = 'n' AND CAST(b.f AS BIGINT) = a.k"


def plan_of(name: str) -> Plan:
    interval = "2 seconds" if "lazy" in name else 0
    return wm.plan(name, evaluate=interval, expire=interval)


def stream(**columns: Sequence[Any]) -> wm.Stream:
    rows = len(next(iter(columns.values())))
    table = pa.table({"ts": pa.array(range(rows), pa.timestamp("s")), **{name: pa.array(values) for name, values in columns.items()}})
    return wm.stream(table, time="ts")


def kinds() -> dict[str, wm.Stream]:
    return {"a": stream(k=[2, 1, 3]), "b": stream(kind=["n", "x", "n"], f=[1.0, math.nan, 3.0])}


def outcome(query: str, streams: dict[str, wm.Stream], plan: Plan | None = None) -> object:
    """The rows, sorted; or the word "raises"; or None where the algorithm does not run the query."""
    try:
        return sorted(tuple(row.values()) for row in wm.collect(query, streams, plan).to_pylist())
    except QueryError:
        return "raises"
    except PlanError:
        return None


def outcomes(query: str, streams: dict[str, wm.Stream]) -> list[object]:
    """The different outcomes over all algorithms that run the query, and without a plan."""
    found = [outcome(query, streams), *(outcome(query, streams, plan_of(name)) for name in TACTICS)]
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
        rows = wm.collect(query, kinds(), plan).to_pylist()
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

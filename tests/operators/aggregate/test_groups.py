"""Groups that an aggregation query emits, on timelines small enough to check by hand."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import InputError, PlanError, QueryError

Row = tuple[Any, ...]


def collect_shown_rows(
    query: str, early: tuple[str, ...] = (), evaluate: str | None = None, **tables: dict[str, list[Any]] | pa.Table
) -> list[Row]:
    """Rows in the order of evaluation, `as_of` first, in microseconds."""
    streams = {
        name: wm.stream(table if isinstance(table, pa.Table) else pa.table(table), time="ts")
        for name, table in tables.items()
    }
    table = wm.collect(query, streams, plan=wm.plan(early=early), evaluate=evaluate)
    as_of = table.column("as_of").cast(pa.int64()).to_pylist()
    rest = [tuple(row.values()) for row in table.drop_columns(["as_of"]).to_pylist()]
    return sorted(((at, *row) for at, row in zip(as_of, rest, strict=True)), key=str)


def test_as_of_is_the_last_column_and_a_point_in_time() -> None:
    table = wm.collect("SELECT COUNT(*) AS n FROM a [LANDMARK]", {"a": wm.stream(pa.table({"ts": [5]}), time="ts")})
    assert table.column_names == ["n", "as_of"]
    assert table.schema.field("as_of").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("early", [(), ("a",), ("b",), ("a", "b")])
def test_a_group_that_empties_is_shown_once_more_with_count_zero(early: tuple[str, ...]) -> None:
    #  µs   0   10   20   30
    #  a    x                    [RANGE 10]
    #  b    x         x          [RANGE 10]
    query = """SELECT a.k, COUNT(*) AS n, SUM(b.v) AS s, MIN(b.v) AS lo
               FROM a [RANGE 10 MICROSECONDS], b [RANGE 10 MICROSECONDS]
               WHERE a.k = b.k GROUP BY a.k EVERY 10 MICROSECONDS"""
    found = collect_shown_rows(
        query, early, a={"ts": [0], "k": ["x"]}, b={"ts": [0, 20, 40], "k": ["x", "x", "y"], "v": [4, 5, 6]}
    )
    assert found == [(0, "x", 1, 4, 4), (20, "x", 0, None, None)]


def test_a_group_whose_row_stays_the_same_is_not_shown_again() -> None:
    query = "SELECT MAX(a.v) AS m FROM a [LANDMARK] EVERY 1 MICROSECOND"
    assert collect_shown_rows(query, a={"ts": [1, 2, 3], "v": [7, 5, 9]}) == [(1, 7), (3, 9)]


def test_a_group_that_stops_satisfying_having_is_silent() -> None:
    query = (
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 2 MICROSECONDS] GROUP BY a.k HAVING COUNT(*) > 1 EVERY 1 MICROSECOND"
    )
    assert collect_shown_rows(query, a={"ts": [1, 2, 9], "k": ["x", "x", "x"]}) == [(2, "x", 2)]


def test_minimum_after_the_smallest_has_left() -> None:
    query = "SELECT MIN(a.v) AS lo, MAX(a.v) AS hi FROM a [ROWS 2] EVERY 1 MICROSECOND"
    assert collect_shown_rows(query, a={"ts": [1, 2, 3, 4], "v": [1, 5, 3, 3]}) == [
        (1, 1, 1),
        (2, 1, 5),
        (3, 3, 5),
        (4, 3, 3),
    ]


def test_text_and_decimals_have_a_smallest_and_a_largest() -> None:
    table = pa.table({"ts": [1, 2, 3], "s": ["b", "é", "a"], "d": pa.array([Decimal("1.10"), Decimal("-2.00"), None])})
    query = "SELECT MIN(a.s) AS lo, MAX(a.s) AS hi, MIN(a.d) AS least, SUM(a.d) AS total FROM a [LANDMARK]"
    assert collect_shown_rows(query, a=table) == [(3, "a", "é", Decimal("-2.00"), Decimal("-0.90"))]


def test_nan_is_the_largest_number_and_makes_every_sum_nan_until_it_leaves() -> None:
    query = "SELECT SUM(a.x) AS s, MIN(a.x) AS lo, MAX(a.x) AS hi FROM a [ROWS 2] EVERY 1 MICROSECOND"
    found = collect_shown_rows(query, a={"ts": [1, 2, 3, 4], "x": [1.0, math.nan, 2.0, 4.0]})
    assert [str(row) for row in found] == [
        "(1, 1.0, 1.0, 1.0)",
        "(2, nan, 1.0, nan)",
        "(3, nan, 2.0, nan)",
        "(4, 6.0, 2.0, 4.0)",
    ]


def test_infinities_can_be_subtracted_again() -> None:
    query = "SELECT SUM(a.x) AS s FROM a [ROWS 1] EVERY 1 MICROSECOND"
    found = collect_shown_rows(query, a={"ts": [1, 2, 3], "x": [math.inf, -math.inf, 0.5]})
    assert found == [(1, math.inf), (2, -math.inf), (3, 0.5)]


def test_sums_of_floats_do_not_drift() -> None:
    #  a huge value comes and goes; the other values are still exact to the last digit
    values = [0.1, 1e17, 0.2, 0.3]
    query = "SELECT SUM(a.x) AS s FROM a [ROWS 2] EVERY 1 MICROSECOND"
    found = collect_shown_rows(query, a={"ts": [1, 2, 3, 4], "x": values})
    assert found[-1] == (4, 0.5)


@pytest.mark.parametrize("early", [(), ("a",)])
def test_a_sum_that_overflows_is_an_error_that_names_the_column(early: tuple[str, ...]) -> None:
    with pytest.raises(QueryError, match=r"integer overflow in the sum of a\.v"):
        collect_shown_rows("SELECT SUM(a.v) AS s FROM a [LANDMARK]", early, a={"ts": [0, 0], "v": [2**62, 2**62]})


def test_a_sum_that_only_overflows_on_the_way_is_right() -> None:
    found = collect_shown_rows(
        "SELECT SUM(a.v) AS s FROM a [LANDMARK]", a={"ts": [0, 1, 2], "v": [2**62, 2**62, -(2**62)]}
    )
    assert found == [(2, 2**62)]


def test_the_sum_of_a_product_over_two_inputs_may_overflow_too() -> None:
    query = "SELECT SUM(a.v) AS s FROM a [LANDMARK], b [LANDMARK]"
    with pytest.raises(QueryError, match=r"a\.v"):
        collect_shown_rows(query, ("b",), a={"ts": [0], "v": [2**62]}, b={"ts": [0, 0]})


def test_nulls_are_not_counted_and_an_all_null_sum_is_null() -> None:
    table = pa.table({"ts": [1, 1], "v": pa.array([None, None], pa.int64())})
    assert collect_shown_rows(
        "SELECT COUNT(*) AS n, COUNT(a.v) AS c, SUM(a.v) AS s, AVG(a.v) AS m FROM a [LANDMARK]", a=table
    ) == [(1, 2, 0, None, None)]


def test_group_keys_may_be_null_nan_and_zero_of_either_sign() -> None:
    table = pa.table({"ts": [1] * 6, "x": pa.array([None, None, math.nan, math.nan, 0.0, -0.0])})
    found = collect_shown_rows("SELECT a.x, COUNT(*) AS n FROM a [LANDMARK] GROUP BY a.x", a=table)
    assert sorted(str(row) for row in found) == ["(1, 0.0, 2)", "(1, None, 2)", "(1, nan, 2)"]


def test_without_every_a_table_is_shown_once_at_its_largest_time() -> None:
    found = collect_shown_rows(
        "SELECT a.k, COUNT(*) AS n FROM a [RANGE 5 MICROSECONDS] GROUP BY a.k",
        a={"ts": [1, 8, 9], "k": ["x", "y", "y"]},
    )
    assert found == [(9, "y", 2)]


def test_evaluation_at_every_row() -> None:
    found = collect_shown_rows(
        "SELECT COUNT(*) AS n FROM a [RANGE 5 MICROSECONDS]", evaluate="row", a={"ts": [1, 8, 9]}
    )
    assert found == [(1, 1), (9, 2)]  # at 8 the row at 1 has expired and the one at 8 is inside: still one


def test_instants_without_a_change_cost_nothing() -> None:
    #  a row a day apart, evaluated every microsecond
    day_us = 86_400_000_000
    found = collect_shown_rows(
        "SELECT COUNT(*) AS n FROM a [RANGE 1 SECOND] EVERY 1 MICROSECOND", a={"ts": [0, day_us]}
    )
    assert found == [(0, 1), (1_000_001, 0), (day_us, 1)]


def test_an_output_called_as_of_is_refused() -> None:
    with pytest.raises(QueryError, match="as_of"):
        collect_shown_rows("SELECT COUNT(*) AS as_of FROM a [LANDMARK]", a={"ts": [1]})


def test_distinct_inside_an_aggregate_is_refused() -> None:
    with pytest.raises(QueryError, match="DISTINCT inside an aggregate"):
        wm.sql("SELECT COUNT(DISTINCT a.x) FROM a [LANDMARK]")


def test_early_aggregation_is_refused_where_times_of_single_rows_are_compared() -> None:
    query = "SELECT COUNT(*) AS n FROM a [LANDMARK], b [LANDMARK] WINDOW (a, b) = 5 MICROSECONDS"
    with pytest.raises(PlanError, match=r"compares the times of single rows"):
        collect_shown_rows(query, ("a",), a={"ts": [1]}, b={"ts": [3]})
    assert collect_shown_rows(query, a={"ts": [1]}, b={"ts": [3]}) == [(3, 1)]


def test_early_aggregation_of_an_unknown_source_is_refused() -> None:
    with pytest.raises(PlanError, match="not a source"):
        collect_shown_rows("SELECT COUNT(*) AS n FROM a [LANDMARK]", ("z",), a={"ts": [1]})


def test_a_join_has_nothing_to_aggregate_early() -> None:
    with pytest.raises(PlanError, match="early"):
        wm.collect(
            "SELECT a.ts FROM a [ROWS 1]", {"a": wm.stream(pa.table({"ts": [1]}), time="ts")}, plan=wm.plan(early=["a"])
        )


def test_only_aggregations_are_evaluated_and_only_by_row() -> None:
    streams = {"a": wm.stream(pa.table({"ts": [1]}), time="ts")}
    with pytest.raises(InputError, match="evaluate is for aggregation queries"):
        wm.collect("SELECT a.ts FROM a [ROWS 1]", streams, evaluate="row")
    with pytest.raises(InputError, match="no evaluation"):
        wm.collect("SELECT COUNT(*) FROM a [ROWS 1]", streams, evaluate="rows")
    with pytest.raises(InputError, match="EVERY"):
        wm.collect("SELECT COUNT(*) FROM a [ROWS 1] EVERY 1 SECOND", streams, evaluate="row")


def test_late_rows_are_counted_in_the_ledger() -> None:
    batches = [pa.table({"ts": [10_000]}), pa.table({"ts": [20_000]}), pa.table({"ts": [1_000]})]
    run = wm.run("SELECT COUNT(*) AS n FROM a [LANDMARK]", {"a": wm.stream(batches, time="ts")})
    found = [row for batch in run.batches() for part in batch for row in part.to_pylist()]
    assert [row["n"] for row in found] == [1, 2]
    assert run.ledger["a"].late == 1

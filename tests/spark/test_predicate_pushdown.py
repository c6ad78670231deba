"""A predicate that is pushed down to the JVM gives the same result there as here, on every edge case."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.algebra.expressions import Expr
from watersmeet.algebra.schema import StreamSchema
from watersmeet.operators.expressions import evaluate
from watersmeet.runtime.spark.predicate_pushdown import translate_predicate
from watersmeet.sql.binder import bind

NAN = float("nan")
EDGES = pa.table(
    {
        "ts": pa.array(range(8), pa.int64()),
        "x": pa.array([NAN, 0.0, -0.0, 1.5, None, float("inf"), -1.5, NAN]),
        "y": pa.array([NAN, -0.0, 0.0, None, None, NAN, -1.5, 1.0]),
        "n": pa.array([None, 0, -1, 2**31 - 1, 1, None, 5, 5], pa.int64()),
        "s": pa.array(["", "a", "A", None, "é", "z", "\U0001f600", "\uffff"]),
        "d": pa.array([dt.date(2024, 2, 29), None, *[dt.date(1969, 12, 31)] * 6]),
        "b": pa.array([True, False, None, None, True, False, True, False]),
    }
)
PUSHED_DOWN = [
    "x = y",
    "x <> y",
    "x < y",
    "x >= y",
    "x BETWEEN y AND x",
    "NOT (x > y OR b)",
    "b AND x = x",
    "s < 'a'",
    "s >= 'é'",
    "s IN ('', 'a')",
    "s IS NULL",
    "n IS NOT NULL AND b",
    "n > 0",
    "n IN (0, 5)",
    "d = DATE '2024-02-29'",
    "b = FALSE",
]
NOT_PUSHED_DOWN = [
    "x / 0 > 1",
    "LOWER(s) = 'a'",
    "n + 1 > 0",
    "s LIKE 'a%'",
    "CAST(n AS VARCHAR) = '5'",
    "CASE WHEN b THEN x > 1 END",
]


def bind_predicate(predicate: str) -> Expr:
    schema = StreamSchema("t", EDGES.schema, "ts")
    where = bind(wm.sql(f"SELECT t.n FROM t [RANGE 1 SECOND] WHERE {predicate}"), {"t": schema}).where
    assert where is not None
    return where


def test_predicates_give_the_same_results_in_the_jvm(spark: SparkSession) -> None:
    exprs = {predicate: bind_predicate(predicate) for predicate in PUSHED_DOWN}
    columns = {predicate: translate_predicate(expr, EDGES.schema) for predicate, expr in exprs.items()}
    assert [predicate for predicate, column in columns.items() if column is None] == []
    frame = spark.createDataFrame(EDGES).select(
        *(column.alias(str(n)) for n, column in enumerate(columns.values()) if column is not None)
    )
    found = dict(zip(PUSHED_DOWN, zip(*frame.collect(), strict=True), strict=True))
    for predicate, expr in exprs.items():
        expected = evaluate(expr, lambda column: EDGES.column(column.name).combine_chunks(), len(EDGES))
        assert (predicate, list(found[predicate])) == (predicate, expected.to_pylist())


@pytest.mark.parametrize("predicate", NOT_PUSHED_DOWN)
def test_predicates_that_spark_evaluates_differently_are_not_pushed_down(spark: SparkSession, predicate: str) -> None:
    assert translate_predicate(bind_predicate(predicate), EDGES.schema) is None

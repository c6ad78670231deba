"""The same rows raise errors on Spark as in one process, for any buckets and any place of evaluation."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, table_to_rows
from watersmeet.errors import QueryError

LARGEST = 2**63 - 1
KEYS = "SELECT a.k, b.f FROM a [RANGE 9 SECONDS], b [{window}] WHERE b.kind = 'n' AND CAST(b.f AS BIGINT) = a.k"
SUMS = """
    SELECT CAST(b.f AS BIGINT) AS g, COUNT(*) AS n FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS]
    WHERE b.kind = 'n' AND CAST(b.f AS BIGINT) = a.k GROUP BY CAST(b.f AS BIGINT)
"""


def a(*keys: int | None) -> pa.Table:
    return pa.table({"ts": seconds(range(len(keys))), "k": pa.array(keys, pa.int64())})


def b(kinds: str, values: list[float]) -> pa.Table:
    return pa.table({"ts": seconds(range(len(kinds))), "kind": list(kinds), "f": values})


def seconds(values: Any) -> pa.Array[Any]:
    return pa.array([1_700_000_000 + value for value in values], pa.timestamp("s"))


@pytest.mark.parametrize(
    "query",
    [KEYS.format(window="RANGE 9 SECONDS"), KEYS.format(window="ROWS 2"), SUMS],
    ids=["keys", "counted rows", "groups"],
)
@pytest.mark.parametrize("in_the_jvm", [True, False], ids=["frames", "tables"])
def test_no_other_expression_is_evaluated_on_rejected_rows(spark: SparkSession, query: str, in_the_jvm: bool) -> None:
    tables = {"a": a(2, 1, 3), "b": b("nxn", [1.0, math.nan, 3.0])}
    sources = {
        name: wm.stream(spark.createDataFrame(table) if in_the_jvm else table, time="ts")
        for name, table in tables.items()
    }
    expected = wm.collect(query, {name: wm.stream(table, time="ts") for name, table in tables.items()})
    assert collect_rows(wm.on_spark(query, sources, session=spark, buckets=3)) == table_to_rows(expected)


@pytest.mark.parametrize(
    "where",
    ["a.k = b.k AND b.x + 1 > a.k", "a.k = b.k AND b.x + 1 > 0", "a.k = b.k + 1 AND b.x * 2 = a.k"],
    ids=["an operand", "an own predicate", "two keys"],
)
def test_late_rows_raise_no_errors_and_other_rows_do(spark: SparkSession, where: str) -> None:
    query = f"SELECT a.k FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE {where}"
    first = pa.table({"ts": seconds([100, 101]), "k": [1, 2], "x": [1, 2]})
    # The row matches nothing, because its key is NULL.
    bad = pa.table({"ts": seconds([50]), "k": pa.array([None], pa.int64()), "x": [LARGEST]})
    for batches, raises in (([first, bad], False), ([bad, first], True)):
        sources = {"a": wm.stream([first.select(["ts", "k"])], time="ts"), "b": wm.stream(batches, time="ts")}
        if not raises:
            expected = table_to_rows(wm.collect(query, sources))
            assert collect_rows(wm.on_spark(query, sources, session=spark, buckets=3)) == expected
            continue
        with pytest.raises(QueryError, match="overflow"):
            wm.collect(query, sources)
        with pytest.raises(Exception, match="overflow"):
            collect_rows(wm.on_spark(query, sources, session=spark, buckets=3))

"""Values behave the same on Spark as embedded: decimals next to doubles, integer times of any unit, nested columns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, table_to_rows
from watersmeet.runtime.spark.spark_errors import translate_errors

PRICES = [Decimal(cents).scaleb(-2) for cents in range(0, 2_000, 3)]
CENTS = pa.array(PRICES, pa.decimal128(7, 2))
TIMES = pa.array([0] * len(CENTS), pa.timestamp("us", "UTC"))
DECIMALS = pa.table({"ts": TIMES, "price": CENTS})
DOUBLES = pa.table({"ts": TIMES, "price": [float(price) for price in PRICES]})


@pytest.mark.parametrize("kind", ["tables", "files", "frames"])
def test_a_decimal_equals_the_double_of_the_same_text(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    query = """
        SELECT a.price AS a, b.price AS b FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND]
        WHERE a.price = b.price AND a.price > 1.14 AND NOT a.price > 4.35 AND a.price <> 1.17
    """
    streams = {
        name: wm.stream(make_source(spark, tmp_path / name, table, kind), time="ts")
        for name, table in (("a", DECIMALS), ("b", DOUBLES))
    }
    expected = [price for price in PRICES if Decimal("1.14") < price <= Decimal("4.35") and price != Decimal("1.17")]
    found = collect_rows(wm.on_spark(query, streams, session=spark, buckets=4))
    assert found == table_to_rows(
        pa.table({"a": pa.array(expected, CENTS.type), "b": [float(price) for price in expected]})
    )


def test_the_average_of_one_decimal_is_its_nearest_double(spark: SparkSession) -> None:
    query = "SELECT price, AVG(price) AS mean FROM a [LANDMARK] GROUP BY price HAVING AVG(price) = price EVERY 1 SECOND"
    found = wm.on_spark(query, {"a": wm.stream(DECIMALS, time="ts")}, session=spark, buckets=2).toArrow()
    prices = [price for price in found["price"].to_pylist() if price is not None]
    assert sorted(prices) == CENTS.to_pylist()
    assert [float(price) for price in prices] == found["mean"].to_pylist()


SECONDS = pa.table({"ts": [1_700_000_000 + each for each in (0, 5, 60)]})
MILLISECONDS = pa.table({"ts": [(1_700_000_000 + each) * 1_000 for each in (2, 8, 59)]})
NEAR = "SELECT a.ts, b.ts AS other FROM a [RANGE 2 SECONDS], b [RANGE 2 SECONDS]"


@pytest.mark.parametrize("kind", ["tables", "files", "frames"])
def test_integer_times_are_read_in_their_declared_unit(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    streams = {
        "a": wm.stream(make_source(spark, tmp_path / "a", SECONDS, kind), time="ts", unit="s"),
        "b": wm.stream(make_source(spark, tmp_path / "b", MILLISECONDS, kind), time="ts", unit="ms"),
    }
    found = collect_rows(wm.on_spark(NEAR, streams, session=spark))
    assert found == {(1_700_000_000, 1_700_000_002_000): 1, (1_700_000_060, 1_700_000_059_000): 1}


@pytest.mark.parametrize("kind", ["tables", "files", "frames"])
def test_integer_times_that_look_like_another_unit_are_refused(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    streams = {
        "a": wm.stream(make_source(spark, tmp_path / "a", SECONDS, kind), time="ts"),
        "b": wm.stream(make_source(spark, tmp_path / "b", MILLISECONDS, kind), time="ts", unit="ms"),
    }
    with (
        pytest.raises(wm.WatersmeetError, match='column "ts" of stream "a" has integers that look like seconds'),
        translate_errors(),
    ):
        wm.on_spark(NEAR, streams, session=spark, plan=wm.plan()).toArrow()


NESTED = {
    "list": (pa.list_(pa.int64()), [[1], [1, None], None, [2], []]),
    "struct": (
        pa.struct([("i", pa.int64()), ("t", pa.string())]),
        [{"i": 1, "t": None}, {"i": 1, "t": "a"}, None, {"i": 2, "t": "a"}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("a", None)], None, [("b", 0)], []]),
}


@pytest.mark.parametrize("kind", ["tables", "files", "frames"])
@pytest.mark.parametrize("name", NESTED)
def test_a_nested_column_breaks_ties_as_it_does_embedded(
    spark: SparkSession, tmp_path: Path, name: str, kind: str
) -> None:
    type_, values = NESTED[name]
    table = pa.table(
        {
            "ts": pa.array([0] * len(values), pa.timestamp("us", "UTC")),
            "n": pa.array(values, type_),
            "v": list(range(len(values))),
        }
    )
    query = "SELECT v, n FROM s [ROWS 2]"
    expected = table_to_rows(wm.collect(query, {"s": wm.stream(table, time="ts")}))
    assert (
        collect_rows(
            wm.on_spark(
                query, {"s": wm.stream(make_source(spark, tmp_path / "s", table, kind), time="ts")}, session=spark
            )
        )
        == expected
    )


def make_source(spark: SparkSession, folder: Path, table: pa.Table, kind: str) -> Any:
    """Return the table as a source of this kind."""
    if kind == "tables":
        return table
    if kind == "frames":
        return spark.createDataFrame(table)
    folder.mkdir()
    pq.write_table(table, folder / "part.parquet")
    return folder

"""The demo's join on Spark gives the rows of the embedded engine, and passes the demo's own check."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from watersmeet.cli.demo import check
from watersmeet.cli.demo.flights import daily_streams, flights, instants_us
from watersmeet.cli.demo.on_spark import spark_engine
from watersmeet.cli.demo.steps import embedded_engine
from watersmeet.oracle import as_multiset, table_rows
from watersmeet.runtime.figures import BatchFigures

pytestmark = pytest.mark.xdist_group("spark")


def test_a_week_of_flights_on_spark(spark: SparkSession) -> None:
    first = np.datetime64("2013-08-03T00:00", "us").astype(np.int64)
    week = {}
    for airport, table in flights().items():
        at = instants_us(table, "departed")
        week[airport] = table.filter(pa.array((at >= first) & (at < first + 7 * 86_400_000_000)))
    seen: list[BatchFigures] = []
    rows = spark_engine(check.QUERY, daily_streams(week), None, seen.append)
    assert as_multiset(table_rows(rows)) == as_multiset(table_rows(embedded_engine(check.QUERY, daily_streams(week), None, seen.append)))
    assert check.checked(rows, week).holds
    assert sum(seen[0].rows_in.values()) == sum(table.num_rows for table in week.values())

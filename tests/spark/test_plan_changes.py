"""The plan of a streaming query changes between batches, and its rows do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.runtime.spark.metrics import batches
from watersmeet.runtime.spark.plans import PlanLog

from .answers import rows_of, rows_of_table, run_to_the_end
from .test_sources import TABLES, halves, over, streaming_frame

pytestmark = pytest.mark.xdist_group("spark")

QUERY = "SELECT a.id AS a, b.id AS b FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"


def test_a_plan_written_for_a_batch_runs_from_that_batch_on(spark: SparkSession, tmp_path: Path) -> None:
    log = PlanLog(tmp_path / "plans")
    log.write(1, wm.plan("eager-nlj", order=["a", "b"]))
    sources = over(a=streaming_frame(spark, tmp_path, "a"), b=streaming_frame(spark, tmp_path, "b"))
    query = run_to_the_end(wm.on_spark(QUERY, sources, plans=tmp_path / "plans"), tmp_path)
    first, second = batches(query)
    assert not any(first.comparisons.values())  # grouped runs count none
    assert all(second.comparisons.values())
    run = wm.run(QUERY, over(a=halves("a"), b=halves("b")))
    wanted = rows_of_table(run.collect())
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == wanted
    assert TABLES["a"].num_rows == first.arrived["a"] + second.arrived["a"]


def test_a_plan_once_written_is_not_changed(tmp_path: Path) -> None:
    log = PlanLog(tmp_path)
    log.write(3, wm.plan("eager-nlj"))
    with pytest.raises(wm.PlanError, match="batch 3 has its plan already"):
        log.write(3, wm.plan())
    assert log.plan_at(2) is None
    assert log.plan_at(7) == wm.plan("eager-nlj")

"""Benchmark workloads on Spark: our join and Spark's own give the rows of the embedded engine.

Our join also reports its time by phase.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.volume import scale_volume
from watersmeet_lab.bench.catalogue import CATALOGUE
from watersmeet_lab.bench.duckdb_comparison import collect_with_watersmeet
from watersmeet_lab.bench.expected_rows import DifferentRowsError, ExpectedRows
from watersmeet_lab.bench.join_workloads import MIN_BATCHES, JoinWorkload
from watersmeet_lab.bench.portable_joins import ValueBand
from watersmeet_lab.bench.spark.native_joins import native_join_frame, use_state_store
from watersmeet_lab.bench.spark.peer_comparison import run_watersmeet_on_spark, write_batches
from watersmeet_lab.bench.spark.streaming_run import mean_phase_seconds, phase_seconds_by_batch, run_to_end

SCALE = 0.001
#: Two streams, no equality, and tumbling windows that are joined and counted. `make test-long` adds several streams and
#: tumbling windows that are joined alone.
WORKLOADS = ("two-way", "theta-band", "nexmark-4", "chain", "nexmark-8")[: scale_volume(3)]


def build_small_workload(name: str) -> JoinWorkload:
    return replace(CATALOGUE[name](SCALE if name != "nexmark-4" else 0.02), batches=MIN_BATCHES)


@pytest.mark.parametrize("name", WORKLOADS)
def test_sparks_own_join_gives_our_rows(spark: SparkSession, name: str) -> None:
    workload = build_small_workload(name)
    tables = workload.tables()
    expected = ExpectedRows.from_result(workload, collect_with_watersmeet(workload, tables))
    with write_batches(tables, workload.batches) as folder, use_state_store(spark, "hdfs"):
        ran = run_to_end("spark-hdfs", native_join_frame(spark, workload.join, folder), rows_per_batch=1)
    assert ran.rows_out > 0
    expected.check(ran.name, ran.rows_out, ran.checksum)
    assert ran.state_bytes
    assert ran.peak_bytes


def test_our_join_reports_its_time_by_phase_and_batch(spark: SparkSession) -> None:
    workload = build_small_workload("two-way")
    ran = run_watersmeet_on_spark(spark, workload)
    ExpectedRows.from_result(workload, collect_with_watersmeet(workload, workload.tables())).check(
        ran.name, ran.rows_out, ran.checksum
    )
    average = mean_phase_seconds(ran)
    assert {"scan and pack", "state read", "kernel", "state write", "shuffle, output and the rest"} <= set(average)
    assert len(phase_seconds_by_batch(ran)) == workload.batches - 1
    assert sum(each["whole trigger"] for each in phase_seconds_by_batch(ran)) == pytest.approx(
        average["whole trigger"] * (workload.batches - 1)
    )


def test_a_join_with_different_rows_is_refused() -> None:
    workload = build_small_workload("theta-band")
    wider = replace(workload, join=replace(workload.join, band=ValueBand("a.x", "b.x", 1_000)))
    expected, other = (
        ExpectedRows.from_result(each, collect_with_watersmeet(each, each.tables())) for each in (workload, wider)
    )
    with pytest.raises(DifferentRowsError, match=r"spark-hdfs gives .* rows with checksum .*, expected"):
        expected.check("spark-hdfs", other.rows, other.checksum)

"""Workers without the package and too many shuffle partitions are reported before a query starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, stream_to_rows, table_to_rows
from watersmeet.runtime.spark.session import check_table_size
from watersmeet.runtime.spark.worker_check import check_workers

from .test_sources import JOIN, TABLES, build_streams, streaming_frame

pytestmark = pytest.mark.xdist_group("spark")

#: A driver with the package, and workers whose Python sees the same site packages without it.
WITHOUT_THE_PACKAGE = """
import sys
import watersmeet as wm
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1,4]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
for name, value in {settings}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
rows = spark.createDataFrame([("tea", 1)], "item string, ts long")
try:
    wm.on_spark("SELECT a.item FROM a [RANGE 1 SECOND]", {{"a": wm.stream(rows, time="ts")}})
except wm.InputError as refused:
    print(refused.message)
"""


@pytest.mark.parametrize("settings", [{}, {"spark.python.daemon.module": "watersmeet.runtime.spark.daemon"}])
def test_a_worker_without_the_package_is_reported_in_one_sentence(tmp_path: Path, settings: dict[str, str]) -> None:
    """An import finder that hides the package simulates a Python without it."""
    python = tmp_path / "python"
    hidden = "import sys; sys.meta_path.insert(0, type('Hidden', (), {'find_spec': staticmethod(_refuse)}))"
    refuse = (
        "def _refuse(name, *_):\n"
        "    if name.partition('.')[0] == 'watersmeet': raise ModuleNotFoundError(f\"No module named '{name}'\")\n"
    )
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(f"{refuse}\n{hidden}\n")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path / "site"}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE.format(settings=settings)],
        env=os.environ | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (message,) = ran.stdout.splitlines()
    assert message.startswith("the Python of Spark's workers, ")
    assert message.endswith("cannot import watersmeet: No module named 'watersmeet'")


def test_workers_are_checked_once(spark: SparkSession) -> None:
    jobs = spark.sparkContext.statusTracker()
    check_workers(spark.sparkContext)
    spark.sparkContext.setJobGroup("probes", "jobs of a second check of the workers")
    try:
        check_workers(spark.sparkContext)
        assert jobs.getJobIdsForGroup("probes") == []
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def test_a_streaming_query_with_too_many_partitions_warns_with_the_value_to_use(
    spark: SparkSession, tmp_path: Path
) -> None:
    streams = build_streams(**{name: streaming_frame(spark, tmp_path, name) for name in "ab"})
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    cores = spark.sparkContext.defaultParallelism  # a session that an earlier test left may have one core
    message = rf"shuffle\.partitions is 200, but Spark has {cores} cores?, .*set it to {cores} "
    try:
        with pytest.warns(wm.WatersmeetWarning, match=message) as warned:
            wm.on_spark(JOIN, streams)
        assert warned[0].filename == __file__
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_a_finite_query_uses_one_partition_per_core_despite_the_session_setting(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    try:
        frame = wm.on_spark(JOIN, build_streams(**TABLES))
        assert frame.rdd.getNumPartitions() == spark.sparkContext.defaultParallelism
        assert collect_rows(frame) == table_to_rows(wm.collect(JOIN, build_streams(**TABLES)))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_a_relation_of_megabytes_is_sent_with_a_streaming_query(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT a.id, r.v FROM a [RANGE 1 SECOND], r WHERE a.k = r.k"
    large: dict[str, Any] = {
        "r": wm.relation(
            pa.table({"k": pa.array(np.arange(200_000, dtype=np.int32)), "v": pa.array(np.arange(200_000))})
        )
    }
    frame = wm.on_spark(query, {**build_streams(a=streaming_frame(spark, tmp_path, "a")), **large})
    assert stream_to_rows(frame, tmp_path) == table_to_rows(
        wm.collect(query, {**build_streams(a=TABLES["a"]), **large})
    )


def test_relations_that_are_too_large_for_the_session_are_refused(spark: SparkSession) -> None:
    with pytest.raises(
        wm.InputError, match=r"relations of this query have 2,000\.0 MB, and this session sends at most 1,073\.7 MB"
    ):
        check_table_size(spark, 2_000_000_000)

"""A user's own session with default settings: one sentence before the first batch names each problem and its remedy.

The loss of its Java process is one sentence, too.

One program with such a session runs in a process of its own (`plain_session`); every test looks at a part of what it
saw. It runs in a Python that the search path does not find first, as in a virtual environment that is not activated.
"""

from __future__ import annotations

import json
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
from tests.spark import plain_session
from tests.spark.queries import collect_rows, stream_to_rows, table_to_rows
from watersmeet.runtime.spark.python_steps import check_workers

from .sessions import quick_environment
from .test_sources import JOIN, TABLES, build_streams, streaming_frame


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("plain")
    python = write_python_without_the_package(folder)
    search_path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in quick_environment().items() if name != "PYSPARK_PYTHON"}
    ran = subprocess.run(
        [sys.executable, plain_session.__file__, folder, python],
        env=environment | {"PATH": search_path, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def write_python_without_the_package(folder: Path) -> Path:
    """Write a `python3` with the site packages of this one. An import finder hides the package from it."""
    hide = (
        "import sys\n"
        "def _refuse(name, *_):\n"
        "    if name.partition('.')[0] == 'watersmeet': raise ModuleNotFoundError(f\"No module named '{name}'\")\n"
        "sys.meta_path.insert(0, type('Hidden', (), {'find_spec': staticmethod(_refuse)}))\n"
    )
    for name in ("site", "bin"):
        (folder / name).mkdir()
    (folder / "site" / "sitecustomize.py").write_text(hide)
    python = folder / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder / "site"}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def test_queries_run_in_the_python_of_the_driver_if_the_user_chose_none(report: Any) -> None:
    tables = {name: wm.stream(plain_session.ROWS, time="ts") for name in ("orders", "trades")}
    expected = [wm.collect(query, tables).num_rows for query in (plain_session.JOIN, plain_session.TOTALS)]
    assert report["finite rows"] == expected
    assert min(expected) > 0
    assert report["streamed rows"] == [1, 2, 3]  # with a relation that is larger than Spark sends with a function
    assert report["python of other steps"] == "python3"


def test_a_session_without_rocksdb_is_refused_with_every_setting_to_change(report: Any) -> None:
    problem, remedy = report["refused"].splitlines()
    setting = "spark.sql.streaming.stateStore.providerClass"
    assert problem == (
        f"a streaming query keeps its state in RocksDB, but {setting} of this session is HDFSBackedStateStoreProvider"
    )
    assert f'spark.conf.set("{setting}", "org.apache' in remedy
    assert 'spark.conf.set("spark.sql.shuffle.partitions", "2")' in remedy


def test_too_many_partitions_are_reported_once_per_session(report: Any) -> None:
    (first,), second = report["warned"]
    assert first.startswith("spark.sql.shuffle.partitions is 200, but Spark has 2 cores, and every batch ")
    assert first.endswith(": set it to 2 before the first run")
    assert second == []


def test_a_worker_without_the_package_is_reported_in_one_sentence(report: Any) -> None:
    for message in report["worker without the package"]:  # with Spark's daemon of workers, and with ours
        problem, remedy = message.splitlines()
        assert problem.startswith("the Python of Spark's workers, ")
        assert problem.endswith("cannot import watersmeet: No module named 'watersmeet'")
        assert remedy == (
            f'before Spark starts: os.environ["PYSPARK_PYTHON"] = "{sys.executable}", the Python of this process'
        )


def test_jobs_and_stages_have_readable_names(report: Any) -> None:
    for what in ("jobs", "stages", "queries"):
        names = {description.splitlines()[0] for description in report["interface"][what] if description}
        assert names >= {
            "watersmeet: join orders, trades",
            "watersmeet: aggregate orders, trades",
            "watersmeet: join orders, items",
        }
        assert all(name.startswith("watersmeet: ") for name in names)
    assert "watersmeet: check the Python of the workers" in report["interface"]["jobs"]


def test_steps_of_a_plan_have_readable_names(report: Any) -> None:
    plans = "\n".join(report["interface"]["plans"])
    steps = ("pack orders", "join orders, trades", "aggregate orders, trades", "merge groups", "read and pack orders")
    assert [step for step in steps if f"Arguments: watersmeet: {step}(" not in plans] == []


def test_streaming_queries_have_readable_and_unique_names(report: Any) -> None:
    assert report["query names"] == ["watersmeet: join orders, items", "watersmeet: join orders, items (2)"]


def test_the_loss_of_the_java_process_is_one_sentence(report: Any) -> None:
    message, active, text = report["lost Java process"]
    assert message.splitlines()[0] == "the Java process of Spark ended"
    assert not active
    assert "failed" in text


def test_workers_are_checked_once(spark: SparkSession) -> None:
    jobs = spark.sparkContext.statusTracker()
    check_workers(spark)
    spark.sparkContext.setJobGroup("probes", "jobs of a second check of the workers")
    try:
        check_workers(spark)
        assert jobs.getJobIdsForGroup("probes") == []
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def test_the_warning_points_at_the_line_of_the_caller(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "200")
    streams = build_streams(**{name: streaming_frame(session, tmp_path, name) for name in "ab"})
    with pytest.warns(wm.WatersmeetWarning, match=r"shuffle\.partitions is 200") as warned:
        wm.on_spark(JOIN, streams)
    assert warned[0].filename == __file__


def test_a_finite_query_uses_one_partition_per_core_despite_the_session_setting(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "200")
    frame = wm.on_spark(JOIN, build_streams(**TABLES), session=session)
    assert frame.rdd.getNumPartitions() == spark.sparkContext.defaultParallelism
    assert collect_rows(frame) == table_to_rows(wm.collect(JOIN, build_streams(**TABLES)))


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

"""The demo on Spark: every check of the whole year passes, it prints its transcript, and a failed check is reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import watersmeet as wm
from tests.docs.transcripts import DEMO, mask_machine, record_demo
from watersmeet.cli.demo import steps
from watersmeet.cli.demo.engines import SPARK, DemoContext, DemoEngine
from watersmeet.cli.demo.replay import DAY_US, Replay, Tables, load_flights, times_us, write_aircraft_query
from watersmeet.metrics import BatchMetrics, Observer
from watersmeet.sources.declarations import Sources


@pytest.fixture(scope="module")
def week() -> Tables:
    first = np.datetime64("2013-08-03T00:00", "us").astype(np.int64)
    taken: Tables = {}
    for airport, table in load_flights().items():
        at = times_us(table, "departed")
        taken[airport] = table.filter(pa.array((at >= first) & (at < first + 7 * DAY_US)))
    return taken


def test_the_demo_prints_its_transcript_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # the shipped profile
    assert mask_machine(record_demo(paced=False)) == mask_machine(DEMO.read_text(encoding="utf-8"))


def test_a_paced_run_on_spark_reads_the_files_as_they_appear(week: Tables, spark: SparkSession) -> None:
    replay, seen = Replay(week, speedup=300_000, batch_s=1.0), list[BatchMetrics]()
    rows = SPARK.run(write_aircraft_query(replay), replay.declare_streams(), wm.plan(), seen.append, 1.0)
    assert len(seen) == 3
    assert sum(sum(figures.rows_in.values()) for figures in seen) == replay.row_count
    assert sum(figures.rows_out for figures in seen) == rows.num_rows > 0
    last_us = max(int(times_us(table, "replayed")[-1]) for table in replay.tables.values())
    assert seen[-1].newest_us == last_us


def test_spark_reports_the_cpu_of_its_processes(spark: SparkSession) -> None:
    before_s = SPARK.read_cpu_s()
    assert spark.range(2_000_000).selectExpr("sum(sqrt(id))").collect()
    assert SPARK.read_cpu_s() > before_s > 0


def test_a_lost_row_fails_the_check(week: Tables) -> None:
    def lose_a_row(query: str, streams: Sources, plan: wm.Plan, observe: Observer, pace_s: float | None) -> pa.Table:
        return wm.collect(query, streams, plan=plan).slice(1)

    engine = DemoEngine("spark", "on Spark", lose_a_row, lambda: 0.0)
    demo = DemoContext(Console(quiet=True), Replay(week), engine)
    steps.show_plan(demo)
    assert demo.explanation is not None
    demo.rows, _ = demo.run_join_observed()
    steps.check_join(demo)
    assert not demo.all_checks_passed

"""The demo on Spark, on a week of its flights: the check of every step passes, and a failed check is reported."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import watersmeet as wm
from watersmeet.cli.demo import steps
from watersmeet.cli.demo.engines import SPARK, DemoEngine
from watersmeet.cli.demo.flights import QUERY, Tables, load_flights, times_us
from watersmeet.cli.demo.steps import DemoContext
from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.runtime.embedded.run import Sources

pytestmark = pytest.mark.xdist_group("spark")

_DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def week() -> Tables:
    first = np.datetime64("2013-08-03T00:00", "us").astype(np.int64)
    taken: Tables = {}
    for airport, table in load_flights().items():
        at = times_us(table, "departed")
        taken[airport] = table.filter(pa.array((at >= first) & (at < first + 7 * _DAY_US)))
    return taken


def test_every_check_of_the_demo_passes_on_spark(
    week: Tables, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "load_flights", lambda: week)
    screen, seen = Console(record=True, width=160), list[BatchMetrics]()
    assert steps.run_demo(screen, SPARK, seen.append)
    words = " ".join(screen.export_text().split())
    assert "on Spark" in words
    assert "The embedded engine gives the same rows for the whole year" in words
    assert "before the join, on the embedded engine, gives the same rows" in words
    assert "the ledger adds up exactly" in words
    assert "The embedded engine sheds the same rows" in words
    joined = [figures for figures in seen if set(figures.rows_in) == {"ewr", "jfk", "lga"}]
    assert sum(sum(figures.rows_in.values()) for figures in joined) == 2 * sum(
        table.num_rows for table in week.values()
    )
    newest = max(int(times_us(table, "departed")[-1]) for table in week.values())
    assert joined[-1].newest_us == newest


def test_a_lost_row_fails_the_check(week: Tables) -> None:
    def careless(query: str, streams: Sources, plan: wm.Plan, observe: Observer) -> pa.Table:
        return wm.collect(query, streams, plan=plan).slice(1)

    stage = DemoContext(Console(quiet=True), week, DemoEngine("spark", "on Spark", 4, careless), lambda figures: None)
    steps.show_plan(stage)
    assert stage.explanation is not None
    stage.rows, _ = stage.run(QUERY, stage.explanation.plan)
    steps.check_join(stage)
    assert not stage.all_checks_passed

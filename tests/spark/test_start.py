"""`wm.start`: a streaming query and its destinations, its progress, its errors and its load controller."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import watersmeet as wm
from tests.planner.test_notebook import _render_html
from tests.spark.queries import collect_rows, table_to_rows
from watersmeet.runtime.live import read_report
from watersmeet.runtime.spark import batch_metrics
from watersmeet.runtime.spark.batch_metrics import list_batches

QUERY = "SELECT a.id AS a, b.id AS b FROM a [RANGE 4 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"
AGGREGATION = "SELECT a.k, COUNT(*) AS n FROM a [RANGE 4 SECONDS] GROUP BY a.k EVERY 1 SECOND"
NOOP: dict[str, Any] = {"format": "noop"}


def rows(seed: int, first: int = 0, count: int = 60) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": list(numbers),
            "k": [(i * 7 + seed) % 5 for i in numbers],
            "ts": pa.array([i * 250_000 for i in numbers], pa.timestamp("us", "UTC")),
        }
    )


def write_file(folder: Path, number: int, table: pa.Table) -> None:
    path = folder / f"{number}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number,) * 2)  # Spark processes the older file first


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> dict[str, wm.Stream]:
    """Return two followed directories with three files each, one per batch."""
    for seed, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        for number in range(3):
            write_file(tmp_path / name, number, rows(seed, number * 20, 20))
    return {name: wm.stream(tmp_path / name, time="ts", follow=True, files_per_batch=1) for name in "ab"}


@pytest.fixture
def one_batch(streams: dict[str, wm.Stream], tmp_path: Path) -> dict[str, wm.Stream]:
    """Return the same directories with all of their files in one batch."""
    return {name: wm.stream(tmp_path / name, time="ts", follow=True) for name in streams}


def _start_embedded() -> wm.Run:
    return wm.run(QUERY, {name: wm.stream(rows(seed), time="ts") for seed, name in enumerate("ab")})


def test_a_started_query_writes_its_rows_reports_every_batch_and_a_restart_continues_from_the_checkpoint(
    spark: SparkSession, streams: dict[str, wm.Stream], tmp_path: Path
) -> None:
    job = wm.job(QUERY, streams)
    where: dict[str, Any] = {"to": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "trigger": "availableNow"}
    running = job.start(**where)
    assert isinstance(running, wm.RunningQuery)
    assert running.await_termination()
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == table_to_rows(_start_embedded().collect())
    expected = list_batches(running.spark_query)
    assert [each.batch for each in running.progress] == [each.batch for each in expected] == [0, 1, 2]
    assert [each.rows_out for each in running.progress] == [each.results for each in expected]
    assert running.ledger == {name: wm.Ledger(arrived=60, kept=60, shed=0, late=0) for name in "ab"}
    assert running.decisions == []
    assert not running.is_active
    assert repr(running) == (
        "RunningQuery('watersmeet: join a, b', stopped, batch 2, 120 rows in, "
        f"{sum(each.results for each in expected)} rows out)"
    )
    html = _render_html(running)
    for words in ("ledger", "last batches", "60"):
        assert words in html
    again = job.start(**where)
    assert again.await_termination()
    assert again.progress == []
    assert repr(again) == "RunningQuery('watersmeet: join a, b', stopped, no batch has finished)"


def test_rows_go_to_a_table_in_memory_a_table_or_any_writer(
    spark: SparkSession, one_batch: dict[str, wm.Stream], tmp_path: Path
) -> None:
    expected = _start_embedded().collect().num_rows
    wm.start(QUERY, one_batch, to="pairs", format="memory", trigger="availableNow").await_termination()
    assert spark.table("pairs").count() == expected

    received: list[int] = []

    def write(frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(lambda batch_rows, batch: received.append(batch_rows.count()))

    job = wm.job(QUERY, one_batch)
    job.start(to=write, checkpoint=tmp_path / "1", trigger="availableNow").await_termination()
    assert sum(received) == expected
    spark.sql(f"CREATE TABLE IF NOT EXISTS stored (a BIGINT, b BIGINT) USING parquet LOCATION '{tmp_path}/stored'")
    try:
        job.start(to="stored", format="table", checkpoint=tmp_path / "2", trigger="availableNow").await_termination()
        assert spark.table("stored").count() == expected
    finally:
        spark.sql("DROP TABLE stored")


def test_leaving_a_with_block_stops_the_query(one_batch: dict[str, wm.Stream]) -> None:
    with wm.start(QUERY, one_batch, **NOOP) as running, wm.start(QUERY, one_batch, **NOOP) as other:
        assert not running.await_termination(timeout=0.1)
        assert running.is_active
        assert (running.name, other.name) == ("watersmeet: join a, b", "watersmeet: join a, b (2)")
        running.spark_query.processAllAvailable()
    assert not running.is_active
    assert not other.is_active
    assert sum(each.rows_in["a"] for each in running.progress) == 60  # batches that end while it stops are included
    assert running.await_termination(timeout=0)


def test_a_failing_sink_is_one_sentence(one_batch: dict[str, wm.Stream], tmp_path: Path) -> None:
    def write(frame: DataFrame) -> DataStreamWriter:
        return frame.writeStream.foreachBatch(_fail)

    running = wm.start(QUERY, one_batch, to=write, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(wm.WatersmeetError, match="the query failed on Spark: ") as failed:
        running.await_termination()
    assert str(failed.value) == "the query failed on Spark: OSError: the sink is full"
    assert isinstance(running.failure, wm.WatersmeetError)
    assert "failed, no batch" in repr(running)
    with pytest.raises(wm.WatersmeetError), running:
        pass


def _fail(batch_rows: DataFrame, batch: int) -> None:
    raise OSError("the sink is full")


def test_a_mistake_that_a_worker_finds_is_raised_as_such(streams: dict[str, wm.Stream], tmp_path: Path) -> None:
    nothing = rows(0).set_column(2, "ts", pa.nulls(60, pa.timestamp("us", "UTC")))
    write_file(tmp_path / "a", 3, nothing)
    with pytest.raises(wm.InputError, match="ts"):
        wm.start(QUERY, streams, **NOOP).await_termination()


def test_a_query_that_cannot_keep_up_sheds(streams: dict[str, wm.Stream], tmp_path: Path) -> None:
    with wm.start(
        QUERY, streams, **NOOP, checkpoint=tmp_path / "checkpoint", trigger="1 millisecond", keep_up=True
    ) as running:
        for number in range(3, 6):
            for seed, name in enumerate("ab"):
                write_file(tmp_path / name, number, rows(seed, number * 20, 20))
            running.spark_query.processAllAvailable()
    assert running.decisions
    assert all(isinstance(each, wm.SheddingDecision) for each in running.decisions)
    assert str(running.decisions[0]).startswith(f"from batch {running.decisions[0].from_batch}: batch ")
    assert running.plan.drop
    about = running.explain()
    assert about.plan.drop == running.plan.drop
    assert "this plan runs now" in about.trace
    assert "decisions" in _render_html(running)
    for entry in running.ledger.values():
        assert entry.arrived == entry.kept + entry.shed + entry.late
    assert sum(entry.shed for entry in running.ledger.values()) > 0
    assert [each.plan.drop for each in running.progress][-1]


def test_a_controller_that_fails_stops_the_query(streams: dict[str, wm.Stream], tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "watersmeet").mkdir(parents=True)
    (tmp_path / "checkpoint" / "watersmeet" / "plans").symlink_to("/dev/full")
    running = wm.start(
        QUERY, streams, **NOOP, checkpoint=tmp_path / "checkpoint", trigger="1 millisecond", keep_up=True
    )
    with pytest.raises(wm.WatersmeetError):
        running.await_termination()
    assert not running.is_active


def test_a_budget_is_kept_on_spark_as_in_this_process(one_batch: dict[str, wm.Stream]) -> None:
    fast = {name: wm.stats(rate=200_000, distinct={"k": 5_000}, row_bytes=24) for name in "ab"}
    limits: dict[str, Any] = {"budget": wm.Budget(processors=4), "stats": fast}
    for use in (wm.on_spark, wm.start):
        with pytest.raises(wm.PlanError, match="cannot keep up"):
            use(QUERY, one_batch, **limits, **(NOOP if use is wm.start else {}))
    assert wm.on_spark(QUERY, one_batch, **limits, shed=True).isStreaming
    with wm.start(QUERY, one_batch, **limits, shed=True, **NOOP) as running:
        running.spark_query.processAllAvailable()
        assert running.plan.drop == wm.explain(QUERY, one_batch, **limits, shed=True, engine="spark").plan.drop
    assert sum(entry.shed for entry in running.ledger.values()) > 0


def test_mistakes_are_reported_before_anything_starts(streams: dict[str, wm.Stream], tmp_path: Path) -> None:
    def refuse(message: str, query: str = QUERY, **options: Any) -> None:
        with pytest.raises(wm.WatersmeetError, match=re.escape(message)):
            wm.start(query, options.pop("over", streams), **options)

    refuse("needs a destination", checkpoint=tmp_path)
    refuse("needs a checkpoint", to=tmp_path / "out")
    refuse("all streams of this query are finite", **NOOP, over={n: wm.stream(rows(1), time="ts") for n in "ab"})
    refuse("by the trigger interval, and there is none", **NOOP, checkpoint=tmp_path, keep_up=True)
    refuse("stores its decisions in the checkpoint", **NOOP, trigger="1 second", keep_up=True)
    refuse("is not the trigger interval", **NOOP, trigger="soon")
    refuse("shed rates of an aggregation", AGGREGATION, **NOOP, checkpoint=tmp_path, trigger="1 second", keep_up=True)


def test_a_session_has_one_listener_while_queries_run_and_none_after(
    spark: SparkSession, one_batch: dict[str, wm.Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = wm.job(QUERY, one_batch)
    with job.start(**NOOP) as one, job.start(**NOOP) as other:
        while len(batch_metrics._listeners.get(spark, _NO_LISTENER).queues) < 2:
            assert one.is_active
            assert other.is_active
            time.sleep(0.01)
        assert list(batch_metrics._listeners) == [spark]
        for each in (one, other):
            each.spark_query.processAllAvailable()
    assert batch_metrics._listeners == {}
    assert [sum(batch.rows_in["a"] for batch in each.progress) for each in (one, other)] == [60, 60]


_NO_LISTENER = batch_metrics.ProgressListener()


def test_batches_that_ended_before_the_listener_was_added_are_reported_once(
    spark: SparkSession, streams: dict[str, wm.Stream], tmp_path: Path
) -> None:
    writer = wm.on_spark(QUERY, streams).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        with batch_metrics.ProgressEvents(query, spark) as progress:
            write_file(tmp_path / "a", 3, rows(0, 60, 20))
            query.processAllAvailable()
            query.stop()
            assert [report.batchId for report in progress.reports()] == [0, 1, 2, 3]
            assert list(progress.reports()) == []
        with batch_metrics.ProgressEvents(query, spark) as ended:  # no end of this query will be reported any more
            assert [report.batchId for report in ended.reports()] == [0, 1, 2, 3]
    finally:
        query.stop()


def test_lost_events_are_found_in_the_recent_progress(
    spark: SparkSession, one_batch: dict[str, wm.Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_metrics, "SILENCE_S", 0.2)
    monkeypatch.setattr(batch_metrics.ProgressListener, "_put", lambda *_: None)  # as if Spark dropped all events
    with wm.start(QUERY, one_batch, **NOOP) as running:
        running.spark_query.processAllAvailable()
    assert sum(each.rows_in["a"] for each in running.progress) == 60


def test_ended_queries_leave_no_threads(one_batch: dict[str, wm.Stream]) -> None:
    job, threads = wm.job(QUERY, one_batch), []
    for _ in range(3):
        with job.start(**NOOP) as running:
            running.spark_query.processAllAvailable()
        threads.append(threading.active_count())
    assert threads[-1] <= threads[1], threads


def test_a_running_query_compares_its_forecast_with_its_batches(
    streams: dict[str, wm.Stream], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    declared = {name: wm.stats(rate=0.001, distinct={"k": 5}) for name in streams}
    with caplog.at_level("INFO", logger="watersmeet"):
        running = wm.start(
            QUERY, streams, checkpoint=tmp_path / "checkpoint", trigger="1 millisecond", stats=declared, **NOOP
        )
        while len(running.progress) < 3 and running.is_active:
            running.await_termination(timeout=0.1)
        running.stop()
    about = running.explain()
    assert about.live is not None
    # No batch on Spark takes less than a millisecond.
    assert not about.feasible
    assert about.verdict == about.live.sentence
    assert about.verdict.startswith("it does not keep up: the next batch takes")
    assert about.to_dict()["live"]["verdict"] == running.progress[-1].verdict == "does not keep up"
    figures = {each.name: each for each in about.live.comparisons}
    assert (figures["rate of a"].first, figures["rate of a"].measured) == (0.001, 20_000.0)
    assert "rate of a: 0.001 rows/s (declared), measured 20,000 rows/s" in str(about)
    (event,) = [each for each in caplog.records if getattr(each, "event", "") == "verdict_changed"]
    assert event.levelname == "WARNING"
    assert event.fields["before"] == "not known yet"  # type: ignore[attr-defined] # set by log_event
    assert read_report(tmp_path / "checkpoint") == about.live


def test_a_backlog_is_processed_in_batches_of_bounded_size(
    spark: SparkSession, one_batch: dict[str, wm.Stream], tmp_path: Path
) -> None:
    running = wm.start(
        QUERY,
        one_batch,
        to="backlog",
        format="memory",
        trigger="availableNow",
        max_batch=100,
        checkpoint=tmp_path / "c",
    )
    running.await_termination()
    # Each stream has three files of 20 rows; 50 rows of each stream fit.
    assert [dict(each.rows_in) for each in running.progress] == [{"a": 40, "b": 40}, {"a": 20, "b": 20}]
    assert spark.table("backlog").count() == _start_embedded().collect().num_rows
    # A batch takes at least one file, and a DataFrame is limited by its reader.
    frame = spark.readStream.format("rate").load().selectExpr("value AS id", "value AS k", "timestamp AS ts")
    with pytest.raises(wm.WatersmeetError, match=r"the rows of a batch of stream \"a\" are limited where"):
        wm.start(QUERY, {**one_batch, "a": wm.stream(frame, time="ts")}, max_batch="auto", **NOOP)

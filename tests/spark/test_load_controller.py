"""A query that cannot keep up sheds rows from a later batch on; its rows and its ledger follow from the kept rows."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, run_available, table_to_rows
from tests.spark.test_plan_changes import QUERY, ledger
from tests.spark.test_sources import TABLES, build_streams, streaming_frame
from watersmeet.planner.controller import BatchReport
from watersmeet.runtime.background import BackgroundError
from watersmeet.runtime.buckets.plan_log import PlanLog
from watersmeet.runtime.spark.batch_metrics import SparkBatchMetrics, list_batches
from watersmeet.runtime.spark.load_controller import LoadController, keep_up
from watersmeet.sources.declarations import bind_query


def split_in_fifths(name: str) -> list[pa.Table]:
    return [TABLES[name].slice(12 * number, 12) for number in range(5)]


def test_after_a_batch_that_takes_too_long_later_batches_shed(spark: SparkSession, tmp_path: Path) -> None:
    log = PlanLog(tmp_path / "plans")
    frames = {name: streaming_frame(spark, tmp_path, name, split_in_fifths(name)[:2]) for name in "ab"}
    frame = wm.on_spark(QUERY, build_streams(**frames), plans=tmp_path / "plans")
    first = run_available(frame, tmp_path)
    # No batch is as fast as this trigger interval.
    controller = LoadController(
        bind_query(QUERY, build_streams(**frames)), log, tmp_path / "checkpoint", trigger_s=1e-3, plan=wm.plan()
    )
    for report in first.recentProgress:
        controller.process_report(report)
    assert [each.from_batch for each in controller.decisions] == [2]  # batches 0 and 1 are finished
    shares = dict(controller.decisions[0].keep)
    assert min(shares.values()) < 1
    for name in "ab":
        streaming_frame(spark, tmp_path, name, split_in_fifths(name), exist_ok=True)
    ran = list_batches(first) + list_batches(
        run_available(wm.on_spark(QUERY, build_streams(**frames), plans=tmp_path / "plans"), tmp_path)
    )
    run = wm.run(QUERY, build_streams(a=split_in_fifths("a"), b=split_in_fifths("b")), plan=wm.plan())
    found = []
    for batch, tables in enumerate(run.read_rounds()):
        plan = log.plan_at(batch)
        if plan is not None:
            run.replan(plan)
        found += run.advance(tables)
        entries = {name: asdict(entry) for name, entry in run.batch_ledger.items()}
        assert all(entry["arrived"] == entry.pop("kept") + entry["shed"] + entry["late"] for entry in entries.values())
        assert ledger(ran[batch]) == entries
    assert any(ran[4].shed.values())
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == table_to_rows(
        pa.Table.from_batches(found, run.result)
    )


def test_a_decision_that_comes_too_late_is_for_the_next_batch(tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "7").touch()
    log = PlanLog(tmp_path / "plans")
    assert log.settle_plan(8) is None  # a task of batch 8 runs before the controller reads Spark's log again
    controller = LoadController(
        bind_query(QUERY, build_streams(**TABLES)), log, tmp_path / "checkpoint", trigger_s=1.0, plan=wm.plan()
    )
    controller._decide(_slow_batch())
    assert [each.from_batch for each in controller.decisions] == [9]
    assert log.settle_plan(8) is None
    assert log.settle_plan(9) == log.settle_plan(12)


def test_a_batch_that_already_runs_is_taken_into_account(tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    decided = []
    for started in (7, 8):
        (offsets / str(started)).touch()
        controller = LoadController(
            bind_query(QUERY, build_streams(**TABLES)),
            PlanLog(tmp_path / f"plans{started}"),
            tmp_path / "checkpoint",
            trigger_s=1.0,
            plan=wm.plan(),
        )
        controller._decide(_slow_batch(1.6, 1_000_000))
        decided += controller.decisions
    assert [each.from_batch for each in decided] == [8, 9]
    # More rows arrive while batch 8 runs, so batch 9 keeps a smaller share of them.
    assert sum(dict(decided[1].keep).values()) < sum(dict(decided[0].keep).values())


def test_a_decision_changes_the_shed_rates_and_nothing_else_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    own, log = wm.plan("eager-nlj", order=["a", "b"]), PlanLog(tmp_path / "plans")
    controller = LoadController(
        bind_query(QUERY, build_streams(**TABLES)), log, tmp_path / "checkpoint", trigger_s=1.0, plan=own
    )
    controller._decide(_slow_batch())
    written = log.plan_at(controller.decisions[0].from_batch)
    assert written is not None
    assert written.drop
    assert replace(written, drop=()) == own


def test_the_shed_rates_of_an_aggregation_cannot_change(tmp_path: Path) -> None:
    bound = bind_query("SELECT a.k, COUNT(*) AS n FROM a [RANGE 1 SECOND] GROUP BY a.k", build_streams(a=TABLES["a"]))
    with pytest.raises(wm.PlanError, match="the shed rates of an aggregation cannot change"):
        LoadController(bound, PlanLog(tmp_path), tmp_path, trigger_s=1.0, plan=wm.plan())


def _slow_batch(seconds: float = 30.0, rows: int = 1000) -> BatchReport:
    return BatchReport(batch_id=7, seconds=seconds, interval_s=1.0, arrived={"a": rows, "b": rows})


def test_a_controller_that_cannot_write_its_plans_stops_the_query_with_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    frames = {name: streaming_frame(spark, tmp_path, name, split_in_fifths(name)) for name in "ab"}
    streams = build_streams(**frames)
    (tmp_path / "no directory").touch()
    writer = wm.on_spark(QUERY, streams, plans=tmp_path / "plans").writeStream.format("noop")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="0 seconds").start()
    )
    with pytest.warns(DeprecationWarning, match=r"wm\.start\(.*keep_up=True\)"):
        controller = wm.keep_up(
            query,
            QUERY,
            streams,
            plans=tmp_path / "no directory",
            checkpoint=tmp_path / "checkpoint",
            trigger="1 millisecond",
            plan=wm.plan(),
        )
    with pytest.raises(
        BackgroundError, match=r"the load controller, which stopped its query, failed: FileExistsError: .*no directory"
    ):
        query.awaitTermination()
    assert not query.isActive
    assert isinstance(controller.failure, BackgroundError)


class _DamagedController(LoadController):
    """A controller that cannot read the report of a batch. No real report can be made to do that."""

    def process_batch(self, batch: SparkBatchMetrics) -> None:
        raise KeyError("durationMs")


def test_progress_that_cannot_be_read_stops_the_query_with_an_error(spark: SparkSession, tmp_path: Path) -> None:
    frames = {name: streaming_frame(spark, tmp_path, name, split_in_fifths(name)) for name in "ab"}
    streams = build_streams(**frames)
    writer = wm.on_spark(QUERY, streams, plans=tmp_path / "plans").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    log = PlanLog(tmp_path / "plans")
    controller = _DamagedController(bind_query(QUERY, streams), log, tmp_path / "checkpoint", 1.0, wm.plan())
    keep_up(query, controller, spark)
    with pytest.raises(BackgroundError, match=r"load controller.* failed: KeyError: 'durationMs'"):
        query.awaitTermination()
    assert not query.isActive


def test_a_failed_batch_raises_the_error_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    frames = {name: streaming_frame(spark, tmp_path, name, split_in_fifths(name)) for name in "ab"}
    writer = wm.on_spark(QUERY, build_streams(**frames), plans=tmp_path / "plans").writeStream.foreachBatch(_fail)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.warns(DeprecationWarning, match="keep_up=True"):
        controller = wm.keep_up(
            query,
            QUERY,
            build_streams(**frames),
            plans=tmp_path / "plans",
            checkpoint=tmp_path / "checkpoint",
            trigger="1 second",
            plan=wm.plan(),
        )
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        query.awaitTermination()
    assert controller._thread is not None
    controller._thread.join()
    assert controller.failure is None


def _fail(rows: object, batch: int) -> None:
    raise OSError("the sink is full")

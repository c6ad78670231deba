"""The plan of a streaming query changes between batches, and its rows do not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, forget_batch, run_available, table_to_rows
from watersmeet.runtime.buckets.plan_log import NO_BATCH, PlanLog, PlannedDrops, check_drop_seed
from watersmeet.runtime.planning import choose_spark_plan, make_default_plan
from watersmeet.runtime.spark.batch_metrics import SparkBatchMetrics, list_batches
from watersmeet.sources.declarations import bind_query

from ..properties.engine import Rows
from .test_sources import TABLES, build_streams, split_in_halves, streaming_frame

QUERY = "SELECT a.id AS a, b.id AS b FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"


def test_a_plan_written_for_a_batch_runs_from_that_batch_on(spark: SparkSession, tmp_path: Path) -> None:
    log = PlanLog(tmp_path / "plans")
    log.write(1, wm.plan("eager-nlj", order=["a", "b"]))
    sources = build_streams(a=streaming_frame(spark, tmp_path, "a"), b=streaming_frame(spark, tmp_path, "b"))
    query = run_available(wm.on_spark(QUERY, sources, plans=tmp_path / "plans"), tmp_path)
    first, second = list_batches(query)
    assert not any(first.comparisons.values())  # grouped runs count none
    assert all(second.comparisons.values())
    run = wm.run(QUERY, build_streams(a=split_in_halves("a"), b=split_in_halves("b")))
    expected = table_to_rows(run.collect())
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == expected
    assert TABLES["a"].num_rows == first.arrived["a"] + second.arrived["a"]


THIRDS = ((0, 20), (20, 20), (40, 20))
RATES = {1: {"a": 0.5}, 2: {"a": 0.25, "b": 0.75}}  # shed rates, by the first batch they are for


@pytest.mark.parametrize("kind", ["frames", "files"])
def test_shed_rates_change_from_batch_to_batch_and_a_replay_sheds_the_same_rows(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    log = PlanLog(tmp_path / "plans")
    for batch, rates in RATES.items():
        log.write(batch, wm.plan(drop=rates))
    frames = {name: streaming_frame(spark, tmp_path, name, split_in_thirds(name)) for name in "ab"}
    followed = {name: wm.stream(tmp_path / name, time="ts", follow=True, files_per_batch=1) for name in "ab"}
    sources = build_streams(**frames) if kind == "frames" else followed
    ran = list_batches(run_available(wm.on_spark(QUERY, sources, session=spark, plans=tmp_path / "plans"), tmp_path))
    expected, ledgers = run_embedded_by_rates()
    assert [ledger(batch) for batch in ran] == ledgers
    assert all(entry["shed"] for entry in ledgers[2].values())
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == expected
    forget_batch(tmp_path, 2)
    (again,) = list_batches(
        run_available(wm.on_spark(QUERY, sources, session=spark, plans=tmp_path / "plans"), tmp_path)
    )
    assert ledger(again) == ledgers[2]
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == expected


def test_the_drop_seed_of_a_running_query_cannot_change(tmp_path: Path) -> None:
    log = PlanLog(tmp_path)
    log.write(0, wm.plan(drop={"a": 0.5}, drop_seed=9))
    drops = PlannedDrops(bind_query(QUERY, build_streams(**TABLES)), "a", wm.plan(), log)
    assert not drops.box_at(NO_BATCH).is_dropping  # no batch runs here, so no logged plan is used
    with pytest.raises(wm.PlanError, match="sheds rows with seed 0, but the new plan uses 9"):
        check_drop_seed(wm.plan(), wm.plan(drop={"a": 0.5}, drop_seed=9))


def split_in_thirds(name: str) -> list[pa.Table]:
    return [TABLES[name].slice(start, rows) for start, rows in THIRDS]


def ledger(batch: SparkBatchMetrics) -> dict[str, dict[str, int]]:
    return {name: {"arrived": batch.arrived[name], "shed": batch.shed[name], "late": batch.late[name]} for name in "ab"}


def run_embedded_by_rates() -> tuple[Rows, list[dict[str, dict[str, int]]]]:
    """Run the same shed rates by batch in this process; return the rows and the ledger of each batch."""
    run = wm.run(QUERY, build_streams(a=split_in_thirds("a"), b=split_in_thirds("b")), plan=wm.plan())
    found, ledgers = [], []
    for batch, tables in enumerate(run.read_rounds()):
        if batch in RATES:
            run.replan(wm.plan(drop=RATES[batch]))
        found += run.advance(tables)
        entries = {name: asdict(entry) for name, entry in run.batch_ledger.items()}
        assert all(entry["arrived"] == entry.pop("kept") + entry["shed"] + entry["late"] for entry in entries.values())
        ledgers.append(entries)
    return table_to_rows(pa.Table.from_batches(found, run.result)), ledgers


def test_a_written_plan_cannot_be_changed(tmp_path: Path) -> None:
    log = PlanLog(tmp_path)
    log.write(3, wm.plan("eager-nlj"))
    with pytest.raises(wm.PlanError, match="batch 3 already has its plan"):
        log.write(3, wm.plan())
    assert log.plan_at(2) is None
    assert log.plan_at(7) == wm.plan("eager-nlj")


def test_without_a_pinned_plan_the_first_file_of_a_followed_directory_decides(tmp_path: Path) -> None:
    """A band join over many rows has a plan of its own; over few rows, or without a sample, it has the default plan."""
    rng = np.random.default_rng(7)
    rows = pa.table({"ts": pa.array(np.arange(20_000) * 500), "x": pa.array(rng.integers(0, 1_000_000, 20_000))})
    text = "SELECT a.x FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.x <= b.x + 5 AND a.x >= b.x - 5"
    for name, size in {"many": 20_000, "few": 10}.items():
        for stream in "ab":
            (tmp_path / name / stream).mkdir(parents=True)
            pq.write_table(rows.slice(0, size), tmp_path / name / stream / "0.parquet")
    plans = {}
    for name in ("many", "few"):
        sources = {stream: wm.stream(tmp_path / name / stream, time="ts", follow=True) for stream in "ab"}
        plans[name] = choose_spark_plan(bind_query(text, sources), sources)
    assert plans["many"].algorithm != "runs"
    assert plans["few"] == make_default_plan(bind_query(text, sources))

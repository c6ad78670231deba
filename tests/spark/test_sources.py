"""Every kind of source on Spark: DataFrames, files, tables and mixtures, with pushdown, shedding and aggregation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, run_available, stream_to_rows, table_to_rows
from watersmeet.runtime.spark.batch_metrics import list_batches

JOIN = """
    SELECT a.id AS a, b.id AS b, a.s, b.x
    FROM a [RANGE 4 SECONDS], b [RANGE 2 SECONDS]
    WHERE a.k = b.k AND a.x < 0.75 AND (a.s IN ('u', 'v') OR a.s IS NULL) AND NOT b.k BETWEEN 3 AND 4 AND b.s <> 'w'
"""
SECOND_US = 1_000_000


def table(seed: int, rows: int = 60) -> pa.Table:
    """Generate rows in time order, with nulls, NaN and −0.0 among them."""
    values = [(seed * 7 + i * 11) % 17 for i in range(rows)]
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "ts": pa.array([i * SECOND_US // 4 + v for i, v in enumerate(values)], pa.timestamp("us", "UTC")),
            "k": pa.array([None if v == 16 else v % 6 for v in values], pa.int32()),
            "x": pa.array([(float("nan"), -0.0, 0.5, 0.75, None)[v % 5] for v in values], pa.float64()),
            "s": pa.array([("u", "v", "w", None)[v % 4] for v in values]),
        }
    )


TABLES = {"a": table(1), "b": table(2)}


def build_streams(**sources: Any) -> dict[str, wm.Stream]:
    return {name: wm.stream(source, time="ts") for name, source in sources.items()}


def frame(spark: SparkSession, name: str) -> DataFrame:
    return spark.createDataFrame(TABLES[name])


def split_in_halves(name: str) -> list[pa.Table]:
    return [TABLES[name].slice(0, 25), TABLES[name].slice(25)]


def streaming_frame(
    spark: SparkSession, folder: Path, name: str, parts: list[pa.Table] | None = None, *, exist_ok: bool = False
) -> DataFrame:
    (folder / name).mkdir(exist_ok=exist_ok)
    for number, rows in enumerate(parts or split_in_halves(name)):
        path = folder / name / f"{number}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark processes the older file first
    schema = spark.createDataFrame(TABLES[name]).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))


def test_dataframes_give_the_rows_of_their_tables(spark: SparkSession) -> None:
    expected = table_to_rows(wm.collect(JOIN, build_streams(**TABLES)))
    assert expected
    found = wm.on_spark(JOIN, build_streams(a=frame(spark, "a"), b=frame(spark, "b")))
    assert not found.isStreaming
    assert collect_rows(found) == expected


def test_files_and_frames_and_tables_can_be_mixed(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(TABLES["a"], tmp_path / "a.parquet")
    expected = table_to_rows(wm.collect(JOIN, build_streams(**TABLES)))
    assert (
        collect_rows(wm.on_spark(JOIN, build_streams(a=tmp_path / "a.parquet", b=frame(spark, "b")), session=spark))
        == expected
    )


def test_a_table_joins_an_unbounded_stream(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
    sources = {
        "a": wm.stream(streaming_frame(spark, tmp_path, "a"), time="ts", lateness="1 hour"),
        "b": wm.stream(TABLES["b"], time="ts"),
    }
    found = wm.on_spark(query, sources)
    assert found.isStreaming
    assert stream_to_rows(found, tmp_path) == table_to_rows(wm.collect(query, build_streams(**TABLES)))


def test_a_streaming_frame_counts_rows_that_its_selection_drops(spark: SparkSession, tmp_path: Path) -> None:
    latest_first = split_in_halves("a")[::-1]
    source = streaming_frame(spark, tmp_path, "a", latest_first)
    query = run_available(
        wm.on_spark("SELECT a.id FROM a [RANGE 1 SECOND] WHERE a.x < 0.5", build_streams(a=source)), tmp_path
    )
    assert [(batch.arrived["a"], batch.late["a"]) for batch in list_batches(query)] == [(35, 0), (25, 25)]


def test_shedding_keeps_the_same_rows_on_every_host(spark: SparkSession) -> None:
    plan = wm.plan(drop={"a": 0.4, "b": 0.2})
    query = "SELECT a.id AS a, b.id AS b FROM a [RANGE 4 SECONDS], b [RANGE 4 SECONDS] WHERE a.k = b.k"
    embedded = wm.collect(query, build_streams(**TABLES), plan=plan)
    assert json.loads(embedded.schema.metadata[b"watersmeet"])["ledger"]["a"]["shed"] > 0
    expected = table_to_rows(embedded)
    assert collect_rows(wm.on_spark(query, build_streams(**TABLES), plan=plan, session=spark)) == expected
    assert (
        collect_rows(wm.on_spark(query, build_streams(a=frame(spark, "a"), b=frame(spark, "b")), plan=plan)) == expected
    )


@pytest.mark.parametrize("clause", ["EVERY 2 SECONDS", ""])
def test_aggregation_gives_the_same_groups(spark: SparkSession, clause: str) -> None:
    query = f"""SELECT a.k, COUNT(*) AS n, SUM(b.x) AS total, MAX(a.s) AS most
        FROM a [RANGE 4 SECONDS], b [ROWS 5] WHERE a.k = b.k AND a.s <> 'w' GROUP BY a.k {clause}"""
    batched = {name: [rows.slice(0, 20), rows.slice(20, 0), rows.slice(20)] for name, rows in TABLES.items()}
    expected = table_to_rows(wm.collect(query, build_streams(**batched)))
    assert expected
    assert collect_rows(wm.on_spark(query, build_streams(**batched), session=spark)) == expected


def test_an_aggregation_resumes_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT a.k, COUNT(*) AS n FROM a [RANGE 4 SECONDS] GROUP BY a.k EVERY 1 SECOND"
    source = streaming_frame(spark, tmp_path, "a")
    found = stream_to_rows(wm.on_spark(query, build_streams(a=source)), tmp_path)
    run = wm.run(query, build_streams(a=split_in_halves("a")))
    *rounds, _ = run.batches()
    assert found == table_to_rows(pa.concat_tables([pa.Table.from_batches(each, run.config.result) for each in rounds]))

"""An aggregation that sheds rows gives the same estimates and standard errors on Spark as embedded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, forget_batch, run_available, table_to_rows
from watersmeet.runtime.spark.batch_metrics import list_batches

from .test_sources import build_streams, frame, split_in_halves, streaming_frame

PLAN = wm.plan(drop={"a": 0.3, "b": 0.2}, drop_seed=3)
QUERIES = {
    "every second": "SELECT a.k, COUNT(*) AS n, SUM(b.x) AS total, AVG(b.x) AS mean, MAX(a.s) AS most"
    " FROM a [RANGE 4 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k AND a.s <> 'w' GROUP BY a.k EVERY 1 SECOND",
    "every batch": "SELECT COUNT(*) AS n FROM a [RANGE 4 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k",
}


@pytest.mark.parametrize("interval", QUERIES)
def test_estimates_are_those_of_the_embedded_engine(spark: SparkSession, interval: str) -> None:
    query, whole = QUERIES[interval], {name: pa.concat_tables(split_in_halves(name)) for name in "ab"}
    embedded = wm.collect(query, build_streams(**whole), plan=PLAN)
    assert "n_stderr" in embedded.column_names
    assert embedded.num_rows
    assert collect_rows(wm.on_spark(query, build_streams(**whole), plan=PLAN, session=spark)) == table_to_rows(embedded)
    assert collect_rows(
        wm.on_spark(query, build_streams(a=frame(spark, "a"), b=frame(spark, "b")), plan=PLAN)
    ) == table_to_rows(embedded)


@pytest.mark.parametrize("interval", QUERIES)
def test_a_stopped_query_resumes_with_the_same_estimates(spark: SparkSession, tmp_path: Path, interval: str) -> None:
    query = QUERIES[interval]
    run = wm.run(query, build_streams(a=split_in_halves("a"), b=split_in_halves("b")), plan=PLAN)
    *rounds, _ = run.batches()
    expected = table_to_rows(pa.concat_tables([pa.Table.from_batches(each, run.result) for each in rounds]))
    sources = build_streams(a=streaming_frame(spark, tmp_path, "a"), b=streaming_frame(spark, tmp_path, "b"))
    results = wm.on_spark(query, sources, plan=PLAN)
    last = list_batches(run_available(results, tmp_path))[-1]
    assert sum(last.shed.values()) > 0
    assert collect_rows(spark.read.schema(results.schema).parquet(str(tmp_path / "out"))) == expected
    forget_batch(tmp_path, last.batch)
    run_available(wm.on_spark(query, sources, plan=PLAN), tmp_path)
    assert collect_rows(spark.read.schema(results.schema).parquet(str(tmp_path / "out"))) == expected


def test_another_shed_rate_on_the_same_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = QUERIES["every second"]
    sources = build_streams(a=streaming_frame(spark, tmp_path, "a"), b=streaming_frame(spark, tmp_path, "b"))
    last = list_batches(run_available(wm.on_spark(query, sources, plan=PLAN), tmp_path))[-1]
    forget_batch(tmp_path, last.batch)
    with pytest.raises(Exception, match="what is dropped"):
        run_available(wm.on_spark(query, sources, plan=wm.plan(drop={"a": 0.5}, drop_seed=3)), tmp_path)

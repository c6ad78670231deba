"""Plans that divide probes and windows between two streams, on Spark: the same rows as in one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.runtime.limited_joins import FIG_6
from tests.spark.queries import collect_rows, forget_batch, run_available, table_to_rows
from watersmeet.runtime.spark.batch_metrics import list_batches

from .test_sources import build_streams, split_in_halves, streaming_frame

PLAN = wm.plan("runs", probe={"a": 0.4, "b": 0.9}, window={"a": 0.8, "b": 0.3})


def _rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("kind", ["RANGE", "ROWS"])
def test_spark_keeps_the_same_pairs_as_one_process(spark: SparkSession, kind: str) -> None:
    query, streams = FIG_6.query(kind), FIG_6.streams(seconds=60)
    expected = wm.collect(query, streams, plan=PLAN)
    found = wm.on_spark(query, streams, plan=PLAN, session=spark).toArrow()
    assert expected.num_rows
    assert _rows(found) == _rows(expected)


def test_a_short_budget_keeps_the_predicted_share_on_spark(spark: SparkSession) -> None:
    query, streams = FIG_6.query("RANGE"), FIG_6.streams(seconds=900)
    budget = FIG_6.budget("RANGE")
    rows = wm.on_spark(query, streams, session=spark, plan=FIG_6.plan, budget=budget, shed=True, stats=FIG_6.stats)
    kept = rows.count()
    whole = wm.collect(query, streams).num_rows
    assert kept / whole == pytest.approx(5 / 6, rel=0.05)


def test_a_streaming_query_restarts_and_its_ledger_counts_rows_without_a_role(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = "SELECT a.x, b.x AS y FROM a [RANGE 4 SECONDS], b [RANGE 3 SECONDS] WHERE a.k = b.k"
    plan = wm.plan("runs", probe={"a": 0.4, "b": 0.7}, window={"a": 0.6, "b": 0.3})
    run = wm.run(query, build_streams(a=split_in_halves("a"), b=split_in_halves("b")), plan=plan)
    *rounds, _ = run.batches()
    expected = table_to_rows(pa.concat_tables([pa.Table.from_batches(each, run.result) for each in rounds]))
    sources = build_streams(a=streaming_frame(spark, tmp_path, "a"), b=streaming_frame(spark, tmp_path, "b"))
    results = wm.on_spark(query, sources, plan=plan)
    batches = list_batches(run_available(results, tmp_path))
    for name, entry in run.ledger.items():
        assert sum(batch.shed.get(name, 0) for batch in batches) == entry.shed > 0
    assert collect_rows(spark.read.schema(results.schema).parquet(str(tmp_path / "out"))) == expected
    forget_batch(tmp_path, batches[-1].batch)
    run_available(wm.on_spark(query, sources, plan=plan), tmp_path)
    assert collect_rows(spark.read.schema(results.schema).parquet(str(tmp_path / "out"))) == expected

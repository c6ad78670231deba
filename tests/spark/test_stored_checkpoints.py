"""The upgrade promise on Spark: a checkpoint of an earlier version is resumed, and gives the rows of one run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.runtime.stored_checkpoints import FOLDER, PLANS, QUERIES, add_files
from tests.runtime.test_stored_checkpoints import READABLE
from tests.spark.queries import collect_rows, table_to_rows

from .stored_checkpoints import BATCHES, COMMITTED, STORED, run_query, unpack


@pytest.mark.parametrize("query", STORED)
@pytest.mark.parametrize("version", READABLE)
def test_a_stored_checkpoint_is_resumed(spark: SparkSession, version: str, query: str, tmp_path: Path) -> None:
    unpack(FOLDER / version / "spark" / query, tmp_path)
    run_query(spark, query, tmp_path, range(COMMITTED, BATCHES))
    written = spark.read.parquet(*map(str, (tmp_path / "out").glob("*.parquet")))  # the log of the sink begins later
    assert collect_rows(written) == collect_later_rows(query, tmp_path / "whole")


def collect_later_rows(query: str, folder: Path) -> object:
    """Return the rows that the embedded engine emits for the batches after the stored ones, while more may follow."""
    for number in range(BATCHES):
        add_files(folder, number)
    files = {name: sorted((folder / name).iterdir()) for name in ("a", "b")}
    streams = {
        name: wm.stream([pq.read_table(path) for path in paths], time="ts", unit="us", lateness="2 s")
        for name, paths in files.items()
    }
    run = wm.run(QUERIES[query], streams, plan=PLANS.get(query))
    batches = [run.advance(tables) for tables in run.read_rounds()]
    return table_to_rows(pa.Table.from_batches([each for batch in batches[COMMITTED:] for each in batch], run.result))

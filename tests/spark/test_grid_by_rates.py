"""The rates of the streams decide the grid of buckets, and a restart keeps the grid of its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation, SparkSession

import watersmeet as wm
from tests.spark.queries import collect_rows, run_available, table_to_rows
from watersmeet.runtime.spark.batch_metrics import list_batches
from watersmeet.runtime.spark.host import on_spark

QUERY = (
    "SELECT big.id AS a, small.id AS b FROM big [RANGE 1 SECOND], small [RANGE 1 SECOND] WHERE big.x < small.x - 990"
)
BUCKETS = 8


def rows(count: int, seed: int, start_s: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = pa.array(np.sort(rng.integers(0, 100_000_000, count)) + start_s * 1_000_000, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "ts": times,
            "x": pa.array(rng.integers(0, 1000, count)),
            "id": pa.array(np.arange(count) + start_s * 1_000_000),
        }
    )


def test_the_large_stream_is_shuffled_once_and_the_small_one_to_every_bucket(spark: SparkSession) -> None:
    sources = {"big": wm.stream(rows(200_000, 0), time="ts"), "small": wm.stream(rows(200, 1), time="ts")}
    observation = Observation()
    found = collect_rows(on_spark(QUERY, sources, session=spark, buckets=BUCKETS, observation=observation))
    shuffled = {
        name: value
        for text, value in observation.get.items()
        for metric, *aliases in [json.loads(text)]
        if metric == "shuffled"
        for name in aliases
    }
    assert shuffled == {"big": 200_000, "small": 8 * 200}
    assert (
        sum(shuffled.values())
        == wm.explain(QUERY, sources, engine="spark", buckets=BUCKETS).to_dict()["shuffle"]["rows"]
    )
    assert found == table_to_rows(wm.collect(QUERY, sources))


def test_a_band_is_partitioned_by_ranges_of_its_value(spark: SparkSession) -> None:
    band = QUERY.replace("big.x < small.x - 990", "ABS(big.x - small.x) <= 2")
    sources = {name: wm.stream(rows(20_000, seed), time="ts") for seed, name in enumerate(("big", "small"))}
    observation = Observation()
    found = collect_rows(on_spark(band, sources, session=spark, buckets=BUCKETS, observation=observation))
    shuffled = sum(value for text, value in observation.get.items() if json.loads(text)[0] == "shuffled")
    assert 40_000 < shuffled < 1.05 * 40_000
    assert found == table_to_rows(wm.collect(band, sources))


def test_a_restart_with_other_rates_keeps_the_grid_of_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    tables: dict[str, list[pa.Table]] = {"big": [], "small": []}

    def run_once(number: int, counts: dict[str, int]) -> dict[str, int]:
        """Process new files, with only these in the directories; return the shuffled rows by stream."""
        for name, count in counts.items():
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
            tables[name].append(rows(count, number, start_s=number * 90))
            pq.write_table(tables[name][-1], folder / f"{number}.parquet")
        sources = {name: wm.stream(tmp_path / name, time="ts", lateness="1 hour", follow=True) for name in counts}
        frame = wm.on_spark(QUERY, sources, session=spark, buckets=BUCKETS, checkpoint=tmp_path / "checkpoint")
        (batch,) = [each for each in list_batches(run_available(frame, tmp_path)) if sum(each.arrived.values())]
        return dict(batch.shuffled)

    assert run_once(0, {"big": 2_000, "small": 20}) == {"big": 2_000, "small": 8 * 20}
    assert run_once(1, {"big": 20, "small": 2_000}) == {"big": 20, "small": 8 * 2_000}
    whole = {name: wm.stream(pa.concat_tables(parts), time="ts") for name, parts in tables.items()}
    expected = table_to_rows(wm.collect(QUERY, whole))
    assert collect_rows(spark.read.parquet(str(tmp_path / "out"))) == expected

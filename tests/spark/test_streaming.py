"""Generated queries over growing directories give the embedded engine's rows, over restarts, with and without cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.oracle import Arrival
from tests.properties.generators.arrival_orders import arrive_in_any_batches, arrive_with_late_rows
from tests.properties.generators.cases import QueryCase
from tests.properties.generators.join_cases import generate_case
from tests.spark.queries import build_sources, collect_rows, run_available, table_to_rows
from watersmeet.runtime.spark import host
from watersmeet.runtime.spark.batch_metrics import list_batches

from ..properties.engine import Rows, assert_same
from ..volume import scale_volume

#: Cases with types that a parquet file can hold. The first four have few batches. They include one and several streams,
#: ROWS windows, relations, self joins and late rows, and run with and without cache.
SEEDS = (107, 112, 129, 130, *range(100, 107))[: scale_volume(4)]


@pytest.mark.parametrize("seed", SEEDS)
def test_files_that_arrive_one_by_one(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    case, rng = generate_case(seed), Random(seed)
    arrivals = (arrive_with_late_rows if seed % 2 else arrive_in_any_batches)(rng, case)
    cut = rng.randint(0, max(len(arrival.batches) for arrival in arrivals.values()))
    expected, ledger = _run_embedded(case, arrivals)
    counted: dict[str, list[int]] = {name: [0, 0] for name in arrivals}
    # The query stops in between and resumes from its checkpoint.
    for part in (slice(0, max(cut, 1)), slice(max(cut, 1), None)):
        _write(tmp_path, arrivals, part)
        frame = host.on_spark(
            case.text,
            _follow_files(case, tmp_path, arrivals),
            session=spark,
            buckets=1 + seed % 3,
            cache_state=bool(seed % 4 > 1),
        )
        for batch in list_batches(run_available(frame, tmp_path)):
            for name, numbers in counted.items():
                numbers[0] += batch.arrived[name]
                numbers[1] += batch.late[name]
    assert_same(case, collect_rows(spark.read.schema(frame.schema).parquet(str(tmp_path / "out"))), expected)
    assert {name: tuple(numbers) for name, numbers in counted.items()} == ledger


def _run_embedded(case: QueryCase, arrivals: Mapping[str, Arrival]) -> tuple[Rows, dict[str, tuple[int, int]]]:
    """Return the rows of every round, without those released at the end: a stream on Spark does not end."""
    run = wm.run(case.text, build_sources(case, arrivals))
    *rounds, _ = run.batches()
    tables = [pa.Table.from_batches(found, run.config.result) for found in rounds]
    return table_to_rows(pa.concat_tables(tables)), {
        name: (entry.arrived, entry.late) for name, entry in run.ledger.items()
    }


def _write(folder: Path, arrivals: Mapping[str, Arrival], part: slice) -> None:
    for name, arrival in arrivals.items():
        (folder / name).mkdir(exist_ok=True)
        for number, table in list(enumerate(arrival.batches))[part]:
            path = folder / name / f"{number:03d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)


def _follow_files(case: QueryCase, folder: Path, arrivals: Mapping[str, Arrival]) -> dict[str, Any]:
    sources = build_sources(case, {})
    for name, arrival in arrivals.items():
        idle = None if arrival.idle_us is None else f"{arrival.idle_us} microseconds"
        lateness = f"{arrival.lateness_us} microseconds"
        sources[name] = wm.stream(
            folder / name,
            time=arrival.time,
            unit=arrival.unit,
            lateness=lateness,
            idle=idle,
            follow=True,
            files_per_batch=1,
        )
    return sources

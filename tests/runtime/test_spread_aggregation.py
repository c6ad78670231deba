"""An aggregation spread over buckets emits the oracle's groups: whole in their buckets, or added up from parts by a
second step.

Everything that Spark would run is run here by hand, without Spark: packing, buckets, mergers. A failure prints its
seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.oracle import Arrival, admit, as_multiset, table_rows
from tests.properties.generators.aggregation_cases import (
    AggregationCase,
    EmittedRows,
    early_plans,
    expected_groups,
    expected_groups_by_batch,
    generate_aggregation,
)
from tests.properties.generators.arrival_orders import (
    arrive_in_any_batches,
    arrive_with_late_rows,
    arrive_within_lateness,
)
from watersmeet.errors import QueryError
from watersmeet.runtime.embedded.run import bind_query
from watersmeet.runtime.spark.emission import BLOB, BatchedRows, PartialGroups
from watersmeet.runtime.spark.execution_plan import SparkExecutionPlan, build_execution_plan
from watersmeet.runtime.spark.processor import merge_finite, run_finite
from watersmeet.runtime.spark.spark_types import to_spark_schema

from ..properties.test_against_the_oracle import FIRST_SEED
from ..volume import scale_volume

CHUNKS = 10
SEEDS = scale_volume(20)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_buckets_and_mergers_emit_the_oracles_groups_every_so_often(chunk: int) -> None:
    for seed in _seeds(chunk):
        rng, case = Random(seed), generate_aggregation(seed)
        arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
        wanted = expected_groups(case.with_tables(case.tables | admit(arrivals).tables))
        assert_same(case, spread(rng, case, arrivals), wanted)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_buckets_and_mergers_emit_the_oracles_groups_at_every_batch(chunk: int) -> None:
    for seed in _seeds(chunk):
        rng, case = Random(seed), generate_aggregation(seed, every=False)
        arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
        assert_same(case, spread(rng, case, arrivals), expected_groups_by_batch(case, arrivals))


def test_both_ways_of_spreading_are_among_the_generated_queries() -> None:
    found: Counter[str] = Counter()
    for seed in _seeds(0):
        case = generate_aggregation(seed)
        for buckets in (2, 6):
            arrangement = _arranged(case, arrive_in_any_batches(Random(seed), case), buckets, Random(seed))
            spread_over = len(arrangement.bucket.labels)
            found["one bucket" if spread_over == 1 else "whole groups" if arrangement.merger is None else "parts"] += 1
    assert min(found["one bucket"], found["whole groups"], found["parts"]) > 3, found


def spread(rng: Random, case: AggregationCase, arrivals: Mapping[str, Arrival]) -> EmittedRows | None:
    """What a finite input emits on Spark, in any number of buckets; None where a sum overflows."""
    arrangement = _arranged(case, arrivals, rng.choice((2, 3, 4, 6)), rng)
    try:
        table = _rows(arrangement, arrivals)
    except QueryError as error:
        if "overflow in the sum" not in str(error):
            raise
        return None
    return as_multiset(table_rows(table))


def assert_same(case: AggregationCase, actual: EmittedRows | None, wanted: EmittedRows | None) -> None:
    if actual != wanted:
        raise AssertionError(f"seed {case.seed}\n{case.text}\nemitted {actual}\nwanted  {wanted}")


def _arranged(case: AggregationCase, arrivals: Mapping[str, Arrival], buckets: int, rng: Random) -> SparkExecutionPlan:
    sources: dict[str, Any] = {source.name: wm.relation(source.table) for source in case.sources if source.time is None}
    for name, arrival in arrivals.items():
        idle = None if arrival.idle_us is None else f"{arrival.idle_us} microseconds"
        lateness = f"{arrival.lateness_us} microseconds"
        sources[name] = wm.stream(
            list(arrival.batches), time=arrival.time, unit=arrival.unit, lateness=lateness, idle=idle
        )
    return build_execution_plan(
        bind_query(case.text, sources), sources, rng.choice(early_plans(case)), buckets, partitions=2
    )


def _rows(arrangement: SparkExecutionPlan, arrivals: Mapping[str, Arrival]) -> pa.Table:
    merger, shown = arrangement.merger, BatchedRows((), to_spark_schema(arrangement.bucket.config.result))
    emission = shown if merger is None else PartialGroups((), merger.labels, len(merger.config.group_outputs.keys))
    emitted: list[pa.RecordBatch] = list(run_finite(arrangement.bucket, emission, _packed(arrangement, arrivals)))
    if merger is not None:
        emitted = list(merge_finite(merger, (batch.filter(batch.column(BLOB).is_valid()) for batch in emitted)))
    return pa.Table.from_batches([_spread(batch, shown.fields) for batch in emitted], shown.fields)


def _spread(batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
    """Lists as rows, which on Spark the JVM makes of them."""
    return pa.RecordBatch.from_arrays([column.flatten() for column in batch.columns[: len(fields)]], schema=fields)


def _packed(arrangement: SparkExecutionPlan, arrivals: Mapping[str, Arrival]) -> Iterator[pa.RecordBatch]:
    """Every round of every stream, a clock for each of them, even where one of the streams is over."""
    rounds = list(zip_longest(*(arrival.batches for arrival in arrivals.values())))
    for number, tables in enumerate(rounds):
        of_stream = dict(zip(arrivals, tables, strict=True))
        for packer in arrangement.packers:
            table = of_stream[packer.name]
            yield from packer.pack([] if table is None else [table.select(packer.names_read())], number)


def _seeds(chunk: int) -> range:
    return range(FIRST_SEED + chunk * SEEDS, FIRST_SEED + (chunk + 1) * SEEDS)

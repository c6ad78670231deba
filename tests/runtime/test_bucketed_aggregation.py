"""An aggregation over several buckets emits the oracle's groups, complete in a bucket or merged by a second step.

These tests run packing, buckets and mergers directly, without Spark. A failure prints its seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from random import Random
from typing import Any, cast

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
from tests.properties.test_against_the_oracle import FIRST_SEED
from tests.volume import scale_volume
from watersmeet.errors import QueryError
from watersmeet.runtime.buckets.execution_plan import SparkExecutionPlan, build_execution_plan
from watersmeet.runtime.spark.emission import BLOB, BatchedRows, PartialGroups, to_spark_schema
from watersmeet.runtime.spark.processor import merge_finite, run_finite
from watersmeet.sources.declarations import bind_query

CHUNKS = 10
SEEDS = scale_volume(10)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_buckets_and_mergers_emit_the_oracles_groups_at_every_interval(chunk: int) -> None:
    for seed in _seeds(chunk):
        rng, case = Random(seed), generate_aggregation(seed)
        arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
        expected = expected_groups(case.with_tables(case.tables | admit(arrivals).tables))
        assert_same(case, run_in_buckets(rng, case, arrivals), expected)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_buckets_and_mergers_emit_the_oracles_groups_at_every_batch(chunk: int) -> None:
    for seed in _seeds(chunk):
        rng, case = Random(seed), generate_aggregation(seed, every=False)
        arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
        assert_same(case, run_in_buckets(rng, case, arrivals), expected_groups_by_batch(case, arrivals))


@pytest.mark.parametrize("mode", ["SNAPSHOT", "CHANGES WITH OPERATIONS"])
def test_buckets_emit_snapshots_and_operations(mode: str) -> None:
    for seed in _seeds(0):
        rng, case = Random(seed), replace(generate_aggregation(seed), emit=mode)
        arrivals = rng.choice((arrive_in_any_batches, arrive_within_lateness, arrive_with_late_rows))(rng, case)
        expected = expected_groups(case.with_tables(case.tables | admit(arrivals).tables))
        assert_same(case, run_in_buckets(rng, case, arrivals), expected)


def test_the_generated_queries_have_whole_and_partial_groups() -> None:
    found: Counter[str] = Counter()
    for seed in (seed for chunk in range(CHUNKS) for seed in _seeds(chunk)):
        case = generate_aggregation(seed)
        for buckets in (2, 6):
            plan = _build_plan(case, arrive_in_any_batches(Random(seed), case), buckets, Random(seed))
            bucket_count = len(plan.bucket.labels)
            found[
                "one bucket" if bucket_count == 1 else "whole groups" if plan.merger is None else "partial groups"
            ] += 1
    assert min(found["one bucket"], found["whole groups"], found["partial groups"]) > 3, found


def run_in_buckets(rng: Random, case: AggregationCase, arrivals: Mapping[str, Arrival]) -> EmittedRows | None:
    """Return the rows that a finite input emits in a random number of buckets; None where a sum overflows."""
    plan = _build_plan(case, arrivals, rng.choice((2, 3, 4, 6)), rng)
    try:
        table = _run_plan(plan, arrivals)
    except QueryError as error:
        if "overflow in the sum" not in str(error):
            raise
        return None
    return as_multiset(table_rows(table))


def assert_same(case: AggregationCase, actual: EmittedRows | None, expected: EmittedRows | None) -> None:
    if actual != expected:
        raise AssertionError(f"seed {case.seed}\n{case.text}\nemitted {actual}\nexpected {expected}")


def _build_plan(
    case: AggregationCase, arrivals: Mapping[str, Arrival], buckets: int, rng: Random
) -> SparkExecutionPlan:
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


def _run_plan(plan: SparkExecutionPlan, arrivals: Mapping[str, Arrival]) -> pa.Table:
    merger, rows = plan.merger, BatchedRows((), to_spark_schema(plan.bucket.config.result))
    emission = rows if merger is None else PartialGroups((), merger.labels, len(merger.config.group_outputs.keys))
    emitted: list[pa.RecordBatch] = list(run_finite(plan.bucket, emission, _pack(plan, arrivals)))
    if merger is not None:
        emitted = list(merge_finite(merger, (batch.filter(batch.column(BLOB).is_valid()) for batch in emitted)))
    return pa.Table.from_batches([_explode(batch, rows.fields) for batch in emitted], rows.fields)


def _explode(batch: pa.RecordBatch, fields: pa.Schema) -> pa.RecordBatch:
    """Explode lists into rows, as the JVM does on Spark."""
    lists = cast("list[pa.ListArray[Any]]", batch.columns[: len(fields)])
    return pa.RecordBatch.from_arrays([column.flatten() for column in lists], schema=fields)


def _pack(plan: SparkExecutionPlan, arrivals: Mapping[str, Arrival]) -> Iterator[pa.RecordBatch]:
    """Pack every round of every stream. A stream that has ended still sends its clock."""
    rounds = list(zip_longest(*(arrival.batches for arrival in arrivals.values())))
    for number, tables in enumerate(rounds):
        of_stream = dict(zip(arrivals, tables, strict=True))
        for packer in plan.packers:
            table = of_stream[packer.name]
            yield from packer.pack([] if table is None else [table.select(packer.names_read())], number)


def _seeds(chunk: int) -> range:
    return range(FIRST_SEED + chunk * SEEDS, FIRST_SEED + (chunk + 1) * SEEDS)

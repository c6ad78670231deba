"""Ranges of values place the rows of a band: pairs meet once, few rows are copied, boundaries stay. Needs no Java."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from tests.oracle import as_multiset, table_rows
from tests.properties.engine import collect, declare_source
from tests.properties.generators.cases import QueryCase
from tests.properties.test_against_the_oracle import FIRST_SEED
from tests.properties.test_query_errors import rows_or_error
from tests.properties.test_ranges import generate_range_case
from tests.volume import scale_volume
from watersmeet.errors import QueryError
from watersmeet.operators.protocol import exhaust
from watersmeet.runtime.buckets.bucket_grid import GridStore
from watersmeet.runtime.buckets.execution_plan import SparkExecutionPlan, build_execution_plan
from watersmeet.runtime.buckets.packets import ROW_COPIES, ROWS, Packet, decode_packets
from watersmeet.sources.declarations import bind_query

SEEDS = range(FIRST_SEED, FIRST_SEED + scale_volume(80))
JOIN = "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE {}"
BAND = JOIN.format("a.x BETWEEN b.x - 5 AND b.x + 5")
ABSOLUTE = JOIN.format("ABS(a.x - b.x) <= 5")


def random_rows(seed: int, count: int = 5_000, shift: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, 10_000_000, count))
    columns = {"ts": times, "x": rng.integers(0, 100_000, count) + shift, "id": np.arange(count)}
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def build_plan(text: str, sources: Any, buckets: int = 8, **how: Any) -> SparkExecutionPlan:
    return build_execution_plan(bind_query(text, sources), sources, None, buckets, buckets, **how)


def pack(plan: SparkExecutionPlan, tables: dict[str, pa.Table]) -> list[Packet]:
    return [
        packet
        for packer in plan.packers
        for packed in packer.pack([tables[packer.name].select(packer.names_read())])
        for packet in decode_packets(packed)
    ]


def run_buckets(plan: SparkExecutionPlan, tables: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """Return the rows of all buckets over one batch."""
    packets, bucket = pack(plan, tables), plan.bucket
    results: list[pa.RecordBatch] = []
    for label in bucket.labels:
        own = [packet for packet in packets if packet.bucket == label]
        found, _ = exhaust(bucket.advance(label, bucket.empty(), own, last=True))
        results += found
    return Counter(as_multiset(table_rows(pa.Table.from_batches(results, bucket.config.result))))


def count_shuffled(packets: list[Packet]) -> int:
    return sum(packet.rows for packet in packets if packet.kind in (ROWS, ROW_COPIES))


def list_bindable_cases() -> list[QueryCase]:
    cases = []
    for seed in SEEDS:
        case = generate_range_case(seed)
        try:
            cases += [case] if case.bound else []
        except QueryError:
            continue
    return cases


def test_buckets_by_ranges_give_the_rows_of_one_process() -> None:
    with_ranges = 0
    for case in list_bindable_cases():
        sources = {source.name: declare_source(source) for source in case.sources}
        plan = build_plan(case.text, sources, Random(case.seed).choice([2, 3, 4, 6]))
        with_ranges += plan.bucket.grid.range_axis is not None
        tables = {source.name: source.table for source in case.sources}
        found, expected = rows_or_error(lambda: run_buckets(plan, tables)), rows_or_error(lambda: collect(case).rows)  # noqa: B023
        assert found == expected, f"seed {case.seed}: {case.text}"
    assert with_ranges > len(SEEDS) / 10


@pytest.mark.parametrize("text", [BAND, ABSOLUTE])
def test_a_narrow_band_shuffles_few_rows_more_than_arrive(text: str) -> None:
    tables = {"a": random_rows(1), "b": random_rows(2)}
    sources = {name: wm.stream(table, time="ts") for name, table in tables.items()}
    plan = build_plan(text, sources)
    assert count_shuffled(pack(plan, tables)) < 1.01 * 10_000
    predicted = wm.explain(text, sources, engine="spark", buckets=8).to_dict()["shuffle"]["rows"]
    assert predicted == count_shuffled(pack(plan, tables))


def test_copies_do_not_count_in_the_ledger() -> None:
    tables = {"a": random_rows(1, 500), "b": random_rows(2, 500)}
    plan = build_plan(JOIN.format("a.x BETWEEN b.x - 9000 AND b.x + 9000"), _as_streams(tables), 4)
    packets = pack(plan, tables)
    assert any(packet.kind == ROW_COPIES for packet in packets)
    late = 0
    for label in plan.bucket.labels:
        before = plan.bucket.empty()
        own = [packet for packet in packets if packet.bucket == label]
        _, (state, _) = exhaust(plan.bucket.advance(label, before, own, last=False))
        _, (_, metrics) = exhaust(plan.bucket.advance(label, state, own, last=False))
        late += metrics["late_0"] + metrics["late_1"]
    watermark_us = min(int(np.max(table["ts"].to_numpy())) for table in tables.values()) // 1000 * 1000
    assert late == sum(int((table["ts"].to_numpy() < watermark_us).sum()) for table in tables.values())


def test_skewed_values_are_not_partitioned_by_ranges() -> None:
    skewed = random_rows(1).set_column(1, "x", pa.array([7] * 4_000 + [*range(1_000)]))
    assert build_plan(BAND, _as_streams({"a": skewed, "b": skewed})).bucket.grid.range_axis is None


def test_a_sum_that_may_overflow_is_not_used() -> None:
    edges = random_rows(1, shift=2**63 - 100_001)
    assert build_plan(ABSOLUTE, _as_streams({"a": random_rows(1), "b": edges})).bucket.grid.range_axis is None


def test_a_restart_keeps_the_boundaries(tmp_path: Path) -> None:
    store = GridStore(tmp_path / "checkpoint")
    first = build_plan(BAND, _write_directories(tmp_path, 0), checkpoint=store)
    assert first.bucket.grid.range_axis is not None
    (store.checkpoint / "offsets").mkdir(parents=True)
    (store.checkpoint / "offsets" / "0").write_text("v1")
    again = build_plan(BAND, _write_directories(tmp_path, 50_000), checkpoint=store)
    assert again.bucket.grid == first.bucket.grid
    assert again.signature == first.signature


def test_other_boundaries_are_another_signature(tmp_path: Path) -> None:
    signatures = [
        build_plan(
            BAND, _write_directories(tmp_path / str(shift), shift), checkpoint=GridStore(tmp_path / str(shift) / "c")
        ).signature
        for shift in (0, 50_000)
    ]
    assert signatures[0] != signatures[1]


def _as_streams(tables: dict[str, pa.Table]) -> dict[str, wm.Stream]:
    return {name: wm.stream(table, time="ts") for name, table in tables.items()}


def _write_directories(folder: Path, shift: int) -> dict[str, wm.Stream]:
    for seed, name in enumerate("ab"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(random_rows(seed, shift=shift), folder / name / "0.parquet")
    return {name: wm.stream(folder / name, time="ts", follow=True) for name in "ab"}

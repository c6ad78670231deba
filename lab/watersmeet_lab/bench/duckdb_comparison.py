"""The embedded engine against DuckDB on finite input: same rows, same process, same run, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.expected_rows import ExpectedRows
from watersmeet_lab.bench.join_workloads import CommonKeyStreams, JoinWorkload, first_rows
from watersmeet_lab.bench.resource_usage import CallMeasurement, measure_call
from watersmeet_lab.bench.results import PeerComparison, SystemResult

REPEATS = 3
WARM_UP_ROWS = 2_000
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class FiniteRunResult:
    """Results of both systems on finite tables, the expected rows, and the reasons for skipped systems."""

    expected: ExpectedRows
    systems: tuple[SystemResult, ...]
    skipped: Mapping[str, str]


def compare_with_duckdb(workload: JoinWorkload) -> PeerComparison:
    """Compare the embedded engine with DuckDB alone."""
    tables = workload.tables()
    found = run_on_finite_tables(workload, tables)
    return PeerComparison(
        workload.name,
        _count_rows(tables),
        found.expected.rows,
        workload.seed,
        found.systems,
        found.skipped,
        workload.note,
    )


def run_on_finite_tables(workload: JoinWorkload, tables: Tables, repeats: int = REPEATS) -> FiniteRunResult:
    """Run the embedded engine, DuckDB on all cores and DuckDB on one core, in turns.

    Each result is the best of `repeats` runs. Raise an error if their rows differ.
    """
    collect_with_watersmeet(workload, first_rows(tables, WARM_UP_ROWS))
    expected: list[ExpectedRows] = []

    def check_rows(name: str, found: pa.Table) -> None:
        if not expected:
            expected.append(ExpectedRows.from_result(workload, found))
        expected[0].check_table(name, found)

    calls: dict[str, Callable[[], pa.Table]] = {
        "watersmeet-embedded": lambda: collect_with_watersmeet(workload, tables)
    }
    try:
        calls |= {name: _duckdb_call(workload, tables, threads) for name, threads in _DUCKDB_THREADS.items()}
        skipped = {}
    except WatersmeetError as error:
        skipped = {"duckdb": str(error)}
    best = {name: _time_and_check(name, call, check_rows) for name, call in calls.items()}
    for _ in range(repeats - 1):
        for name, call in calls.items():
            best[name] = min(best[name], _time_and_check(name, call, None), key=lambda each: each.seconds)
    systems = [
        SystemResult(name, _count_rows(tables) / each.seconds, peak_bytes=each.peak_bytes)
        for name, each in best.items()
    ]
    return FiniteRunResult(expected[0], (_measure_batch_latency(systems[0], workload, tables), *systems[1:]), skipped)


def collect_with_watersmeet(workload: JoinWorkload, tables: Tables) -> pa.Table:
    """Run the workload on the embedded engine."""
    return wm.collect(
        workload.join.to_watersmeet_sql(),
        {name: wm.stream(table, time="ts", unit="us") for name, table in tables.items()},
    )


def embedded_seconds_per_row(workload: CommonKeyStreams) -> float:
    """Return our time per input row, the best of a few repeats."""
    tables, work = workload.tables(), workload.workload("growth", batches=3)
    return min(
        measure_call(lambda: collect_with_watersmeet(work, tables)).seconds for _ in range(REPEATS)
    ) / _count_rows(tables)


_DUCKDB_THREADS = {"duckdb": os.cpu_count() or 1, "duckdb-1-thread": 1}


def _duckdb_call(workload: JoinWorkload, tables: Tables, threads: int) -> Callable[[], pa.Table]:
    try:
        import duckdb
    except ImportError:
        raise WatersmeetError("DuckDB is not installed") from None

    def call() -> pa.Table:
        with duckdb.connect(config={"threads": threads}) as connection:
            for name, table in tables.items():
                connection.register(name, table)
            found: pa.Table = connection.sql(workload.join.to_duckdb_sql()).to_arrow_table()
            return found

    return call


def _time_and_check(
    name: str, call: Callable[[], pa.Table], check: Callable[[str, pa.Table], None] | None
) -> CallMeasurement[None]:
    """Measure a call, check its rows, and drop them.

    If the rows were kept, they would count as memory of the next measurement.
    """
    measurement = measure_call(call)
    if check is not None:
        check(name, measurement.result)
    return CallMeasurement(None, measurement.seconds, measurement.peak_bytes)


def _measure_batch_latency(system: SystemResult, workload: JoinWorkload, tables: Tables) -> SystemResult:
    """Run the same rows batch by batch, and add the latency of a batch and the size of the state."""
    run = wm.run(
        workload.join.to_watersmeet_sql(),
        {name: wm.stream(iter([table.slice(0, 0)]), time="ts", unit="us") for name, table in tables.items()},
    )
    batch_ms, state_bytes = [], 0
    for number in range(workload.batches):
        batch = {name: slice_batch(table, number, workload.batches) for name, table in tables.items()}
        start = time.perf_counter()
        run.advance(batch)
        batch_ms.append((time.perf_counter() - start) * 1000)
        state_bytes = max(state_bytes, run.state.nbytes)
    p50_ms, p99_ms = np.percentile(batch_ms[1:], [50, 99]).tolist()
    return replace(system, p50_ms=p50_ms, p99_ms=p99_ms, state_bytes=state_bytes)


def slice_batch(table: pa.Table, number: int, batches: int) -> pa.Table:
    """Return one of `batches` equal parts of a stream."""
    start, end = (table.num_rows * place // batches for place in (number, number + 1))
    return table.slice(start, end - start)


def _count_rows(tables: Tables) -> int:
    return sum(table.num_rows for table in tables.values())

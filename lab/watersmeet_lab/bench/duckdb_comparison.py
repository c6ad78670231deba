"""The embedded engine beside DuckDB on finite input: same rows, same process, same run, in turns."""

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
    """Both systems on a workload's rows as finite tables, the rows themselves, and why a system is missing."""

    answer: ExpectedRows
    systems: tuple[SystemResult, ...]
    skipped: Mapping[str, str]


def compare_with_duckdb(workload: JoinWorkload) -> PeerComparison:
    """The two alone, for a look at nothing but the engine."""
    tables = workload.tables()
    found = run_on_finite_tables(workload, tables)
    return PeerComparison(
        workload.name,
        _count_rows(tables),
        found.answer.rows,
        workload.seed,
        found.systems,
        found.skipped,
        workload.note,
    )


def run_on_finite_tables(workload: JoinWorkload, tables: Tables, repeats: int = REPEATS) -> FiniteRunResult:
    """Ours and DuckDB's, on all cores and on one, in turns: the best of a few repeats of each. Refuses figures when
    their rows differ.
    """
    collect_with_watersmeet(workload, first_rows(tables, WARM_UP_ROWS))
    answers: list[ExpectedRows] = []

    def check_rows(name: str, found: pa.Table) -> None:
        if not answers:
            answers.append(ExpectedRows.from_result(workload, found))
        answers[0].check_table(name, found)

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
    return FiniteRunResult(answers[0], (_measure_batch_latency(systems[0], workload, tables), *systems[1:]), skipped)


def collect_with_watersmeet(workload: JoinWorkload, tables: Tables) -> pa.Table:
    return wm.collect(
        workload.join.to_watersmeet_sql(),
        {name: wm.stream(table, time="ts", unit="us") for name, table in tables.items()},
    )


def embedded_seconds_per_row(workload: CommonKeyStreams) -> float:
    """Our time per input row, the best of a few repeats."""
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
            return connection.sql(workload.join.to_duckdb_sql()).to_arrow_table()

    return call


def _time_and_check(
    name: str, call: Callable[[], pa.Table], look: Callable[[str, pa.Table], None] | None
) -> CallMeasurement[None]:
    """Lets go of the rows once they were looked at: a second copy of them would count as memory of the next
    measurement.
    """
    measured = measure_call(call)
    if look is not None:
        look(name, measured.result)
    return CallMeasurement(None, measured.seconds, measured.peak_bytes)


def _measure_batch_latency(system: SystemResult, workload: JoinWorkload, tables: Tables) -> SystemResult:
    """The same rows batch by batch: how long a batch takes, and what is kept between batches."""
    run = wm.run(
        workload.join.to_watersmeet_sql(),
        {name: wm.stream(iter([table.slice(0, 0)]), time="ts", unit="us") for name, table in tables.items()},
    )
    took_ms, state_bytes = [], 0
    for number in range(workload.batches):
        batch = {name: slice_batch(table, number, workload.batches) for name, table in tables.items()}
        start = time.perf_counter()
        run.advance(batch)
        took_ms.append((time.perf_counter() - start) * 1000)
        state_bytes = max(state_bytes, run.state.nbytes)
    p50_ms, p99_ms = np.percentile(took_ms[1:], [50, 99]).tolist()
    return replace(system, p50_ms=p50_ms, p99_ms=p99_ms, state_bytes=state_bytes)


def slice_batch(table: pa.Table, number: int, batches: int) -> pa.Table:
    """One of so many parts of a stream."""
    start, end = (table.num_rows * place // batches for place in (number, number + 1))
    return table.slice(start, end - start)


def _count_rows(tables: Tables) -> int:
    return sum(table.num_rows for table in tables.values())

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
from watersmeet_lab.bench.answers import Answer
from watersmeet_lab.bench.measure import Measured, measure
from watersmeet_lab.bench.results import Comparison, System
from watersmeet_lab.bench.workloads import CommonKey, Workload, opening

REPEATS = 3
WARM_UP_ROWS = 2_000
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Finite:
    """Both systems on a workload's rows as finite tables, the rows themselves, and why a system is missing."""

    answer: Answer
    systems: tuple[System, ...]
    skipped: Mapping[str, str]


def beside_duckdb(workload: Workload) -> Comparison:
    """The two alone, for a look at nothing but the engine."""
    tables = workload.tables()
    found = finite(workload, tables)
    return Comparison(
        workload.name, _rows_in(tables), found.answer.rows, workload.seed, found.systems, found.skipped, workload.said
    )


def finite(workload: Workload, tables: Tables, repeats: int = REPEATS) -> Finite:
    """Ours and DuckDB's, on all cores and on one, in turns: the best of a few repeats of each. Refuses figures when
    their rows differ.
    """
    collect_ours(workload, opening(tables, WARM_UP_ROWS))
    answers: list[Answer] = []

    def checked(name: str, found: pa.Table) -> None:
        if not answers:
            answers.append(Answer.of(workload, found))
        answers[0].check_table(name, found)

    calls: dict[str, Callable[[], pa.Table]] = {"watersmeet-embedded": lambda: collect_ours(workload, tables)}
    try:
        calls |= {name: _duckdb(workload, tables, threads) for name, threads in _DUCKDB.items()}
        skipped = {}
    except WatersmeetError as error:
        skipped = {"duckdb": str(error)}
    best = {name: _timed(name, call, checked) for name, call in calls.items()}
    for _ in range(repeats - 1):
        for name, call in calls.items():
            best[name] = min(best[name], _timed(name, call, None), key=lambda each: each.seconds)
    systems = [System(name, _rows_in(tables) / each.seconds, peak_bytes=each.peak_bytes) for name, each in best.items()]
    return Finite(answers[0], (_with_latency(systems[0], workload, tables), *systems[1:]), skipped)


def collect_ours(workload: Workload, tables: Tables) -> pa.Table:
    return wm.collect(
        workload.join.ours(), {name: wm.stream(table, time="ts", unit="us") for name, table in tables.items()}
    )


def seconds_per_row(workload: CommonKey) -> float:
    """Our time per input row, the best of a few repeats."""
    tables, work = workload.tables(), workload.workload("growth", batches=3)
    return min(measure(lambda: collect_ours(work, tables)).seconds for _ in range(REPEATS)) / _rows_in(tables)


_DUCKDB = {"duckdb": os.cpu_count() or 1, "duckdb-1-thread": 1}


def _duckdb(workload: Workload, tables: Tables, threads: int) -> Callable[[], pa.Table]:
    try:
        import duckdb
    except ImportError:
        raise WatersmeetError("DuckDB is not installed") from None

    def call() -> pa.Table:
        with duckdb.connect(config={"threads": threads}) as connection:
            for name, table in tables.items():
                connection.register(name, table)
            return connection.sql(workload.join.duckdb()).to_arrow_table()

    return call


def _timed(name: str, call: Callable[[], pa.Table], look: Callable[[str, pa.Table], None] | None) -> Measured[None]:
    """Lets go of the rows once they were looked at: a second copy of them would count as memory of the next
    measurement.
    """
    measured = measure(call)
    if look is not None:
        look(name, measured.result)
    return Measured(None, measured.seconds, measured.peak_bytes)


def _with_latency(system: System, workload: Workload, tables: Tables) -> System:
    """The same rows batch by batch: how long a batch takes, and what is kept between batches."""
    run = wm.run(
        workload.join.ours(),
        {name: wm.stream(iter([table.slice(0, 0)]), time="ts", unit="us") for name, table in tables.items()},
    )
    took_ms, state_bytes = [], 0
    for number in range(workload.batches):
        batch = {name: batch_of(table, number, workload.batches) for name, table in tables.items()}
        start = time.perf_counter()
        run.advance(batch)
        took_ms.append((time.perf_counter() - start) * 1000)
        state_bytes = max(state_bytes, run.state.nbytes)
    p50_ms, p99_ms = np.percentile(took_ms[1:], [50, 99]).tolist()
    return replace(system, p50_ms=p50_ms, p99_ms=p99_ms, state_bytes=state_bytes)


def batch_of(table: pa.Table, number: int, batches: int) -> pa.Table:
    """One of so many parts of a stream."""
    start, end = (table.num_rows * place // batches for place in (number, number + 1))
    return table.slice(start, end - start)


def _rows_in(tables: Tables) -> int:
    return sum(table.num_rows for table in tables.values())

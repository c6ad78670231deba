"""Aggregations over joins on the embedded engine, against DuckDB's running and plain formulations in the same process.

The rows of the running formulation must equal ours. The plain formulation returns all groups at every evaluation, so it
is timed for a part of the evaluations, from the middle of the streams on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.aggregation_workloads import AggregationWorkload
from watersmeet_lab.bench.expected_rows import DifferentRowsError, have_same_rows
from watersmeet_lab.bench.resource_usage import CallMeasurement, measure_call
from watersmeet_lab.bench.results import PeerComparison, SystemResult

REPEATS = 3
#: Share of the evaluations for which the plain formulation is timed.
_PLAIN_SHARE = 40
_WARM_UP_SCALE = 0.01
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class AggregationComparison:
    """Result of one workload; `bytes_per_row` is our peak memory per input row."""

    comparison: PeerComparison
    running_ratio: float
    plain_ratio: float
    bytes_per_row: float

    def __str__(self) -> str:
        return (
            f"{self.comparison}\n  {self.running_ratio:.2f} times DuckDB's running sums, {self.plain_ratio:.1f} times "
            f"its plain formulation, {self.bytes_per_row:.0f} bytes of peak memory per row"
        )

    def to_dict(self) -> dict[str, object]:
        return {
            **self.comparison.to_dict(),
            "running_ratio": self.running_ratio,
            "plain_ratio": self.plain_ratio,
            "bytes_per_row": self.bytes_per_row,
        }


def compare_aggregation_with_duckdb(workload: AggregationWorkload, scale: float) -> AggregationComparison:
    """Run our engine and DuckDB's running formulation in turns, and keep the best time of each."""
    try:
        import duckdb
    except ImportError:
        raise WatersmeetError("DuckDB is not installed") from None
    tables = workload.tables(scale)
    rows, last_us = sum(table.num_rows for table in tables.values()), _last_instant_us(workload, tables)
    _collect(workload, workload.tables(scale * _WARM_UP_SCALE))
    with duckdb.connect(config={"threads": os.cpu_count() or 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        calls: dict[str, Callable[[], pa.Table]] = {
            "watersmeet-embedded": lambda: _collect(workload, tables),
            "duckdb-running": lambda: connection.sql(workload.to_running_sql(last_us)).to_arrow_table(),
        }
        best: dict[str, CallMeasurement[pa.Table]] = {}
        for _ in range(REPEATS):
            for name, call in calls.items():
                measured = measure_call(call)
                if name not in best or measured.seconds < best[name].seconds:
                    best[name] = measured
        evaluations = max(1, last_us // workload.every_us)
        timed = max(1, evaluations // _PLAIN_SHARE)
        from_us = evaluations // 2 * workload.every_us
        to_us = from_us + (timed - 1) * workload.every_us
        plain = measure_call(lambda: connection.sql(workload.to_plain_sql(from_us, to_us)).to_arrow_table())
    _check_rows(workload, best["watersmeet-embedded"].result, best["duckdb-running"].result)
    plain_s = plain.seconds * evaluations / timed
    systems = [SystemResult(name, rows / each.seconds, peak_bytes=each.peak_bytes) for name, each in best.items()]
    systems.append(SystemResult("duckdb-plain", rows / plain_s, peak_bytes=plain.peak_bytes))
    ours = best["watersmeet-embedded"]
    return AggregationComparison(
        PeerComparison(workload.name, rows, ours.result.num_rows, workload.seed, tuple(systems)),
        running_ratio=best["duckdb-running"].seconds / ours.seconds,
        plain_ratio=plain_s / ours.seconds,
        bytes_per_row=ours.peak_bytes / rows,
    )


def _collect(workload: AggregationWorkload, tables: Tables) -> pa.Table:
    sources = {
        name: wm.relation(table) if name in workload.relations else wm.stream(table, time="ts", unit="us")
        for name, table in tables.items()
    }
    return wm.collect(workload.query, sources)


def _last_instant_us(workload: AggregationWorkload, tables: Tables) -> int:
    """Return the last instant that our engine evaluates: the largest time, or the end of its tile."""
    largest_us = max(
        int(pc.max(table["ts"]).as_py()) for name, table in tables.items() if name not in workload.relations
    )
    return largest_us if "TUMBLE" not in workload.query else (largest_us // workload.every_us + 1) * workload.every_us


def _check_rows(workload: AggregationWorkload, ours: pa.Table, theirs: pa.Table) -> None:
    plain = [_to_integers(ours, ours.column_names), _to_integers(theirs, ours.column_names)]
    if not have_same_rows(*plain):
        raise DifferentRowsError(f"{workload.name}: DuckDB's rows differ from ours")


def _to_integers(rows: pa.Table, names: list[str]) -> pa.Table:
    """Return the columns as integers, with zero for NULL: an empty group has no sum, and a running sum of zero."""
    return pa.table({name: rows[name].cast(pa.int64()).combine_chunks().fill_null(0) for name in names})

"""The embedded engine beside DuckDB on finite input: same rows, same process, same run, DuckDB on one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import watersmeet as wm
from watersmeet.bench.measure import Measured, measure, same_rows
from watersmeet.bench.workloads import CommonKey
from watersmeet.errors import WatersmeetError

REPEATS = 3


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One workload on both systems; the best of a few repeats of each, taken in turns."""

    workload: str
    rows_in: int
    rows_out: int
    ours_s: float
    duckdb_s: float
    input_bytes: int
    result_bytes: int
    peak_bytes: int

    @property
    def ratio(self) -> float:
        """How many times as fast as DuckDB."""
        return self.duckdb_s / self.ours_s

    @property
    def extra_bytes(self) -> int:
        """Peak memory beyond input and result."""
        return max(0, self.peak_bytes - self.result_bytes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "systems": [
                {"name": "watersmeet-embedded", "rows_per_s": self.rows_in / self.ours_s, "peak_bytes": self.extra_bytes},
                {"name": "duckdb", "rows_per_s": self.rows_in / self.duckdb_s},
            ],
            "input_bytes": self.input_bytes,
            "ratio": {"duckdb": self.ratio},
        }


def beside_duckdb(name: str, workload: CommonKey) -> SideBySide:
    """Runs the workload on both and refuses to give figures when their rows differ."""
    tables = workload.tables()
    warm = {alias: table.slice(0, 1000) for alias, table in tables.items()}
    _ours(workload, warm)
    ours = [measure(lambda: _ours(workload, tables))]
    theirs = [measure(lambda: _duckdb(workload, tables))]
    if not same_rows(ours[0].result, theirs[0].result):
        raise WatersmeetError(f"{name}: the two systems give different rows, so there is nothing to compare")
    first = ours[0]
    rows_out, result_bytes, peak = first.result.num_rows, first.result.nbytes, first.peak_bytes
    ours, theirs = [_seconds_only(each) for each in ours], [_seconds_only(each) for each in theirs]
    del first
    for _ in range(REPEATS - 1):
        ours.append(_seconds_only(measure(lambda: _ours(workload, tables))))
        theirs.append(_seconds_only(measure(lambda: _duckdb(workload, tables))))
    return SideBySide(
        workload=name,
        rows_in=workload.rows * workload.streams,
        rows_out=rows_out,
        ours_s=min(each.seconds for each in ours),
        duckdb_s=min(each.seconds for each in theirs),
        input_bytes=sum(table.nbytes for table in tables.values()),
        result_bytes=result_bytes,
        peak_bytes=peak,
    )


def seconds_per_row(workload: CommonKey) -> float:
    """Our time per input row, the best of a few repeats."""
    tables = workload.tables()
    return min(measure(lambda: _ours(workload, tables)).seconds for _ in range(REPEATS)) / (workload.rows * workload.streams)


def _ours(workload: CommonKey, tables: dict[str, pa.Table]) -> pa.Table:
    return wm.collect(workload.query(), {alias: wm.stream(table, time="ts") for alias, table in tables.items()})


def _duckdb(workload: CommonKey, tables: dict[str, pa.Table]) -> pa.Table:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        for alias, table in tables.items():
            connection.register(alias, table)
        return connection.sql(workload.duckdb_query()).to_arrow_table()


def _seconds_only(measured: Measured[pa.Table]) -> Measured[Any]:
    """Lets go of the rows: a second copy of them would count as memory of the next measurement."""
    return Measured(None, measured.seconds, measured.peak_bytes)

"""Two streams on a common key in Flink's SQL: an interval join, exact to the microsecond."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from watersmeet.bench.peers import flink
from watersmeet.bench.workloads import CommonKey


def flink_common_key(workload: CommonKey) -> flink.FlinkRan:
    """The workload's rows as Flink joins them, times as timestamps again.

    Flink's event times are milliseconds. Its interval is a little too wide by that, so the difference is asked for exactly as well.
    """
    flink.environment()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as made:
        folder = Path(made)
        tables = {alias: flink.written(alias, table, folder, "ts") for alias, table in workload.tables().items()}
        ran = flink.run(tables, _select(workload), _result(workload), folder)
    return flink.FlinkRan(ran.seconds, _timed(ran.rows), ran.peak_bytes)


def _select(workload: CommonKey) -> str:
    band = f"INTERVAL '{workload.window_s}' SECOND"
    near = f"a.et BETWEEN b.et - {band} AND b.et + {band} AND ABS(a.ts - b.ts) <= {workload.window_us}"
    return f"SELECT {', '.join(workload.outputs)} FROM a, b WHERE a.k = b.k AND {near}"


def _result(workload: CommonKey) -> pa.Schema:
    return pa.schema([("k", pa.int64()), *((f"{alias}_{name}", pa.int64()) for alias in workload.aliases for name in ("ts", "id"))])


def _timed(rows: pa.Table) -> pa.Table:
    for number, name in enumerate(rows.column_names):
        if name.endswith("_ts"):
            rows = rows.set_column(number, name, rows[name].cast(pa.timestamp("us", "UTC")))
    return rows

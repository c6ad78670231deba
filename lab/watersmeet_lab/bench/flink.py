"""Flink's SQL as a peer, and window joins in Flink's SQL.

Flink needs its own versions of Arrow and pandas, so it runs in its own virtual environment, which is created on first
use. Its PyPI package reads CSV and JSON only, so the rows are passed as CSV files. The time to read the files is
measured separately, so that a reader can subtract it. Times are integer microseconds for Flink.

A window join is a chain of interval joins, or of joins of tumbling windows, followed by the aggregates. Flink's event
times (`et`) have milliseconds, and each join may bound one pair by them. So each join bounds its first pair in event
time, which lets Flink evict rows, and all pairs exactly in microseconds (`ts`).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.csv

from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.portable_joins import JoinAggregate, JoinStep, PairBound, PortableJoin, TumblingTile

FLINK_VERSION = "2.3.0"
#: Settings that Flink's users choose for speed: no copies of rows between operators, and mini-batches for aggregations.
FLINK_SETTINGS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "5000",
}
#: One file per reader, each with rows from the whole stream. Readers take files in any order, so a file of older rows
#: would be late.
FILES_PER_STREAM = 2
_SCRIPT = Path(__file__).with_name("flink_job.py")
_SQL_TYPES = {
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
}
_TILE_COLUMNS = ("window_start", "window_end")


class FlinkUnavailableError(WatersmeetError):
    """Flink cannot be installed here; the benchmark continues without it."""


@dataclass(frozen=True, slots=True)
class FlinkTable:
    """A stream for Flink: a folder of CSV files.

    `time` is a column of microseconds; Flink sees it as `et`, in milliseconds.
    """

    name: str
    path: str
    columns: tuple[tuple[str, str], ...]
    time: str


class _FlinkReport(TypedDict):
    seconds: float
    scan_seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class FlinkRunResult:
    """Result of a query on a warm Flink: its seconds, its rows, and the peak memory of the Java process.

    `scan_seconds` is the time to read the input alone.
    """

    seconds: float
    scan_seconds: float
    rows: pa.Table
    peak_bytes: int


def ensure_flink_python() -> Path:
    """Return the Python of an environment with Flink; create the environment if needed."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "watersmeet" / f"flink-{FLINK_VERSION}"
    python = home / "bin" / "python"
    if not (home / ".ready").exists():
        try:
            venv.create(home, with_pip=True, clear=True)
            subprocess.run(
                [python, "-m", "pip", "install", "-q", f"apache-flink=={FLINK_VERSION}"],
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.CalledProcessError) as failed:
            raise FlinkUnavailableError(
                f"Flink {FLINK_VERSION} cannot be installed here: {_failure_reason(failed)}"
            ) from None
        (home / ".ready").touch()
    return python


def run_flink_query(streams: Mapping[str, pa.Table], select: str, result: pa.Schema) -> FlinkRunResult:
    """Run a SELECT over the streams from the first row to the last; event times are in the column `ts`."""
    ensure_flink_python()
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as made:
        folder = Path(made)
        out = folder / "out"
        job = {
            "settings": FLINK_SETTINGS,
            "tables": [asdict(_write_csv_files(name, table, folder, "ts")) for name, table in streams.items()],
            "path": str(out),
            "columns": _sql_columns(result),
            "select": select,
        }
        report = _run_job(job, folder)
        return FlinkRunResult(report["seconds"], report["scan_seconds"], _read_rows(out, result), report["peak_bytes"])


def _write_csv_files(name: str, table: pa.Table, folder: Path, time: str) -> FlinkTable:
    """Distribute the rows of a stream over CSV files, in their order."""
    into = folder / name
    into.mkdir(parents=True)
    options = pyarrow.csv.WriteOptions(include_header=False)
    for number in range(FILES_PER_STREAM):
        part = table.take(np.arange(number, table.num_rows, FILES_PER_STREAM))
        pyarrow.csv.write_csv(part, into / f"part-{number:03d}.csv", options)
    return FlinkTable(name, str(into), _sql_columns(table.schema), time)


def _run_job(job: Mapping[str, object], folder: Path) -> _FlinkReport:
    description = folder / "flink-job.json"
    description.write_text(json.dumps(job))
    completed = subprocess.run(
        [ensure_flink_python(), _SCRIPT, description],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if completed.returncode:
        raise WatersmeetError(f"Flink failed: {_innermost_cause(completed.stderr)}")
    report: _FlinkReport = json.loads(completed.stdout.strip().splitlines()[-1])
    return report


def _innermost_cause(output: str) -> str:
    """Return the innermost cause of a Java stack trace, else the last line that is not a stack frame."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or ["no reason given"])[-1]


def _read_rows(out: Path, schema: pa.Schema) -> pa.Table:
    """Read the rows from all part files; a sink without rows leaves no file."""
    options = pyarrow.csv.ReadOptions(column_names=schema.names)
    types = pyarrow.csv.ConvertOptions(column_types=schema)
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.stat().st_size] if out.exists() else []
    parts = [pyarrow.csv.read_csv(path, options, convert_options=types) for path in files]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _sql_columns(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, _sql_type(field.type)) for field in schema)


def _sql_type(kind: pa.DataType) -> str:
    if kind not in _SQL_TYPES:
        raise WatersmeetError(f"the Flink benchmark has no column type for {kind}")
    return _SQL_TYPES[kind]


def _failure_reason(failed: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(failed, subprocess.CalledProcessError):
        lines = failed.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"pip exited with {failed.returncode}"
    return str(failed)


def flink_select(join: PortableJoin) -> str:
    """Return the SELECT that computes the join, with times in microseconds."""
    first, *others = join.steps()
    joins = "".join(
        f" JOIN {_source_sql(join, step)} AS {step.alias} ON {' AND '.join(_join_conditions(join, step))}"
        for step in others
    )
    text = f"FROM {_source_sql(join, first)} AS {first.alias}{joins}"
    text += f" WHERE {' AND '.join(first.where)}" if first.where else ""
    shown = [f"{expression} AS `{name}`" for expression, name in join.outputs]
    if not isinstance(join.windows, TumblingTile) or not join.aggregates:
        return f"SELECT {', '.join(shown)} {text}"
    end = (
        f"MAX({first.alias}.ts) / {join.windows.length_us} * {join.windows.length_us} + {join.windows.length_us} AS "
        "as_of"
    )
    groups = [*(f"{first.alias}.{name}" for name in _TILE_COLUMNS), *(expression for expression, _ in join.outputs)]
    return (
        f"SELECT {', '.join([end, *shown, *map(_aggregate_sql, join.aggregates)])} {text} GROUP BY {', '.join(groups)}"
    )


def _source_sql(join: PortableJoin, step: JoinStep) -> str:
    if isinstance(join.windows, TumblingTile):
        return f"TABLE(TUMBLE(TABLE `{step.stream}`, DESCRIPTOR(et), {_interval_sql(join.windows.length_us)}))"
    if join.band is None:
        return f"`{step.stream}`"
    return f"({_cells_sql(join, step)})"


def _cells_sql(join: PortableJoin, step: JoinStep) -> str:
    """Return the source with a column `cell`: cells as wide as the band.

    Flink joins on equality only. A value can match values in its own cell and in the two adjacent ones.
    """
    assert join.band is not None
    column = next(
        text.partition(".")[2] for text in (join.band.one, join.band.other) if text.startswith(f"{step.alias}.")
    )
    cell = f"`{column}` / {join.band.width}"
    if step.alias == join.aliases[0]:
        return f"SELECT *, {cell} AS cell FROM `{step.stream}`"
    return (
        f"SELECT s.*, cell FROM `{step.stream}` AS s CROSS JOIN UNNEST(ARRAY[{cell} - 1, {cell}, {cell} + 1]) AS "
        "cells (cell)"
    )


def _join_conditions(join: PortableJoin, step: JoinStep) -> list[str]:
    first = join.aliases[0]
    equal = [f"{one} = {other}" for one, other in step.equal]
    if isinstance(join.windows, TumblingTile):
        equal += [f"{first}.{name} = {step.alias}.{name}" for name in _TILE_COLUMNS]
    if join.band is not None:
        equal += [f"{first}.cell = {step.alias}.cell", f"ABS({join.band.one} - {join.band.other}) < {join.band.width}"]
    return (
        equal
        + [_event_time_bound(each) for each in step.bounds[:1]]
        + [_microsecond_bound(each) for each in step.bounds]
        + list(step.where)
    )


def _event_time_bound(bound: PairBound) -> str:
    return (
        f"{bound.other}.et BETWEEN {bound.one}.et + {_interval_sql(bound.low_us)} AND {bound.one}.et + "
        f"{_interval_sql(bound.high_us)}"
    )


def _microsecond_bound(bound: PairBound) -> str:
    return f"{bound.other}.ts BETWEEN {bound.one}.ts + {bound.low_us} AND {bound.one}.ts + {bound.high_us}"


def _interval_sql(length_us: int) -> str:
    """Return an interval in milliseconds; rows are less than one millisecond further apart than event times."""
    minutes, rest_ms = divmod(abs(length_us) // 1000, 60_000)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if length_us < 0 else ""
    return (
        f"INTERVAL '{sign}{hours // 24} {hours % 24:02d}:{minutes:02d}:{rest_ms // 1000:02d}.{rest_ms % 1000:03d}' "
        "DAY TO SECOND(3)"
    )


def _aggregate_sql(each: JoinAggregate) -> str:
    """Return an aggregate; AVG casts to DOUBLE, because an AVG of integers is an integer."""
    column = f"CAST({each.column} AS DOUBLE)" if each.function == "AVG" else each.column
    return f"{each.function}({column}) AS `{each.name}`"

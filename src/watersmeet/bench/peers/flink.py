"""Flink's SQL as a peer. It needs its own versions of Arrow and pandas, so it lives in a virtual environment of its own, made on first use.

Its PyPI package reads CSV and JSON only. The rows therefore go in as CSV files; the time Flink needs just to read them is measured beside,
so that a reader can take it off.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
import pyarrow.csv

from watersmeet.errors import WatersmeetError

FLINK_VERSION = "2.3.0"
PARALLELISM = 2
#: Several files per stream, so that both of Flink's readers have work.
FILES = 8
_SCRIPT = Path(__file__).with_name("flink_job.py")
_SQL_TYPES = {pa.int64(): "BIGINT", pa.int32(): "INT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.bool_(): "BOOLEAN"}


class FlinkMissingError(WatersmeetError):
    """Flink cannot be had here; the benchmark goes on without it."""


@dataclass(frozen=True, slots=True)
class FlinkTable:
    """A stream for Flink: a folder of CSV files. `time` is a column of microseconds; Flink sees it as `et`, in milliseconds."""

    name: str
    path: str
    columns: tuple[tuple[str, str], ...]
    time: str


class _Told(TypedDict):
    seconds: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class FlinkRan:
    """What a job took once Flink was up, its rows, and the most memory its Java process held."""

    seconds: float
    rows: pa.Table
    peak_bytes: int


def environment() -> Path:
    """The Python of an environment with Flink in it; made when it is not there yet."""
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
            raise FlinkMissingError(f"Flink {FLINK_VERSION} cannot be installed here: {_reason(failed)}") from None
        (home / ".ready").touch()
    return python


def written(name: str, table: pa.Table, folder: Path, time: str) -> FlinkTable:
    """The stream's rows as CSV files in the order they have, ready to be read."""
    into = folder / name
    into.mkdir(parents=True)
    per_file = -(-table.num_rows // FILES)
    options = pyarrow.csv.WriteOptions(include_header=False)
    for number in range(FILES):
        pyarrow.csv.write_csv(table.slice(number * per_file, per_file), into / f"part-{number:03d}.csv", options)
    columns = tuple((field.name, _sql_type(field.type)) for field in table.schema)
    return FlinkTable(name, str(into), columns, time)


def run(tables: Mapping[str, FlinkTable], select: str, result: pa.Schema, folder: Path) -> FlinkRan:
    """Runs `INSERT INTO a file sink SELECT …` to its end over the bounded tables."""
    out = folder / "flink-out"
    job = {
        "tables": [asdict(table) for table in tables.values()],
        "sink": {"path": str(out), "columns": [(field.name, _sql_type(field.type)) for field in result]},
        "select": select,
        "parallelism": PARALLELISM,
    }
    about = _told(job, folder)
    return FlinkRan(about["seconds"], _rows(out, result), about["peak_bytes"])


def scan_seconds(tables: Mapping[str, FlinkTable], folder: Path) -> float:
    """How long Flink takes to read the tables and throw the rows away."""
    select = " UNION ALL ".join(f"SELECT `{table.columns[0][0]}` FROM `{table.name}`" for table in tables.values())
    job = {"tables": [asdict(table) for table in tables.values()], "sink": None, "select": select, "parallelism": PARALLELISM}
    return _told(job, folder)["seconds"]


def _told(job: Mapping[str, object], folder: Path) -> _Told:
    description = folder / "flink-job.json"
    description.write_text(json.dumps(job))
    told = subprocess.run([environment(), _SCRIPT, description], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if told.returncode:
        raise WatersmeetError(f"Flink failed: {told.stderr.strip().splitlines()[-1] if told.stderr.strip() else 'no reason given'}")
    about: _Told = json.loads(told.stdout.strip().splitlines()[-1])
    return about


def _rows(out: Path, schema: pa.Schema) -> pa.Table:
    """Flink names its part files as it likes; a sink that got no row leaves none."""
    options = pyarrow.csv.ReadOptions(column_names=schema.names)
    types = pyarrow.csv.ConvertOptions(column_types=schema)
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.stat().st_size] if out.exists() else []
    parts = [pyarrow.csv.read_csv(path, options, convert_options=types) for path in files]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _sql_type(kind: pa.DataType) -> str:
    if kind not in _SQL_TYPES:
        raise WatersmeetError(f"the Flink benchmark has no column type for {kind}")
    return _SQL_TYPES[kind]


def _reason(failed: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(failed, subprocess.CalledProcessError):
        lines = failed.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"pip ended with {failed.returncode}"
    return str(failed)

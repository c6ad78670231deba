"""Results as files. A file appears whole or not at all."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from watersmeet.errors import InputError
from watersmeet.files import flush_directory

_ROWS_AT_ONCE = 10_000


def check_target(path: Path) -> None:
    """Refuses a target before the query has run for nothing."""
    if path.suffix.lower() not in _WRITERS:
        raise InputError(f'"{path}" is of no known format', hint=f"known formats: {', '.join(_WRITERS)}")
    if not path.parent.is_dir():
        raise InputError(f'there is no directory "{path.parent}" to write to')


def write(table: pa.Table, path: Path) -> None:
    """Write beside the target, flush to the disk, and move the file into place: a state that is committed later never
    lacks its rows.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _WRITERS[path.suffix.lower()](table, unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
        flush_directory(path.parent)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'"{path}" cannot be written: {str(error)[:300]}') from error
    finally:
        unfinished.unlink(missing_ok=True)


def json_line(row: dict[str, Any]) -> str:
    """A row as JSON: times in ISO 8601, bytes in hexadecimal; JSON has no NaN or infinity, so those become null.

    >>> json_line({"at": dt.date(2013, 1, 1), "x": math.inf})
    '{"at": "2013-01-01", "x": null}'
    """
    return json.dumps({name: _plain(value) for name, value in row.items()}, default=_words, ensure_ascii=False)


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as opened:
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            opened.writelines(json_line(row) + "\n" for row in batch.to_pylist())


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _words(value: Any) -> str:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": pq.write_table,
    ".csv": pacsv.write_csv,
    ".jsonl": _write_lines,
}

#: Suffixes of the formats that can be written.
FORMATS = tuple(_WRITERS)

"""Results as files: the formats, and one file or a directory with one part file per batch.

Both hosts and the command line read the table of formats. Arrow is imported by the functions that write, because the
help of the command line reads the table without it.

A file appears with all its content or not at all. A batch that runs again replaces its earlier part file.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.errors import InputError
from watersmeet.files import flush_directory, make_directory

if TYPE_CHECKING:
    import pyarrow as pa

_JSON_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """A format of result files: how this process writes a file, and how a streaming query of Spark does.

    `spark_name` is Spark's name of the format, None if Spark does not write it. The caller's options override
    `spark_options`.
    """

    write: Callable[[pa.Table, Path], None]
    spark_name: str | None
    spark_options: Mapping[str, str] = field(default_factory=dict)


def format_json_line(row: dict[str, Any]) -> str:
    """Format a row as JSON: times in ISO 8601, bytes in hexadecimal, NaN and infinity as null, because JSON lacks them.

    >>> format_json_line({"at": dt.date(2013, 1, 1), "x": math.inf})
    '{"at": "2013-01-01", "x": null}'
    """
    return json.dumps(
        {name: _replace_non_finite(value) for name, value in row.items()},
        default=_format_json_value,
        ensure_ascii=False,
    )


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _write_csv(table: pa.Table, path: Path) -> None:
    import pyarrow.csv as pacsv

    pacsv.write_csv(table, path)


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as opened:
        for batch in table.to_batches(max_chunksize=_JSON_BATCH_ROWS):
            opened.writelines(format_json_line(row) + "\n" for row in batch.to_pylist())


def _replace_non_finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _format_json_value(value: Any) -> str:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


#: Formats by the suffix of their files.
SINK_FORMATS: dict[str, SinkFormat] = {
    ".parquet": SinkFormat(_write_parquet, "parquet"),
    ".csv": SinkFormat(_write_csv, "csv", {"header": "true"}),
    ".jsonl": SinkFormat(_write_lines, "json"),
}


_PART = re.compile(r"part-(\d{10,})(\.\w+)", re.ASCII)


def check_output_path(path: Path) -> None:
    """Refuse an unusable output path before the query runs."""
    if path.suffix.lower() not in SINK_FORMATS:
        raise InputError(f'"{path}" has an unknown format', hint=f"known formats: {', '.join(SINK_FORMATS)}")
    if not path.parent.is_dir():
        raise InputError(f'there is no directory "{path.parent}" to write to')


def write_table(table: pa.Table, path: Path) -> None:
    """Write to a temporary file, flush it to disk and move it into place.

    So a state that is committed later never lacks its rows.
    """
    import pyarrow as pa

    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        SINK_FORMATS[path.suffix.lower()].write(table, unfinished)
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
        flush_directory(path.parent)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f'"{path}" cannot be written: {str(error)[:300]}') from error
    finally:
        unfinished.unlink(missing_ok=True)


def list_part_files(directory: Path) -> dict[int, list[Path]]:
    """Return the part files of a directory by batch."""
    found: dict[int, list[Path]] = {}
    try:
        for file in sorted(directory.iterdir()) if directory.is_dir() else ():
            named = _PART.fullmatch(file.name)
            if named is not None and named[2] in SINK_FORMATS:
                found.setdefault(int(named[1]), []).append(file)
    except OSError as error:
        raise InputError(f'output directory "{directory}" cannot be read: {error.strerror or error}') from error
    return found


@dataclass(frozen=True)
class PartFileSink:
    """Directory in which `part-0000000012.parquet` holds the rows of batch 12; a batch without rows has no file."""

    directory: Path
    suffix: str = ".parquet"

    def __post_init__(self) -> None:
        if self.suffix not in SINK_FORMATS:
            raise InputError(f'"{self.suffix}" is an unknown format', hint=f"known formats: {', '.join(SINK_FORMATS)}")
        if self.directory.exists() and not self.directory.is_dir():
            raise InputError(
                f'"{self.directory}" is a file, but an incremental query writes a directory with one file per batch',
                hint="name a directory, and choose the format with --format",
            )

    def write_batch(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a batch. They replace all rows of an earlier run of the batch, in any format."""
        target = self._part(batch, self.suffix)
        try:
            make_directory(self.directory)
            if rows.num_rows:
                write_table(rows, target)
            for suffix in SINK_FORMATS:
                if suffix != self.suffix or not rows.num_rows:
                    self._part(batch, suffix).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f'"{self.directory}" cannot be written: {error.strerror or error}') from error

    def _part(self, batch: int, suffix: str) -> Path:
        return self.directory / f"part-{batch:010d}{suffix}"

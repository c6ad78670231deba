"""Results as files: one file, or a directory with one part file per batch.

A file appears with all its content or not at all. A batch that runs again replaces its earlier part file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.files import flush_directory, make_directory
from watersmeet.sinks.formats import SINK_FORMATS

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

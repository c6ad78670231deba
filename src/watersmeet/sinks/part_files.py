"""Output directory with one file per batch, so that a batch that runs again replaces what it wrote the first time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.files import make_directory
from watersmeet.sinks.tables import FORMATS, write

_PART = re.compile(r"part-(\d{10,})\.(?:" + "|".join(each[1:] for each in FORMATS) + ")", re.ASCII)


def part_files(directory: Path) -> dict[int, list[Path]]:
    """Return the part files of a directory by batch."""
    found: dict[int, list[Path]] = {}
    try:
        for file in sorted(directory.iterdir()) if directory.is_dir() else ():
            named = _PART.fullmatch(file.name)
            if named is not None:
                found.setdefault(int(named[1]), []).append(file)
    except OSError as error:
        raise InputError(f'output directory "{directory}" cannot be read: {error.strerror or error}') from error
    return found


@dataclass(frozen=True)
class PartFiles:
    """`part-0000000012.parquet` holds the rows of batch 12; a batch without rows has no file."""

    directory: Path
    suffix: str = ".parquet"

    def __post_init__(self) -> None:
        if self.suffix not in FORMATS:
            raise InputError(f'"{self.suffix}" is no known format', hint=f"known formats: {', '.join(FORMATS)}")
        if self.directory.exists() and not self.directory.is_dir():
            raise InputError(
                f'"{self.directory}" is a file, and a query that goes on writes a directory with a file per batch',
                hint="name a directory, and choose the format with --format",
            )

    def put(self, batch: int, rows: pa.Table) -> None:
        """Write the rows of a batch. They replace all that an earlier run of the batch wrote, in whatever format."""
        target = self._part(batch, self.suffix)
        try:
            make_directory(self.directory)
            if rows.num_rows:
                write(rows, target)
            for suffix in FORMATS:
                if suffix != self.suffix or not rows.num_rows:
                    self._part(batch, suffix).unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f'"{self.directory}" cannot be written: {error.strerror or error}') from error

    def _part(self, batch: int, suffix: str) -> Path:
        return self.directory / f"part-{batch:010d}{suffix}"

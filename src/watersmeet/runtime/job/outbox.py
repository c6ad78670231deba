"""Where rows go: a directory with one file per batch, so that a batch that is run again replaces what it wrote the first time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.runtime.job.write import FORMATS, write


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
        target = self.directory / f"part-{batch:010d}{self.suffix}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if rows.num_rows == 0:
                target.unlink(missing_ok=True)
                return
        except OSError as error:
            raise InputError(f'"{self.directory}" cannot be written: {error.strerror or error}') from error
        write(rows, target)

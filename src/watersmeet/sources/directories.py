"""Growing directories as sources: each file is read once, when it appears, in the order of modification times.

A file counts as complete when it exists under its name. Write it elsewhere, or under a name that begins with a dot, and
move it in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import InputError, InternalError
from watersmeet.sources.files import data_files, is_directory, list_data_files, read_files
from watersmeet.sources.schemas import describe_schema_difference
from watersmeet.sources.times import ArrivalClock, add_arrival_field, stamp_rows

#: Maximum number of files of one stream in one batch, so that a large backlog is processed in several batches.
MAX_FILES_PER_BATCH = 64


@dataclass
class FileSource:
    """Directory (or one file) as a feed: the first file determines the schema, and every later file has to match it.

    With a `clock`, rows are stamped with the time at which their batch was chosen, which is part of the batch's record.
    """

    path: Path
    time: str | None
    known_schema: pa.Schema | None = None
    seen: set[str] = field(default_factory=set)
    clock: ArrivalClock | None = None
    bytes_per_batch: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """Schema of the first file, with the time of arrival if rows are stamped."""
        if self.known_schema is None:
            first = self.list_new_files()[:1]
            if not first:
                raise InputError(f'directory "{self.path}" has no data files yet')
            in_file = self._read_file(first[0]).schema
            self.known_schema = in_file if self.clock is None else add_arrival_field(in_file)
        return self.known_schema

    @property
    def is_ready(self) -> bool:
        """Whether the schema is known or can be read."""
        return self.known_schema is not None or bool(self.list_new_files())

    def peek(self) -> pa.Table | None:
        """Return the rows of the next file without marking it as read; None if there is no file."""
        first = self.list_new_files()[:1]
        return self._read_and_stamp(self.describe_files(first)[0]) if first else None

    def batches(self) -> Iterator[pa.Table]:
        """Refuse: a growing directory is read by file name."""
        raise InternalError("a growing directory is read by file name")

    def list_new_files(self) -> list[str]:
        """List the names of unread files, oldest first, at most as many as one batch reads.

        A batch takes at least one file, even if it has more than `bytes_per_batch`.
        """
        if not is_directory(self.path):
            return [] if self.path.name in self.seen else [file.name for file in data_files(self.path)]
        fresh = [file for file in list_data_files(self.path) if file.name not in self.seen]
        ordered = sorted(fresh, key=_modification_key)[:MAX_FILES_PER_BATCH]
        return [file.name for file in self._take_files(ordered)]

    def measure_row_bytes(self) -> float | None:
        """Return the bytes of a row in the first file, read or not; None if there is no file with rows."""
        files = list_data_files(self.path)[:1] if is_directory(self.path) else data_files(self.path)
        rows = read_files(files, self.time).num_rows if files else 0
        return files[0].stat().st_size / rows if rows else None

    def _take_files(self, files: list[Path]) -> Iterator[Path]:
        """Yield the first file, and the next ones as long as all of them fit the bytes of a batch."""
        taken_bytes = 0
        for number, file in enumerate(files):
            if self.bytes_per_batch is not None:
                taken_bytes += describe_input_file(self.path, file.name).size_bytes
                if number and taken_bytes > self.bytes_per_batch:
                    return
            yield file

    def read_new_files(self, files: Sequence[InputFile]) -> pa.Table:
        """Return the rows of these files and mark the files as read."""
        tables = [self._read_and_stamp(file) for file in files]
        self.seen.update(file.name for file in files)
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def describe_files(self, names: list[str]) -> tuple[InputFile, ...]:
        """Return size, modification time and arrival of files, as a batch record stores them."""
        arrived_us = None if self.clock is None else self.clock.read_us()
        return tuple(replace(describe_input_file(self.path, name), arrived_us=arrived_us) for name in names)

    def _read_and_stamp(self, file: InputFile) -> pa.Table:
        table = self._cast_to_schema(file.name, self._read_file(file.name))
        return table if file.arrived_us is None else stamp_rows(table, file.arrived_us)

    def _read_file(self, name: str) -> pa.Table:
        return read_files(data_files(input_path(self.path, name)), self.time)

    def _cast_to_schema(self, name: str, table: pa.Table) -> pa.Table:
        """Cast a table to the schema of the first file.

        A column of integers may replace a column of floats, or one without values.
        """
        expected = self.schema if self.clock is None else self.schema.remove(len(self.schema) - 1)
        difference = describe_schema_difference(expected, table.schema)
        if difference is None:
            return table.cast(expected)
        try:
            return table.select(expected.names).cast(expected)
        except (KeyError, pa.ArrowException) as error:
            raise InputError(
                f'"{self.path / name}" does not match the files before it: {difference}',
                hint="correct the file, or replace it by one without rows; then run the same command again: "
                "it resumes where it stopped",
            ) from error


def _modification_key(file: Path) -> tuple[int, str]:
    try:
        return file.stat().st_mtime_ns, file.name
    except OSError:  # deleted since it was listed; reading it reports that
        return 0, file.name


@dataclass(frozen=True, slots=True)
class InputFile:
    """File that a batch reads, as it was when the batch was chosen; `arrived_us` stamps rows without a time."""

    name: str
    size_bytes: int
    modified_ns: int
    arrived_us: int | None = None


def input_path(stream: Path, name: str) -> Path:
    """Return the path of a file of a stream, which is a directory or that one file."""
    return stream if stream.name == name and not stream.is_dir() else stream / name


def describe_input_file(stream: Path, name: str) -> InputFile:
    """Return a file's size and modification time."""
    place = input_path(stream, name)
    try:
        found = place.stat()
    except OSError as error:
        raise InputError(f'"{place}" cannot be read: {error.strerror or error}') from error
    return InputFile(name, found.st_size, found.st_mtime_ns)


#: Modification time of the first file; the others follow second by second.
_FIRST_S = 1_700_000_000


def write_numbered_files(directory: Path, batches: Iterable[pa.Table]) -> None:
    """Write batches as numbered parquet files, for a stream that follows the directory one file at a time.

    Modification times increase with the file numbers. Spark reads files in that order, and files written at once would
    all have the same time.
    """
    directory.mkdir(parents=True)
    for number, table in enumerate(batches):
        path = directory / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (_FIRST_S + number,) * 2)

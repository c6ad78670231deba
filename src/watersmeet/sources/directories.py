"""Files of a directory that grows: each is read once, when it appears, in the order of their times of change.

A file is taken to be complete when it is there under its name: write it elsewhere, or under a name that begins with a
dot, and move it in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import InputError, InternalError
from watersmeet.sources.files import data_files, is_directory, list_data_files, read_files
from watersmeet.sources.schemas import describe_schema_difference

#: Most files of one stream in one batch, so that a large backlog is processed in several batches.
MAX_FILES_PER_BATCH = 64


@dataclass
class FileSource:
    """A directory (or one file) as a feed: its schema is that of the first file, and every later file has to fit it."""

    path: Path
    time: str | None
    known_schema: pa.Schema | None = None
    seen: set[str] = field(default_factory=set)

    @property
    def schema(self) -> pa.Schema:
        if self.known_schema is None:
            first = self.list_new_files()[:1]
            if not first:
                raise InputError(f'directory "{self.path}" has no data files yet')
            self.known_schema = self._read_file(first[0]).schema
        return self.known_schema

    @property
    def is_ready(self) -> bool:
        """Whether the schema is known or can be."""
        return self.known_schema is not None or bool(self.list_new_files())

    def peek(self) -> pa.Table | None:
        """The rows of the next file, which are still to be taken; None when there is no file."""
        first = self.list_new_files()[:1]
        return self._cast_to_schema(first[0], self._read_file(first[0])) if first else None

    def batches(self) -> Iterator[pa.Table]:
        raise InternalError("a growing directory is read by file name")

    def list_new_files(self) -> list[str]:
        """Names of files nobody has taken yet, oldest first, no more than one batch takes."""
        if not is_directory(self.path):
            return [] if self.path.name in self.seen else [file.name for file in data_files(self.path)]
        fresh = [file for file in list_data_files(self.path) if file.name not in self.seen]
        return [file.name for file in sorted(fresh, key=_modification_key)][:MAX_FILES_PER_BATCH]

    def read_new_files(self, names: list[str]) -> pa.Table:
        """The rows of these files, which count as seen from now on."""
        tables = [self._cast_to_schema(name, self._read_file(name)) for name in names]
        self.seen.update(names)
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def describe_files(self, names: list[str]) -> tuple[InputFile, ...]:
        """Return size and time of change of files, as a batch record keeps them."""
        return tuple(describe_input_file(self.path, name) for name in names)

    def _read_file(self, name: str) -> pa.Table:
        return read_files(data_files(input_path(self.path, name)), self.time)

    def _cast_to_schema(self, name: str, table: pa.Table) -> pa.Table:
        """The table under the schema of the first file: a column of whole numbers may stand where that had fractions or
        nothing.
        """
        words = describe_schema_difference(self.schema, table.schema)
        if words is None:
            return table.cast(self.schema)
        try:
            return table.select(self.schema.names).cast(self.schema)
        except (KeyError, pa.ArrowException) as error:
            raise InputError(
                f'"{self.path / name}" does not match the files before it: {words}',
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
    """A file that a batch reads, as it was when the batch was chosen."""

    name: str
    size_bytes: int
    modified_ns: int


def input_path(stream: Path, name: str) -> Path:
    """Return the path of a file of a stream, which is a directory or that one file."""
    return stream if stream.name == name and not stream.is_dir() else stream / name


def describe_input_file(stream: Path, name: str) -> InputFile:
    """Return a file's size and time of change."""
    place = input_path(stream, name)
    try:
        found = place.stat()
    except OSError as error:
        raise InputError(f'"{place}" cannot be read: {error.strerror or error}') from error
    return InputFile(name, found.st_size, found.st_mtime_ns)


#: Modification time of the first file; the others follow second by second.
_FIRST_S = 1_700_000_000


def write_numbered_files(directory: Path, batches: Iterable[pa.Table]) -> None:
    """Times of change are in the files' order: Spark reads them by these, and files written at once would all have the
    same.
    """
    directory.mkdir(parents=True)
    for number, table in enumerate(batches):
        path = directory / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (_FIRST_S + number,) * 2)

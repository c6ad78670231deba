"""Data files and directories of them. A path is finite data: all of it is one table.

Files come from outside and are not trusted: every problem with a file is an `InputError` that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import InputError, abbreviate, listing
from watersmeet.files import find_similar_path
from watersmeet.sources.formats import describe_known_formats, find_format
from watersmeet.sources.schemas import describe_schema_difference, normalize_table, refuse_duplicate_columns
from watersmeet.sources.times import parse_time_column


def data_files(path: Path) -> list[Path]:
    """Return the data files of a path, sorted by name; refuse a path without any."""
    if is_directory(path):
        found = list_data_files(path)
        if not found:
            raise InputError(f'directory "{path}" has no data files', hint=describe_known_formats())
        return found
    refuse_missing(path)
    if not path.is_file():
        raise InputError(f'"{path}" is not a regular file')
    if find_format(path) is None:
        raise InputError(f'"{path}" has an unknown format', hint=describe_known_formats())
    return [path]


def list_data_files(directory: Path) -> list[Path]:
    """Return the data files of a directory, sorted by name; there may be none.

    A directory that cannot be listed is refused: treated as empty, its rows would be missing silently.
    """
    with _translate_path_errors(directory):
        return sorted(file for file in directory.iterdir() if file.is_file() and is_data_file(file))


def is_directory(path: Path) -> bool:
    """Return whether a path is a directory; refuse a path that cannot be accessed."""
    with _translate_path_errors(path):
        return path.is_dir()


def refuse_missing(path: Path, hint: str | None = None) -> None:
    """Refuse a path that does not exist, or that exists but cannot be followed (a loop of links, no permission)."""
    with _translate_path_errors(path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            similar = find_similar_path(path)
            suggestion = None if similar is None else f"did you mean {abbreviate(str(similar), 200)}?"
            raise InputError(f'there is no file or directory "{path}"', hint=suggestion or hint) from None


@contextmanager
def _translate_path_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f'"{_format_path(path)}" cannot be read: {error.strerror or error}') from error
    except ValueError as error:  # a name with a zero byte in it
        raise InputError(f'"{_format_path(path)}" is not a path: {error}') from error


def is_data_file(file: Path) -> bool:
    """Return whether a file of a directory is data: of a known format, and not hidden."""
    return find_format(file) is not None and not file.name.startswith((".", "_"))


def read_files(files: list[Path], time: str | None, columns: list[str] | None = None) -> pa.Table:
    """Read all files into one table. `time` is the event time column, even where the format has only text for it.

    `columns` are the only columns to keep; where the format allows, the others are not read at all.
    """
    tables = [_read_file(file, time, columns) for file in files]
    known = tables[0].schema
    for file, table in zip(files[1:], tables[1:], strict=True):
        known = _merge_schemas(known, table.schema, f'"{file}" differs from "{files[0].name}"')
    return pa.concat_tables([table.cast(known) for table in tables])


def read_file_in_batches(file: Path, time: str | None, columns: list[str]) -> Iterator[pa.Table]:
    """Yield one file as at least one table. Where the format allows, this thread reads them one at a time."""
    found = find_format(file)
    if found is None or found.iterate is None:
        yield _read_file(file, time, columns)
        return
    with _translate_read_errors(file):
        for table in found.iterate(file, columns):
            yield normalize_table(_select_columns(file, table, columns))


def _read_file(file: Path, time: str | None, columns: list[str] | None) -> pa.Table:
    found = find_format(file)
    assert found is not None, "data_files lists known formats only"
    with _translate_read_errors(file):
        table = normalize_table(_select_columns(file, found.read(file, columns), columns))
    return parse_time_column(f'"{file}"', table, time) if found.is_text and time is not None else table


@contextmanager
def _translate_read_errors(file: Path) -> Iterator[None]:
    try:
        if file.stat().st_size == 0:
            raise InputError(f'"{file}" is empty (0 bytes)')
        yield
    except InputError as error:
        if str(file) in error.message:
            raise
        raise InputError(f'"{file}" cannot be read: {error.message}', hint=error.hint) from error
    except (pa.ArrowException, OSError, ValueError, EOFError, RecursionError) as error:
        raise InputError(f'"{file}" cannot be read: {_format_error(error)}') from error


def _select_columns(file: Path, table: pa.Table, columns: list[str] | None) -> pa.Table:
    refuse_duplicate_columns(table.column_names, f'"{file}"')
    if columns is None:
        return table
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise InputError(
            f'"{file}" has no column {listing(missing)}', hint=f"existing columns: {listing(table.column_names)}"
        )
    return table.select(columns)


def _merge_schemas(known: pa.Schema, other: pa.Schema, what: str) -> pa.Schema:
    """Return one schema for both: a column without values in one file (type null) takes its type from the other."""
    for number, name in enumerate(known.names):
        if name not in other.names:
            break
        here, there = known.field(number), other.field(name)
        if pa.types.is_null(here.type):
            known = known.set(number, there)
        elif pa.types.is_null(there.type):
            other = other.set(other.get_field_index(name), here)
    words = describe_schema_difference(known, other)
    if words is not None:
        raise InputError(f"{what}: {words}")
    return known


def _format_error(error: Exception) -> str:
    return abbreviate(" ".join(str(error).split()), 300)


def _format_path(path: Path) -> str:
    return abbreviate(str(path).replace("\0", "\\0"), 200)

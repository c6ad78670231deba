"""Data files, directories of them, and their formats. A path is finite data: all of it is one table.

Both hosts and the command line read the table of formats. Files come from outside and are not trusted: every problem
with a file is an `InputError` that names it. The depth of nested JSON is checked before Arrow reads it, because the
reader of Arrow recurses and deep nesting kills the process by a stack overflow.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from watersmeet.errors import InputError, abbreviate, listing
from watersmeet.files import find_similar_path
from watersmeet.sources.schemas import describe_schema_difference, normalize_table, refuse_duplicate_columns
from watersmeet.sources.times import parse_time_column

#: Types are inferred from the first block of a file, so a block is large enough for most files.
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 20, 1 << 26
#: Rows of one batch of a file that is read in batches.
BATCH_ROWS = 1 << 18
MAX_NESTING = 64
_BLOCK_BYTES = 1 << 24
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
#: `[` and `{` differ in this bit only, and so do `]` and `}`.
_CASE_BIT = 0x20
_NEWLINE = ord("\n")


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


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A format of data files: how to read a file, at least the given columns (None: all).

    Text may be compressed (`.gz`), and times may be text in it. `iterate` yields a file in pieces, the first of them
    without rows; None if the format is read as a whole.
    """

    read: Callable[[Path, list[str] | None], pa.Table]
    is_text: bool = True
    iterate: Callable[[Path, list[str]], Iterator[pa.Table]] | None = None


def find_format(file: Path) -> SourceFormat | None:
    """Return the format of a file by its name, None if it is unknown."""
    name = file.name.lower()
    found = SOURCE_FORMATS.get(Path(name.removesuffix(".gz")).suffix)
    return None if found is None or (name.endswith(".gz") and not found.is_text) else found


def describe_known_formats() -> str:
    """Return the suffixes of the formats, for messages."""
    return f"known formats: {', '.join(SOURCE_FORMATS)}; text formats also with .gz"


def _read_parquet(file: Path, columns: list[str] | None) -> pa.Table:
    with pq.ParquetFile(file) as opened:
        known = None if columns is None else [name for name in columns if name in opened.schema_arrow.names]
        return opened.read(known)


def _iterate_parquet(file: Path, columns: list[str]) -> Iterator[pa.Table]:
    """Yield the columns that exist. This thread reads the pieces one at a time."""
    with pq.ParquetFile(file) as opened:
        known = [name for name in columns if name in opened.schema_arrow.names]
        yield opened.schema_arrow.empty_table()
        for batch in opened.iter_batches(BATCH_ROWS, columns=known, use_threads=False):
            yield pa.Table.from_batches([batch])


def _read_csv(file: Path, _columns: list[str] | None) -> pa.Table:
    return _read_delimited(file, ",")


def _read_tsv(file: Path, _columns: list[str] | None) -> pa.Table:
    return _read_delimited(file, "\t")


def _read_delimited(file: Path, delimiter: str) -> pa.Table:
    parse = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    block_bytes = _choose_block_bytes(file)
    try:
        return pacsv.read_csv(str(file), pacsv.ReadOptions(block_size=block_bytes), parse)
    except pa.ArrowInvalid:
        # With one thread Arrow knows the number of the bad row, so the second failure has the better message.
        return pacsv.read_csv(str(file), pacsv.ReadOptions(use_threads=False, block_size=block_bytes), parse)


def _read_lines(file: Path, _columns: list[str] | None = None) -> pa.Table:
    with _open_bytes(file) as opened:
        refuse_deep_nesting(opened)
    return pajson.read_json(str(file), pajson.ReadOptions(block_size=_choose_block_bytes(file)))


def _read_json(file: Path, _columns: list[str] | None) -> pa.Table:
    """Read either one object per line, or one list of objects."""
    with _open_bytes(file) as opened:
        if opened.read(64).lstrip()[:1] != b"[":
            return _read_lines(file)
        opened.seek(0)
        rows = json.loads(opened.read())
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(f'"{file}" cannot be read: the list contains an element that is not an object')
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _open_bytes(file: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(file)) if file.suffix == ".gz" else file.open("rb")


def _choose_block_bytes(file: Path) -> int:
    return min(max(file.stat().st_size + 1, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)


def refuse_deep_nesting(opened: BinaryIO) -> None:
    """Refuse lines of JSON nested more than `MAX_NESTING` deep, in time linear in the file."""
    rest = b""
    while block := opened.read(_BLOCK_BYTES):
        lines, newline, rest = (rest + block).rpartition(b"\n")
        _check_lines(lines + newline)
    _check_lines(rest)


def measure_nesting_depth(line: bytes) -> int:
    """Return how deep the brackets of one line nest, outside strings.

    >>> measure_nesting_depth(b'{"a": [1, [2]], "b": "[[["}')
    3
    """
    return int(np.cumsum(_count_bracket_steps(np.frombuffer(_STRING.sub(b"", line), np.uint8))).max(initial=0))


def _check_lines(lines: bytes) -> None:
    # Brackets inside strings count here too: that is fast, and can only make a line look too deep. Only such lines are
    # checked exactly.
    signs = np.frombuffer(lines, np.uint8)
    brackets = np.flatnonzero(
        ((signs | _CASE_BIT) == ord("{")) | ((signs | _CASE_BIT) == ord("}")) | (signs == _NEWLINE)
    )
    found = signs[brackets]
    ends = np.flatnonzero(found == _NEWLINE)
    totals = np.cumsum(_count_bracket_steps(found))
    line_of = np.searchsorted(ends, np.arange(found.size), side="left")
    before = np.concatenate([[0], totals[ends]])[line_of]
    for number in np.unique(line_of[totals - before > MAX_NESTING]):
        start = 0 if number == 0 else brackets[ends[number - 1]] + 1
        end = brackets[ends[number]] if number < ends.size else len(lines)
        if measure_nesting_depth(lines[start:end]) > MAX_NESTING:
            raise InputError(f"a row nests objects and lists more than {MAX_NESTING} deep")


def _count_bracket_steps(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return +1 for each opening bracket, -1 for each closing one, 0 for the rest."""
    folded = signs | _CASE_BIT
    steps: npt.NDArray[np.int64] = (folded == ord("{")).astype(np.int64) - (folded == ord("}"))
    return steps


#: Formats by the suffix of their files.
SOURCE_FORMATS: dict[str, SourceFormat] = {
    ".parquet": SourceFormat(_read_parquet, is_text=False, iterate=_iterate_parquet),
    ".csv": SourceFormat(_read_csv),
    ".tsv": SourceFormat(_read_tsv),
    ".json": SourceFormat(_read_json),
    ".jsonl": SourceFormat(_read_lines),
    ".ndjson": SourceFormat(_read_lines),
}

"""The formats of data files. Both hosts and the command line read this table.

The depth of nested JSON is checked before Arrow reads it, because Arrow's reader recurses and deep nesting kills the
process by a stack overflow.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from watersmeet.errors import InputError

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

"""A stream's batches as numbered parquet files, in a directory that is then followed a file at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

#: When the first file is said to have been written; the others follow second by second.
_FIRST_S = 1_700_000_000


def write_numbered(directory: Path, batches: Iterable[pa.Table]) -> None:
    """Times of change are in the files' order: Spark reads them by these, and files written at once would all have the
    same.
    """
    directory.mkdir(parents=True)
    for number, table in enumerate(batches):
        path = directory / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (_FIRST_S + number,) * 2)

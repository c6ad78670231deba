"""Diversion: messages that cannot be read go to files, whole and with the reason, and leave the stream.

A task writes at most one file, atomically, whose name has the query, the batch and the partition. A batch that runs
again reads the same messages, so it replaces the file by an equal one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from watersmeet.files import make_directory, write_atomically
from watersmeet.runtime.spark.python_steps import map_in_arrow, task_name


def divert_messages(frame: DataFrame, problem: str, stream: str, directory: str) -> DataFrame:
    """Return the rows without a problem. The struct in the column `problem` of each other row goes to the directory."""
    kept = StructType([field for field in frame.schema if field.name != problem])
    return map_in_arrow(frame, f"divert from {stream}", partial(_divert, problem, Path(directory) / stream), kept)


def _divert(problem: str, folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    diverted: list[pa.Array[Any]] = []
    for batch in batches:
        problems = batch.column(problem)
        if problems.null_count < batch.num_rows:
            diverted.append(problems.drop_null())
        yield batch.filter(pc.is_null(problems)).drop_columns([problem])
    if diverted:
        _write_messages(folder, pa.chunked_array(diverted))


def _write_messages(folder: Path, messages: pa.ChunkedArray[Any]) -> None:
    make_directory(folder)
    content = BytesIO()
    pq.write_table(pa.Table.from_struct_array(messages), content)
    write_atomically(folder / f"{task_name()}.parquet", content.getvalue())

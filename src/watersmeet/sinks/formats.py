"""The formats of result files. Both hosts and the command line read this table.

Arrow is imported by the functions that write, because the help of the command line reads the table without it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_JSON_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """A format of result files: how this process writes a file, and how a streaming query of Spark does.

    `spark_name` is Spark's name of the format, None if Spark does not write it. The caller's options override
    `spark_options`.
    """

    write: Callable[[pa.Table, Path], None]
    spark_name: str | None
    spark_options: Mapping[str, str] = field(default_factory=dict)


def format_json_line(row: dict[str, Any]) -> str:
    """Format a row as JSON: times in ISO 8601, bytes in hexadecimal, NaN and infinity as null, because JSON lacks them.

    >>> format_json_line({"at": dt.date(2013, 1, 1), "x": math.inf})
    '{"at": "2013-01-01", "x": null}'
    """
    return json.dumps(
        {name: _replace_non_finite(value) for name, value in row.items()},
        default=_format_json_value,
        ensure_ascii=False,
    )


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _write_csv(table: pa.Table, path: Path) -> None:
    import pyarrow.csv as pacsv

    pacsv.write_csv(table, path)


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as opened:
        for batch in table.to_batches(max_chunksize=_JSON_BATCH_ROWS):
            opened.writelines(format_json_line(row) + "\n" for row in batch.to_pylist())


def _replace_non_finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _format_json_value(value: Any) -> str:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


#: Formats by the suffix of their files.
SINK_FORMATS: dict[str, SinkFormat] = {
    ".parquet": SinkFormat(_write_parquet, "parquet"),
    ".csv": SinkFormat(_write_csv, "csv", {"header": "true"}),
    ".jsonl": SinkFormat(_write_lines, "json"),
}

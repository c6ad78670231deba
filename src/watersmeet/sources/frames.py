"""Tables of other libraries, recognised without importing those libraries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.sources.schemas import plain, refuse_duplicate_columns


def is_a(source: object, package: str, *names: str) -> bool:
    """Whether an object is of a class of that package, by name: asking must not import the package."""
    return any(cls.__module__.split(".")[0] == package and cls.__name__ in names for cls in type(source).__mro__)


def is_spark_frame(source: object) -> bool:
    return is_a(source, "pyspark", "DataFrame") and hasattr(source, "sparkSession")


def as_table(source: Any) -> pa.Table | None:
    """A table, batch or frame as an Arrow table; None when it is none of these."""
    if isinstance(source, pa.Table):
        return plain(source)
    if isinstance(source, pa.RecordBatch):
        return plain(pa.Table.from_batches([source]))
    if is_a(source, "pandas", "DataFrame"):
        return plain(_from_pandas(source))
    if is_a(source, "polars", "DataFrame"):
        return plain(source.to_arrow())
    if is_a(source, "polars", "LazyFrame"):
        return plain(_collected(source).to_arrow())
    return None


def _from_pandas(frame: Any) -> pa.Table:
    """Return a pandas frame as a table, with its index as columns if the index is named: a time often is the index."""
    refuse_duplicate_columns([str(name) for name in frame.columns], "a pandas frame")
    names = list(frame.index.names)
    try:
        named = all(name is not None and name not in frame.columns for name in names)
        return pa.Table.from_pandas(frame.reset_index() if named else frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        details = ": ".join(str(part) for part in reversed(error.args))
        raise InputError(
            f"a pandas frame cannot be read: {details}"[:400], hint="give every column values of one type"
        ) from error


def _collected(frame: Any) -> Any:
    try:
        return frame.collect()
    except Exception as error:
        if type(error).__module__.split(".")[0] != "polars" and not isinstance(error, OSError):
            raise
        raise InputError(f"a polars LazyFrame cannot be collected: {str(error)[:300]}") from error

"""Feeds: a schema known before the first row, and batches of rows as Arrow tables.

Tables of other libraries are recognised without importing those libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.sources.files import data_files, is_directory, list_data_files, read_files, refuse_missing
from watersmeet.sources.schemas import (
    apply_schema,
    describe_schema_difference,
    normalize_table,
    refuse_duplicate_columns,
)
from watersmeet.sources.times import (
    ARRIVAL_COLUMN,
    ARRIVAL_FIELD,
    SPARK_STAMP,
    ArrivalClock,
    add_arrival_field,
    stamp_rows,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame

#: Rows in memory.
TableLike: TypeAlias = "pa.Table | pa.RecordBatch | pd.DataFrame | pl.DataFrame | pl.LazyFrame"
#: Everything that `wm.stream` and `wm.relation` accept.
RowSource: TypeAlias = "TableLike | Iterable[TableLike] | DataFrame | str | Path"

_END = object()


class Feed(Protocol):
    """Common interface of all sources."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.Table]: ...


def make_feed(
    source: RowSource,
    time: str | None = None,
    following: FollowOptions | None = None,
    *,
    stamped: bool = False,
    schema: pa.Schema | None = None,
) -> Feed:
    """Return the feed of a caller's source; `stamped` adds the time of arrival to its rows.

    Rows that are read ahead are still delivered. With a `schema`, nothing is read ahead of an iterable.
    """
    if schema is not None and not _is_batches(source):
        raise InputError(
            f"a schema is declared for an iterable of batches, not for a {type(source).__name__}",
            hint="leave schema out: the columns are known",
        )
    if following is not None and not isinstance(source, str | Path):
        raise InputError(f"only a directory can be followed, not a {type(source).__name__}", hint="leave follow out")
    table = to_table(source)
    if table is not None:
        return TableFeed(stamp_rows(table, ArrivalClock().read_us()) if stamped else table)
    if isinstance(source, str | Path):
        return PathFeed(_parse_path(source), time, following, stamped=stamped)
    if is_spark_frame(source):
        return SparkFeed(_stamp_frame(source) if stamped else source)
    if _is_batches(source):
        return BatchFeed(source, ArrivalClock() if stamped else None, schema)
    raise InputError(f"a {type(source).__name__} is not a source of rows", hint=_describe_sources())


def _is_batches(source: object) -> TypeGuard[Iterable[Any]]:
    """Return whether a source is an iterable of batches, and not a table, a path or a frame."""
    is_whole = isinstance(source, str | Path | bytes | dict) or is_spark_frame(source) or to_table(source) is not None
    return isinstance(source, Iterable) and not is_whole


def _parse_path(source: str | Path) -> Path:
    if not str(source).strip():
        raise InputError("an empty path")  # Path("") would be the current directory
    return Path(source)


class TableFeed:
    """One table as one batch, any number of times."""

    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self._table = table

    def __str__(self) -> str:
        rows = self._table.num_rows
        return f"table of {rows:,} {'row' if rows == 1 else 'rows'}"

    def peek(self) -> pa.Table:
        return self._table

    def batches(self) -> Iterator[pa.Table]:
        return iter([self._table])


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Options of a followed directory: how many new files, or bytes of new files, are read in one batch.

    A batch takes at least one file, even if it has more bytes.
    """

    files_per_batch: int | None = None
    bytes_per_batch: int | None = None

    def __post_init__(self) -> None:
        if self.files_per_batch is not None and self.files_per_batch < 1:
            raise InputError(f"a batch takes at least one file, not {self.files_per_batch}")


class PathFeed:
    """File, or a directory of files, as one batch.

    The constructor checks that the path exists; the content is read on first use. A followed directory never ends, so
    only the Spark host runs it. Its columns are those of its first file, which may appear later.

    The rows of a finite `stamped` path have all arrived at the same time, when the path was declared. Spark stamps the
    rows of a followed one batch by batch.
    """

    def __init__(
        self, path: Path, time: str | None, following: FollowOptions | None = None, *, stamped: bool = False
    ) -> None:
        if following is not None and not is_directory(path) and path.exists():
            raise InputError(f'"{path}" is a file; only a directory can be followed')
        refuse_missing(path)
        self.path = path
        self.files = data_files(path) if following is None else list_data_files(path)
        self.time = time
        self.follow = following
        self.arrived_us = ArrivalClock().read_us() if stamped else None
        self._table: pa.Table | None = None

    def __str__(self) -> str:
        kind = self.files[0].suffix.removeprefix(".") if self.files else "directory"
        return f"{kind} {str(self.path)!r}"

    @property
    def is_ready(self) -> bool:
        """Whether there is a file that shows the columns. A followed directory is listed again if it had none."""
        if not self.files:
            self.files = list_data_files(self.path)
        return bool(self.files)

    @property
    def schema(self) -> pa.Schema:
        return self.peek().schema

    def peek(self) -> pa.Table:
        """Return the rows to plan by: all rows, or those of the first file of a followed directory."""
        if not self.is_ready:
            raise InputError(
                f'directory "{self.path}" has no data files yet, so its columns are unknown',
                hint="start the query when its first file has arrived",
            )
        return self._read(self.files[:1] if self.follow is not None else self.files)

    def with_options(self, following: FollowOptions) -> PathFeed:
        """Return the same followed directory with other options."""
        feed = copy(self)
        feed.follow = following
        return feed

    def measure_row_bytes(self) -> float | None:
        """Return the bytes of a row in the first file; None if there is no file with rows."""
        rows = self.peek().num_rows if self.is_ready else 0
        return self.files[0].stat().st_size / rows if rows else None

    def batches(self) -> Iterator[pa.Table]:
        if self.follow is not None:
            raise InputError(
                f'"{self.path}" is followed and never ends, so it cannot be collected',
                hint="run the query on Spark instead",
            )
        return iter([self._read(self.files)])

    def _read(self, files: list[Path]) -> pa.Table:
        if self._table is None:
            table = read_files(files, self.time)
            self._table = table if self.arrived_us is None else stamp_rows(table, self.arrived_us)
        return self._table


@dataclass(frozen=True, slots=True)
class KnownBatches:
    """All rows of a source in memory, and the number of rows in each of its batches."""

    rows: pa.Table
    batch_rows: tuple[int, ...]


def _is_list_of_tables(source: Iterable[Any]) -> bool:
    return (
        isinstance(source, list | tuple)
        and len(source) > 0
        and all(isinstance(each, pa.Table | pa.RecordBatch) for each in source)
    )


class BatchFeed:
    """Iterable of batches. Without a declared schema, the first batch is read ahead; it is still delivered first.

    An iterator can be consumed once; any other iterable (a list, for example) starts again each time. With a `clock`,
    the rows of a batch are stamped when it is read.
    """

    def __init__(
        self, source: Iterable[Any], clock: ArrivalClock | None = None, schema: pa.Schema | None = None
    ) -> None:
        self._source = source
        self._clock = clock
        self._peeked: Iterator[pa.Table] | None = None
        self._first: pa.Table | None = None
        self._was_opened = False
        self._known: KnownBatches | None = None
        self._schema = schema if schema is None or clock is None else add_arrival_field(schema)

    def __str__(self) -> str:
        return f"batches of a {type(self._source).__name__}"

    def peek(self) -> pa.Table | None:
        """Return the first batch, which is still delivered first.

        None if an iterator was consumed before, or if the schema is declared: then nothing is read ahead.
        """
        return None if self.schema is None else self._first

    def read_known_batches(self) -> KnownBatches | None:
        """Return all batches if the source is a list of tables in memory, which a run reads again; else None."""
        if self._known is None and self._clock is None and _is_list_of_tables(self._source):
            try:
                tables = list(_check_schemas(self._read_batches(iter(self._source)), self.schema))
            except InputError:
                return None  # the run reports the error
            self._known = KnownBatches(pa.concat_tables(tables), tuple(each.num_rows for each in tables))
        return self._known

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            opened = self._read_batches(iter(self._source))
            first = next(opened, None)
            if first is None:
                raise InputError(
                    "a source without any batch: its columns are unknown", hint="pass at least one empty table"
                )
            self._first, self._schema = first, first.schema
            self._peeked = chain([first], opened)
        return self._schema

    def batches(self) -> Iterator[pa.Table]:
        schema = self.schema
        if self._was_opened and self._peeked is None and isinstance(self._source, Iterator | pa.RecordBatchReader):
            raise InputError(
                "a one-shot source was already consumed",
                hint="pass a new iterator, or a list of batches to read them again",
            )
        opened = self._peeked if self._peeked is not None else self._read_batches(iter(self._source))
        self._peeked, self._was_opened = None, True
        if isinstance(self._source, Iterator | pa.RecordBatchReader):
            self._first = None  # a one-shot source is not kept in memory
        return _check_schemas(opened, schema)

    def _read_batches(self, opened: Iterator[Any]) -> Iterator[pa.Table]:
        number = 0
        while True:
            number += 1
            try:
                item = next(opened, _END)
            except pa.ArrowException as error:
                raise InputError(f"batch {number} cannot be read: {str(error)[:300]}") from error
            if item is _END:
                return
            table = to_table(item)
            if table is None:
                raise InputError(
                    f"batch {number} is a {type(item).__name__}", hint="every batch is a pyarrow RecordBatch or Table"
                )
            yield table if self._clock is None else stamp_rows(table, self._clock.read_us())


class SparkFeed:
    """Spark DataFrame. The Spark host uses the `frame` itself.

    This process can only collect a frame that is not streaming. `read_limited`, if there is one, reads the same stream
    with at most so many rows in a micro-batch.
    """

    def __init__(self, frame: DataFrame, read_limited: Callable[[int], DataFrame] | None = None) -> None:
        self.frame = frame
        self.read_limited = read_limited
        self._schema: pa.Schema | None = None

    def __str__(self) -> str:
        return "streaming Spark DataFrame" if self.frame.isStreaming else "Spark DataFrame"

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            refuse_duplicate_columns(self.frame.columns, "a Spark DataFrame")
            empty = self.frame.sparkSession.createDataFrame([], self.frame.schema)
            self._schema = normalize_table(empty.toArrow()).schema
        return self._schema

    def batches(self) -> Iterator[pa.Table]:
        if self.frame.isStreaming:
            raise InputError(
                "a streaming Spark DataFrame never ends, so it cannot be collected",
                hint="run the query on Spark instead",
            )
        return iter([normalize_table(self.frame.toArrow())])

    def known_rows(self) -> int | None:
        """Return the number of rows where Spark's own statistics have it; no job is started."""
        if self.frame.isStreaming or not hasattr(self.frame, "_jdf"):  # Spark Connect stores its plan elsewhere
            return None
        count = self.frame._jdf.queryExecution().optimizedPlan().stats().rowCount()
        # Py4J returns a Scala BigInt as an object, or as a number if it is small.
        return int(str(count.get())) if count.isDefined() else None


def _stamp_frame(frame: DataFrame) -> DataFrame:
    """Return the frame with the time of arrival, which Spark records with each batch of a stream."""
    if ARRIVAL_COLUMN in frame.columns:
        add_arrival_field(pa.schema({ARRIVAL_COLUMN: ARRIVAL_FIELD.type}))
    return frame.selectExpr("*", SPARK_STAMP)


def _check_schemas(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    for number, table in enumerate(tables, start=1):
        difference = describe_schema_difference(schema, table.schema)
        if difference is not None:
            raise InputError(
                f"batch {number} differs from the first: {difference}",
                hint="all batches of a source have the same columns and types",
            )
        yield apply_schema(table, schema)


def is_instance_of(source: object, package: str, *names: str) -> bool:
    """Return whether an object is of a class of that package, by name, so that the package is not imported."""
    return any(cls.__module__.split(".")[0] == package and cls.__name__ in names for cls in type(source).__mro__)


def is_spark_frame(source: object) -> TypeGuard[DataFrame]:
    return is_instance_of(source, "pyspark", "DataFrame") and hasattr(source, "sparkSession")


def to_table(source: Any) -> pa.Table | None:
    """Return a table, batch or frame as an Arrow table; None for any other object."""
    for kind in TABLE_KINDS:
        if is_instance_of(source, kind.package, kind.name):
            return normalize_table(kind.convert(source))
    return None


def _convert_pandas(frame: Any) -> pa.Table:
    """Return a pandas frame as a table. A named index becomes columns, because a time often is the index."""
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


def _collect_lazy_frame(frame: Any) -> Any:
    try:
        return frame.collect()
    except Exception as error:
        if type(error).__module__.split(".")[0] != "polars" and not isinstance(error, OSError):
            raise
        raise InputError(f"a polars LazyFrame cannot be collected: {str(error)[:300]}") from error


def _describe_sources() -> str:
    tables = ", ".join(f"a {kind.package} {kind.name}" for kind in TABLE_KINDS)
    return f"a source is {tables}, an iterable of them, a Spark DataFrame, or a path"


@dataclass(frozen=True, slots=True)
class TableKind:
    """A class of rows in memory, by its package and its name, and its conversion to an Arrow table."""

    package: str
    name: str
    convert: Callable[[Any], pa.Table]


TABLE_KINDS = (
    TableKind("pyarrow", "Table", lambda table: table),
    TableKind("pyarrow", "RecordBatch", lambda batch: pa.Table.from_batches([batch])),
    TableKind("pandas", "DataFrame", _convert_pandas),
    TableKind("polars", "DataFrame", lambda frame: frame.to_arrow()),
    TableKind("polars", "LazyFrame", lambda frame: _collect_lazy_frame(frame).to_arrow()),
)

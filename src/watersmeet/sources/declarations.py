"""Streams and relations as the caller declares them, and queries bound to their schemas.

Finite tables can be split into batches by event time over all streams together. A long run then shows its progress, and
needs memory for its windows, not for all its matches at once. No row of a later batch lies before the watermark of an
earlier one: no row becomes late, and the results equal those of a single batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from watersmeet.algebra.query import BoundQuery, Query
from watersmeet.algebra.render import html_code, html_table
from watersmeet.algebra.schema import RelationSchema, StreamSchema, parse_time_unit
from watersmeet.algebra.windows import format_sql_duration
from watersmeet.errors import InputError
from watersmeet.sources.feeds import Feed, FollowOptions, PathFeed, RowSource, SparkFeed, make_feed
from watersmeet.sources.times import (
    ARRIVAL,
    ARRIVAL_COLUMN,
    ArrivalTime,
    Duration,
    extract_event_times_us,
    parse_duration_us,
)
from watersmeet.sql.binder import bind
from watersmeet.sql.parsing import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Approximate rows of all streams together in one batch.
BATCH_ROWS = 1 << 19


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows with an event time, in batches.

    A row may be up to `lateness_us` behind the largest time of earlier batches. A stream that is silent for longer than
    `idle_us` no longer holds back the watermark (None: it always does). `unit` is the unit of integer times (None:
    microseconds, unless the values look like another unit).
    """

    feed: Feed
    time: str
    lateness_us: int = 0
    idle_us: int | None = None
    unit: str | None = None
    stamped: bool = False  # rows have no time of their own; they get the time of their arrival

    def __repr__(self) -> str:
        return f"Stream({', '.join([str(self.feed), *self._describe_options()])})"

    def _repr_html_(self) -> str:
        return _render_source_html(repr(self), self.schema)

    def _describe_options(self) -> list[str]:
        lateness = format_sql_duration(self.lateness_us).lower() if self.lateness_us else None
        idle = None if self.idle_us is None else format_sql_duration(self.idle_us).lower()
        options = {"unit": self.unit, "lateness": lateness, "idle": idle}
        time = "time=ARRIVAL" if self.stamped else f"time={self.time!r}"
        follow = ["follow=True"] if isinstance(self.feed, PathFeed) and self.feed.follow is not None else []
        return [time, *(f"{name}={value!r}" for name, value in options.items() if value is not None), *follow]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self.feed.schema

    @property
    def spark_frame(self) -> DataFrame | None:
        """Spark DataFrame that the stream was declared over; None for other sources."""
        return self.feed.frame if isinstance(self.feed, SparkFeed) else None

    @property
    def is_unbounded(self) -> bool:
        """Whether more rows may always arrive: a streaming Spark DataFrame, or a followed directory."""
        if isinstance(self.feed, SparkFeed):
            return bool(self.feed.frame.isStreaming)
        return isinstance(self.feed, PathFeed) and self.feed.follow is not None

    @property
    def with_default_unit(self) -> Stream:
        """Stream whose integer times without a unit are declared as microseconds, which disables the check of units."""
        counts = self.time in self.schema.names and pa.types.is_integer(self.schema.field(self.time).type)
        return replace(self, unit="us") if counts and self.unit is None else self

    def batches(self) -> Iterator[pa.Table]:
        """Return the batches of the source."""
        return self.feed.batches()

    def to_schema(self, name: str) -> StreamSchema:
        """Return the stream's schema for the binder, under the name it was declared with."""
        return StreamSchema(name, self.schema, self.time, self.unit)


@dataclass(frozen=True, slots=True)
class Relation:
    """Static table: its rows are valid at every instant."""

    feed: Feed

    def __repr__(self) -> str:
        return f"Relation({self.feed})"

    def _repr_html_(self) -> str:
        return _render_source_html(repr(self), self.schema)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self.feed.schema

    @property
    def spark_frame(self) -> DataFrame | None:
        """Spark DataFrame that the relation was declared over; None for other sources."""
        return self.feed.frame if isinstance(self.feed, SparkFeed) else None

    def batches(self) -> Iterator[pa.Table]:
        """Return the batches of the source."""
        return self.feed.batches()

    def to_schema(self, name: str) -> RelationSchema:
        """Return the relation's schema for the binder, under the name it was declared with."""
        return RelationSchema(name, self.schema)


def stream(
    source: RowSource,
    *,
    time: str | ArrivalTime,
    unit: str | None = None,
    lateness: Duration = 0,
    idle: Duration | None = None,
    follow: bool = False,
    files_per_batch: int | None = None,
    schema: pa.Schema | None = None,
) -> Stream:
    """Declare a stream over a source: its event time column, its lateness and its idle timeout.

    `unit` is the unit in which an integer time column counts since 1970: "s", "ms", "us" or "ns". Without one it counts
    microseconds, and a column whose values look like another unit is refused. Results show the column's own values.

    With `time=ARRIVAL`, every row gets the time at which its batch was read, in a column `arrival_time`. A replayed
    batch gets the same times again.

    A path is finite data: the files that exist now. With `follow`, a directory is an unbounded stream: files that
    appear later are read as well, at most `files_per_batch` at once. Such a stream runs on Spark.

    The columns of an iterable are those of its first batch, which is read when the query is bound. With a `schema`,
    nothing is read ahead, so that a silent source does not delay the start of a query.

    >>> stream(pa.table({"price": [5], "ts": [1_000_000]}), time="ts", lateness="5 seconds")
    Stream(table of 1 row, time='ts', lateness='5 seconds')
    """
    if not isinstance(time, str | ArrivalTime):
        raise InputError(f"the time column is given by its name, not as a {type(time).__name__}")
    if time is ARRIVAL and unit is not None:
        raise InputError("rows stamped on arrival have no integer times", hint="leave unit out")
    lateness_us = parse_duration_us(lateness, "a lateness")
    idle_us = None if idle is None else parse_duration_us(idle, "an idle timeout")
    if files_per_batch is not None and not follow:
        raise InputError("files_per_batch is for a directory that is followed", hint="set follow=True as well")
    following = FollowOptions(files_per_batch) if follow else None
    if isinstance(time, ArrivalTime):
        return Stream(
            make_feed(source, None, following, stamped=True, schema=schema),
            ARRIVAL_COLUMN,
            lateness_us,
            idle_us,
            stamped=True,
        )
    feed = make_feed(source, time, following, schema=schema)
    return Stream(feed, time, lateness_us, idle_us, parse_time_unit(unit))


def relation(source: RowSource) -> Relation:
    """Declare a static table over a source.

    >>> relation(pa.table({"item": ["pen"]})).schema.names
    ['item']
    """
    return Relation(make_feed(source))


def _render_source_html(title: str, schema: pa.Schema) -> str:
    """Render a source for a notebook: its declaration and its columns."""
    return f"<div>{html_code(title)}{html_table(('column', 'type'), [(each.name, each.type) for each in schema])}</div>"


def split_tables_by_time(
    tables: Mapping[str, pa.Table], sources: Mapping[str, Stream], batch_rows: int = BATCH_ROWS
) -> Iterator[dict[str, pa.Table]]:
    """Yield the tables, cut at common instants into batches of about `batch_rows` rows.

    >>> table = pa.table({"ts": pa.array([3, 1, 2, 9], pa.int64())})
    >>> batches = split_tables_by_time({"a": table}, {"a": stream(table, time="ts")}, batch_rows=2)
    >>> [batch["a"].column("ts").to_pylist() for batch in batches]
    [[1, 2], [3, 9]]
    """
    total = sum(table.num_rows for table in tables.values())
    if total <= batch_rows:
        yield dict(tables)
        return
    times = {
        name: extract_event_times_us(name, table, sources[name].time, sources[name].unit)
        for name, table in tables.items()
    }
    orders = {name: np.argsort(each, kind="stable") for name, each in times.items()}
    cuts = _choose_cut_times(np.concatenate(list(times.values())), total // batch_rows + (total % batch_rows > 0))
    bounds = {name: np.searchsorted(each[orders[name]], cuts) for name, each in times.items()}
    for k in range(cuts.size - 1):
        yield {name: table.take(orders[name][bounds[name][k] : bounds[name][k + 1]]) for name, table in tables.items()}


def _choose_cut_times(
    times: np.ndarray[tuple[int], np.dtype[np.int64]], count: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return instants with about equally many rows between them.

    The first instant is that of the first row; the last lies after all rows.
    """
    places = np.linspace(0, times.size, count + 1).astype(np.int64)[1:-1]
    inner = np.unique(np.partition(times, places)[places]) if places.size else np.empty(0, np.int64)
    first, last = int(times.min()), int(times.max()) + 1
    return np.unique(np.concatenate([[first], inner, [last]])).astype(np.int64)


Sources = Mapping[str, Stream | Relation]


def bind_query(query: Query | str, sources: Sources) -> BoundQuery:
    """Bind the query to the schemas that its sources declare."""
    parsed = parse(query) if isinstance(query, str) else query
    for name, source in sources.items():
        if not isinstance(source, Stream | Relation):
            raise undeclared_source_error(name, source)
    return bind(parsed, {name: source.to_schema(name) for name, source in sources.items()})


def undeclared_source_error(name: str, source: object) -> InputError:
    """Return the error for a source that is neither a stream nor a relation."""
    return InputError(
        f'source "{name}" is a {type(source).__name__}',
        hint="declare it with wm.stream(source, time=...) or wm.relation(source)",
    )


def read_all_rows(source: Stream | Relation) -> pa.Table:
    """Read a finite source into one table."""
    return pa.concat_tables(source.batches())

"""Statistics of a stream as it goes by, in a few kilobytes, mergeable over workers and batches."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import InputError, listing
from watersmeet.stats.column_sketch import ColumnSketch
from watersmeet.stats.estimate import Estimate, Provenance
from watersmeet.stats.rates import rate_of, row_bytes_of, span_of
from watersmeet.stats.stream_stats import StreamStats
from watersmeet.stats.values import as_table, checked_times, column_of, sample_rows, value_counts

#: A row looked at costs 0.01 to 0.3 µs per column and a join some 0.2 µs per row, so one in 64 keeps measuring at some percent.
SAMPLE_SHARE = 1 / 64
#: Rows looked at whatever the share: all of the stream's first ones, and the most of any batch.
SAMPLE_ROWS = 8_192
_LEAST_ROWS = 128

_MAGIC = b"WMS1"
_HEAD = struct.Struct("<4sII")  # magic, checksum of all that follows the head, length of the JSON that begins it


class StreamSketch:
    """Rows, times, bytes and, for the chosen columns, distinct values, the most frequent value's share and nulls.

    Rows, times and bytes are exact. The columns of the first `most_rows` rows of the stream are looked at in full; after that, a `share` of
    each batch, between 128 and `most_rows` rows spread over it. With a share of 1 only batches above `most_rows` are sampled.

    >>> sketch = StreamSketch(["item"])
    >>> sketch.update(pa.table({"item": ["pen", "pen", "ink"]}), np.array([0, 1_000_000, 3_000_000]))
    >>> print(sketch.stats().rows_per_s, sketch.stats().distinct["item"], sep=", ")
    1 (measured), 2 (measured)
    """

    __slots__ = ("_bytes", "_columns", "_first_us", "_last_us", "_most_rows", "_rows", "_share")

    def __init__(self, columns: Sequence[str], most_rows: int = SAMPLE_ROWS, share: float = SAMPLE_SHARE):
        if most_rows < 1:
            raise InputError(f"a sample has at least one row, got {most_rows}")
        if not 0 < share <= 1:
            raise InputError(f"a sample is a share of the rows above zero and up to one, got {share}")
        self._columns = {name: ColumnSketch() for name in columns}
        self._most_rows = most_rows
        self._share = share
        self._rows = 0
        self._bytes = 0
        self._first_us = 0
        self._last_us = 0

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def update(self, rows: pa.Table | pa.RecordBatch, times_us: NDArray[np.int64]) -> None:
        """Takes in a batch with its event times. A batch that is refused leaves the sketch as it was."""
        table = as_table(rows)
        count = table.num_rows
        times = checked_times(times_us, count)
        chosen = sample_rows(count, self._looked_at(count), seed=self._rows)
        counted = {name: value_counts(column_of(table, name), name, chosen) for name in self._columns}
        if not count:
            return
        for name, counts in counted.items():
            self._columns[name].update(counts, count, count if chosen is None else len(chosen))
        self._see(count, table.nbytes, int(times.min()), int(times.max()))

    def merge(self, other: StreamSketch) -> StreamSketch:
        """The sketch of both streams' rows; neither of the two changes."""
        if set(self._columns) != set(other._columns):
            raise InputError(
                f"a sketch of columns {listing(self.columns)} cannot be merged with one of columns {listing(other.columns)}",
                hint="sketch the same columns everywhere",
            )
        both = StreamSketch((), self._most_rows, self._share)
        both._columns = {name: column.merged(other._columns[name]) for name, column in self._columns.items()}
        for each in (self, other):
            if each._rows:
                both._see(each._rows, each._bytes, each._first_us, each._last_us)
        return both

    def stats(self) -> StreamStats:
        """What the rows so far say; columns that had no value are left out."""
        bounds = (self._first_us, self._last_us)
        return StreamStats(
            rows_per_s=rate_of(self._rows, *bounds),
            row_bytes=row_bytes_of(self._rows, self._bytes),
            distinct=_known({name: column.distinct for name, column in self._columns.items()}),
            hot_share=_known({name: column.hot_share for name, column in self._columns.items()}),
            span_s=span_of(self._rows, *bounds),
            rows=Estimate(self._rows, Provenance.MEASURED),
            null_share=_known({name: column.null_share for name, column in self._columns.items()}),
        )

    def to_bytes(self) -> bytes:
        columns: list[list[str | int]] = []
        blobs: list[bytes] = []
        for name, column in self._columns.items():
            pair = column.blobs()
            blobs += pair
            columns.append([name, column.rows, column.valued, column.sampled, *map(len, pair)])
        about = [self._most_rows, self._share, self._rows, self._bytes, self._first_us, self._last_us]
        text = json.dumps({"stream": about, "columns": columns}).encode()
        body = text + b"".join(blobs)
        return _HEAD.pack(_MAGIC, zlib.crc32(body), len(text)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> StreamSketch:
        """The inverse of `to_bytes`; anything else, or damaged bytes, is refused."""
        about, blobs = _opened(data)
        most_rows, share, *counters = about["stream"]
        sketch = cls((), most_rows, share)
        sketch._rows, sketch._bytes, sketch._first_us, sketch._last_us = counters
        for name, rows, valued, sampled, *lengths in about["columns"]:
            registers, blobs = blobs[: lengths[0]], blobs[lengths[0] :]
            counts, blobs = blobs[: lengths[1]], blobs[lengths[1] :]
            sketch._columns[name] = ColumnSketch.of_blobs(rows, valued, sampled, (registers, counts))
        return sketch

    def _looked_at(self, count: int) -> int:
        """Rows of a batch of `count` that are looked at."""
        first = self._most_rows - self._rows
        return min(self._most_rows, max(first, _LEAST_ROWS, math.ceil(count * self._share)))

    def _see(self, rows: int, total_bytes: int, first_us: int, last_us: int) -> None:
        self._first_us = min(self._first_us, first_us) if self._rows else first_us
        self._last_us = max(self._last_us, last_us) if self._rows else last_us
        self._rows += rows
        self._bytes += total_bytes


def _opened(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON and the blobs behind it. The checksum holds, so what is inside is what `to_bytes` wrote."""
    if len(data) >= _HEAD.size:
        magic, checksum, length = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if magic == _MAGIC and zlib.crc32(body) == checksum:
            return json.loads(body[:length]), body[length:]
    raise InputError("these bytes are not a sketch of a stream, or are damaged", hint="measure the stream again")


def _known(estimates: dict[str, Estimate | None]) -> dict[str, Estimate]:
    return {name: each for name, each in estimates.items() if each is not None}

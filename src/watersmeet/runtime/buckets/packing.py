"""Packing: turn the rows of a stream into a few blobs per bucket, with only the columns that are read later.

Selections are applied here or earlier in the JVM, and keys decide the bucket. Rows are sorted by bucket once and then
sliced, so the work does not grow with the number of buckets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.expressions import Column, Expr, columns_of
from watersmeet.errors import InternalError
from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.aggregate.codes import combine_row_codes
from watersmeet.operators.expressions import evaluate, evaluate_or_null, maybe_true
from watersmeet.operators.keys import encode_keys
from watersmeet.operators.narrow_integers import downcast_integers
from watersmeet.operators.protocol import InputBatch
from watersmeet.operators.shed.aggregation import ROW, TIME, add_hidden_columns
from watersmeet.operators.shed.allocation import PROBES, STORED
from watersmeet.operators.shed.sampling import DropBox, RoleSampler
from watersmeet.runtime.buckets.bucket_grid import Axis, BucketGrid, Int64s
from watersmeet.runtime.buckets.packets import (
    CLOCK,
    MAX_BLOB_BYTES,
    ROW_COPIES,
    ROWS,
    SHED,
    UNSELECTED,
    WITHOUT_ROLE,
    Packet,
    encode_packets,
    encode_table_to_buffer,
    slice_by_bytes,
)
from watersmeet.runtime.buckets.plan_log import PlannedDrops
from watersmeet.runtime.buckets.value_ranges import ValueRanges
from watersmeet.sources.times import extract_event_times_us

#: Rows are gathered up to this size before they are packed, or until they fill all blobs. So small batches do not make
#: small blobs, and Spark processes one chunk while the next is packed.
CHUNK_BYTES = 1 << 26

#: Columns that packing adds to rows.
_HIDDEN = (ROW, TIME, PROBES, STORED)


@dataclass(frozen=True, slots=True)
class PackedInput:
    """The rows and columns of a stream that one input needs.

    `predicates`, tested in this order, or a column of flags that the JVM computes (`flag`), select the rows. Without
    `keys`, rows with null keys are selected too: an input with a ROWS window counts all rows.

    Packing never raises an error of the query. It cannot tell which rows are late, and late rows must not raise. A row
    on which a predicate, a key or an operand raises is sent, and its bucket raises the error unless the row is late.
    """

    number: int
    columns: tuple[str, ...]
    keys: tuple[tuple[int, Expr], ...]
    predicates: tuple[Expr, ...] = ()
    operands: tuple[Expr, ...] = ()
    flag: str | None = None

    def names_read(self) -> list[str]:
        exprs = (*(key for _, key in self.keys), *self.operands, *self.predicates)
        return [*self.columns, *(column.name for expr in exprs for column in columns_of(expr))]


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs the rows of one stream for all inputs that read it.

    `labels` are the buckets by cell. Shed rows and rows that no input selects are not sent. Only their times are,
    because the ledger separates late rows from others. The drop box reads the columns `identity`, or a flag from the
    JVM. If it changes from batch to batch (`planned`), it reads row hashes from the JVM, and a task packs with the
    packer of its batch (`for_batch`).
    """

    stream: int
    name: str
    time: str
    inputs: tuple[PackedInput, ...]
    grid: BucketGrid
    labels: tuple[int, ...]
    box: DropBox | None = None
    identity: tuple[str, ...] = ()
    box_flag: str | None = None
    planned: PlannedDrops | None = None
    hashes: str | None = None
    unit: str | None = None  # of integer times
    roles: RoleSampler | None = None  # rows carry flags whether they probe and are stored
    with_hidden: bool = False  # rows carry their identity and time, for estimates of aggregates over shed rows

    def for_batch(self, batch: int) -> Packer:
        """Return the packer of a batch for one of its tasks, with the drop box of that batch."""
        return self if self.planned is None else replace(self, box=self.planned.box_at(batch), planned=None)

    def pack(self, tables: Iterable[pa.Table], round_number: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the packets of all rows that one task reads of the stream. The clock comes last."""
        start = time.perf_counter_ns()
        arrived, oldest, newest = 0, [], []
        for table in _gather_chunks(tables, min(CHUNK_BYTES, MAX_BLOB_BYTES * self.grid.cells)):
            times = extract_event_times_us(self.name, table, self.time, self.unit)
            arrived += times.size
            oldest.append(int(times.min()))
            newest.append(int(times.max()))
            yield from encode_packets(self._pack_rows(table, times, round_number))
        spent_us = (time.perf_counter_ns() - start) // 1000
        first_us, last_us = min(oldest, default=0), max(newest, default=0)
        yield from encode_packets(
            Packet(label, round_number, CLOCK, self.stream, arrived, first_us, last_us, 0 if cell else spent_us)
            for cell, label in enumerate(self.labels)
        )

    def names_read(self) -> list[str]:
        """List the columns of the stream that packing needs.

        Columns of the row identity are among them only if rows may be shed by them.
        """
        read = [column for each in self.inputs for column in each.names_read() if column not in _HIDDEN]
        is_flagged = self.with_hidden or self.roles is not None
        identity = self.identity if is_flagged or (self.hashes is None and self._box().is_dropping) else ()
        return list(dict.fromkeys([self.time, *read, *identity]))

    def _pack_rows(self, table: pa.Table, times: Int64s, round_number: int) -> Iterator[Packet]:
        batch = table.combine_chunks()
        if self.roles is None:
            kept = self._select_kept(batch)
        else:
            batch, with_role = _flag_roles(self.roles, batch, self.identity)
            kept = np.ones_like(with_role) if self.roles.counts_all else with_role
            if self.roles.counts_all and not np.all(with_role):
                yield self._pack_times(WITHOUT_ROLE, times[~with_role], round_number)
        if self.with_hidden:
            batch = add_hidden_columns(InputBatch(batch, times), self.identity).table
        if not np.all(kept):
            yield self._pack_times(SHED, times[~kept], round_number)
        for place, each in enumerate(self.inputs):
            selected = _select_rows(each, batch, times, kept)
            for kind, cell, part in selected.by_cell(self.grid):
                for piece in slice_by_bytes(part):
                    blob = encode_table_to_buffer(downcast_integers(piece))
                    for offset in self.grid.copies(each.number):
                        yield Packet(
                            self.labels[cell + offset], round_number, kind, each.number, piece.num_rows, blob=blob
                        )
            if place == 0 and selected.rows.size < np.count_nonzero(kept):
                unselected = kept.copy()
                unselected[selected.rows] = False
                yield self._pack_times(UNSELECTED, times[unselected], round_number)

    def _select_kept(self, table: pa.Table) -> NDArray[np.bool_]:
        if self.box_flag is not None:
            return _read_flags(table, self.box_flag)
        box = self._box()
        if self.hashes is not None:
            return box.select_kept_hashes(_one_array(table, self.hashes).to_numpy())
        return (
            box.select_kept(table.select(list(self.identity))) if box.is_dropping else np.ones(table.num_rows, np.bool_)
        )

    def _box(self) -> DropBox:
        if self.planned is not None:
            raise InternalError("a packer with planned drops packs for one batch")
        return self.box or DropBox(self.name)

    def _pack_times(self, kind: int, times: Int64s, round_number: int) -> Packet:
        return Packet(
            self.labels[0],
            round_number,
            kind,
            self.stream,
            times.size,
            blob=encode_table_to_buffer(pa.table({TIME: pa.array(times)})),
        )


def _flag_roles(roles: RoleSampler, table: pa.Table, identity: tuple[str, ...]) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Return the rows with a flag per role, and which of them have a role."""
    identified = table.select(list(identity))
    probes, stored = roles.probe.select_kept(identified), roles.window.select_kept(identified)
    flagged = table.append_column(PROBES, pa.array(probes)).append_column(STORED, pa.array(stored))
    return flagged, probes | stored


def _select_rows(source: PackedInput, table: pa.Table, times: Int64s, kept: NDArray[np.bool_]) -> _SelectedRows:
    """Select the rows of a chunk that an input needs, out of those that are not shed."""
    rows = np.flatnonzero(kept if source.flag is None else kept & _read_flags(table, source.flag))
    selected = maybe_true(source.predicates, _column_reader(table, rows), rows.size)
    rows = rows[selected.keep]
    columns = _column_reader(table, rows)
    raising, without_key = np.zeros(rows.size, np.bool_), np.zeros(rows.size, np.bool_)
    for _, key in source.keys:
        values, errs = evaluate_or_null(key, columns, rows.size)
        raising |= errs
        if values.null_count:
            without_key |= np.asarray(values.is_null().to_numpy(zero_copy_only=False), np.bool_)
    for operand in (*source.operands, *selected.raised):
        raising |= evaluate_or_null(operand, columns, rows.size)[1]
    keep = raising | ~without_key
    return _SelectedRows(source, table, times, rows[keep], raising[keep])


@dataclass(frozen=True)
class _SelectedRows:
    """Rows of a chunk that one input selects, and on which of them an expression raises."""

    source: PackedInput
    table: pa.Table
    times: Int64s
    rows: Int64s
    raising: NDArray[np.bool_]

    def by_cell(self, grid: BucketGrid) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield the rows by the first cell they go to, each with its kind of packet.

        Rows whose bounds overlap several ranges of a value come once per range, as copies in all but the first.
        """
        payload = self.table.select(list(self.source.columns))
        all_selected = self.rows.size == self.times.size
        if not any(self.source.number in axis.members for axis in grid.axes):
            rows = payload if all_selected else payload.take(self.rows)
            if rows.num_rows:
                yield ROWS, 0, rows
            return
        cells = self._cells(grid)
        yield from self._slice_by_cell(ROWS, payload, None if all_selected else self.rows, cells)
        axis = grid.range_axis
        if axis is not None and axis.ranges is not None and axis.ranges.spread == self.source.number:
            stride = grid.strides()[grid.axes.index(axis)]
            copied, copy_cells = self._copies_over_ranges(axis.ranges, stride, cells)
            yield from self._slice_by_cell(ROW_COPIES, payload, self.rows[copied], copy_cells)

    def _slice_by_cell(
        self, kind: int, payload: pa.Table, rows: Int64s | None, cells: Int64s
    ) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield the rows of each cell; `rows` are their places in the payload, None for all of them."""
        order = np.argsort(cells.astype(np.int16) if cells.max(initial=0) < 2**15 else cells, kind="stable")
        sorted_rows = payload.take(order if rows is None else rows[order])
        counts = np.bincount(cells)
        starts = np.concatenate([[0], np.cumsum(counts)])
        for cell in np.flatnonzero(counts).tolist():
            yield kind, cell, sorted_rows.slice(int(starts[cell]), int(counts[cell]))

    def _copies_over_ranges(self, ranges: ValueRanges, stride: int, cells: Int64s) -> tuple[Int64s, Int64s]:
        """Return the rows, by their number among the selected ones, that have further ranges, and the cells of these.

        `cells` are the cells of their first ranges.
        """
        sound = np.flatnonzero(~self.raising)
        rows = self.rows[sound]
        first, last = ranges.spread_over(_column_reader(self.table, rows), rows.size)
        further = last - first
        copied = np.repeat(np.arange(sound.size), further)
        starts = np.repeat(np.cumsum(further) - further, further)
        steps = np.arange(copied.size) - starts + 1
        return sound[copied], cells[sound[copied]] + stride * steps

    def _cells(self, grid: BucketGrid) -> Int64s:
        """Return the first cell of each row. Rows on which an expression raises go to cell 0: any bucket may raise."""
        sound = self.rows[~self.raising] if self.raising.any() else self.rows
        placed = np.zeros(sound.size, np.int64)
        for axis, stride in zip(grid.axes, grid.strides(), strict=True):
            if self.source.number in axis.members:
                placed += stride * self._coordinates(axis, sound)
        if sound.size == self.rows.size:
            return placed
        cells = np.zeros(self.rows.size, np.int64)
        cells[~self.raising] = placed
        return cells

    def _coordinates(self, axis: Axis, rows: Int64s) -> Int64s:
        if axis.ranges is None:
            return axis.coordinates(self._codes(axis, rows))
        read = _column_reader(self.table, rows)
        if axis.ranges.placed == self.source.number:
            return axis.ranges.place(read, rows.size)
        return axis.ranges.spread_over(read, rows.size)[0]

    def _codes(self, axis: Axis, rows: Int64s) -> Int64s:
        if axis.keys:
            return combine_row_codes([self._values(key, rows) for key in axis.keys], rows.size)
        if axis.key_class is None:
            return self._identity(rows)
        return encode_keys(self._values(dict(self.source.keys)[axis.key_class], rows))

    def _values(self, expr: Expr, rows: Int64s) -> pa.Array[Any]:
        return evaluate(expr, _column_reader(self.table, rows), rows.size)

    def _identity(self, rows: Int64s) -> Int64s:
        """Return a code of each row's time and values, so that a repeated task places every row in the same cell."""
        codes = [self.times[rows]]
        for name in self.source.columns:
            column = _one_array(self.table, name)
            if pa.types.is_integer(column.type) or pa.types.is_string(column.type) or pa.types.is_floating(column.type):
                codes.append(encode_keys(column.fill_null("" if pa.types.is_string(column.type) else 0).take(rows)))
        return reduce(combine_codes, codes)


def _column_reader(table: pa.Table, rows: Int64s) -> Callable[[Column], pa.Array[Any]]:
    """Return a function that reads columns of some rows of a table and gathers each column once."""
    gathered: dict[str, pa.Array[Any]] = {}

    def column(requested: Column) -> pa.Array[Any]:
        if requested.name not in gathered:
            values = _one_array(table, requested.name)
            gathered[requested.name] = values if rows.size == len(values) else values.take(rows)
        return gathered[requested.name]

    return column


def _gather_chunks(tables: Iterable[pa.Table], max_bytes: int) -> Iterator[pa.Table]:
    gathered: list[pa.Table] = []
    size = 0
    for piece in (piece for table in tables for piece in slice_by_bytes(table, max_bytes)):
        gathered.append(piece)
        size += piece.nbytes
        if size >= max_bytes:
            yield pa.concat_tables(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.concat_tables(gathered)


def _one_array(table: pa.Table, name: str) -> pa.Array[Any]:
    column = table.column(name)
    # The stubs type a chunk as a ChunkedArray.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[return-value]


def _read_flags(table: pa.Table, name: str) -> NDArray[np.bool_]:
    column = _one_array(table, name)
    if not pa.types.is_boolean(column.type):
        raise InternalError(f"a flag has type {column.type}")
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)

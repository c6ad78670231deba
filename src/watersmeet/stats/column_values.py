"""Distinct values of a column of any Arrow type with their counts, as integers or short text for sketches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import is_bytes_view, is_text_view
from watersmeet.errors import InputError, listing

_LONGEST_ITEM = 64


@dataclass(frozen=True, slots=True)
class ValueCounts:
    """Count of each value, without nulls. Two values are equal if a join treats them so: one NaN, one zero."""

    values: pa.Array[Any]
    counts: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """Rows that have a value."""
        return int(self.counts.sum())

    def items(self) -> list[int] | list[str]:
        """Return the values as integers or text, distinct for distinct values; text over 64 characters as its hash."""
        kind = self.values.type
        if pa.types.is_integer(kind):
            found: list[int] = self.values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).tolist()
            return found
        if pa.types.is_decimal(kind):
            return [str(value) for value in self.values.cast(pa.string()).to_pylist()]
        return [_short(value) for value in self.values.to_pylist()]


def value_counts(column: pa.ChunkedArray[Any], name: str = "", chosen: NDArray[np.int64] | None = None) -> ValueCounts:
    """Count the values of a column, or of the chosen rows of it.

    >>> counted = value_counts(pa.chunked_array([[0.0, None], [-0.0, float("nan")]]))
    >>> sorted(counted.counts.tolist()), counted.rows
    ([1, 2], 3)

    """
    plain = _decode_storage(column, name)
    counted = pc.value_counts(_to_countable(plain if chosen is None else plain.take(chosen)).drop_null())
    return ValueCounts(counted.field(0), np.asarray(counted.field(1).to_numpy(zero_copy_only=False), np.int64))


def require_table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return the rows as a table; refuse any other type."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        raise InputError(f"statistics need a pyarrow Table or RecordBatch, not a {type(rows).__name__}")
    return rows


def require_column(table: pa.Table, name: str) -> pa.ChunkedArray[Any]:
    """Return the column of this name; refuse a missing or ambiguous one."""
    if table.schema.names.count(name) != 1:
        raise InputError(
            f'there is no single column "{name}" to measure', hint=f"existing columns: {listing(table.schema.names)}"
        )
    return table.column(name)


def require_times(times_us: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return the event times; refuse any that are not one integer per row."""
    times = np.asarray(times_us)
    if times.shape != (rows,) or (rows and times.dtype.kind not in "iu"):
        raise InputError(
            f"{rows} rows need as many event times in integer microseconds, got {times.dtype} of shape {times.shape}"
        )
    return times


def draw_sample_rows(rows: int, max_rows: int, seed: int) -> NDArray[np.int64] | None:
    """Draw `max_rows` row numbers, one at random from each of as many equal ranges; None if there are no more rows.

    One row per range represents a stream that changes over time. The random position in a range keeps the sample from
    following the period of periodic data. The same seed gives the same rows.
    """
    if rows <= max_rows:
        return None
    edges = np.arange(max_rows + 1, dtype=np.int64) * rows // max_rows
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:], dtype=np.int64)


def _decode_storage(column: pa.ChunkedArray[Any], name: str) -> pa.ChunkedArray[Any]:
    """Return the same values without run ends, extensions and views, from which Arrow cannot take single rows."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        decoded = [pc.run_end_decode(chunk) for chunk in column.chunks]  # type: ignore[attr-defined]  # not in the stubs
        return _decode_storage(pa.chunked_array(decoded, kind.value_type), name)
    if isinstance(kind, pa.BaseExtensionType):
        stored = [cast("pa.ExtensionArray[Any]", chunk).storage for chunk in column.chunks]
        # The stubs list concrete types only.
        return _decode_storage(pa.chunked_array(stored, cast("Any", kind.storage_type)), name)
    if pa.types.is_nested(kind):
        raise InputError(f'column "{name}" is {kind}, which has no statistics', hint="measure columns of single values")
    if is_text_view(kind):
        return column.cast(pa.large_string())
    if is_bytes_view(kind):
        return column.cast(pa.large_binary())
    return column


def _to_countable(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """Convert to a type that Arrow counts and sketches accept: times, booleans and floats become integers."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _to_countable(column.cast(kind.value_type))
    if pa.types.is_floating(kind):
        return pa.chunked_array([_float_bits(column.drop_null())])
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.chunked_array([chunk.view(whole) for chunk in column.chunks], whole)
    return column


def _float_bits(values: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return the bits of the numbers, with one NaN and one zero."""
    numbers = values.cast(pa.float64()).to_numpy() + 0.0  # −0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.float64("nan")
    return pa.array(numbers.view(np.int64))


def _short(value: Any) -> str:
    """Return text with a prefix that separates text from hashes; DataSketches accepts no empty text."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if len(text) <= _LONGEST_ITEM:
        return "=" + text
    return "#" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

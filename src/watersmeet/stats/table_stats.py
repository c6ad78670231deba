"""Statistics of a finite table: exact if it is small, from a sample if it is large.

The distinct values of a column, of any Arrow type, are counted as integers or short text. The first-order jackknife
estimates distinct values from a sample. Of N rows, n are sampled; d values occur in the sample, f of them once:

    distinct = d / (1 − (1 − n/N) · f/n)

This is d if every row was sampled, N if every sampled row has its own value, and close if values are about equally
frequent. A few very frequent values among many rare ones make it too low.

References: Haas, Stokes, "Estimating the Number of Classes in a Finite Population", 1998, D_uj1, the one that
ANALYZE of PostgreSQL uses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.algebra.arrow_types import is_bytes_view, is_text_view
from watersmeet.errors import InputError, listing
from watersmeet.stats.stream_stats import Estimate, Provenance, StreamStats, assume_rate, assume_row_bytes

EXACT_ROWS = 200_000
_LONGEST_ITEM = 64


def measure_table(
    table: pa.Table | pa.RecordBatch,
    times_us: NDArray[np.int64] | None,
    columns: Sequence[str],
    max_rows: int = EXACT_ROWS,
) -> StreamStats:
    """Measure the statistics of a finite table; `times_us` is None for a relation.

    Distinct values are counted in at most `max_rows` rows.

    >>> table, times_us = pa.table({"item": ["pen", "pen", "ink", None]}), np.array([0, 1, 2, 4]) * 1_000_000
    >>> found = measure_table(table, times_us, ["item"])
    >>> print(found.rows_per_s, found.distinct["item"], found.hot_share["item"], found.null_share["item"], sep=", ")
    1 (measured), 2 (measured), 0.6667 (measured), 0.25 (measured)

    """
    if max_rows < 1:
        raise InputError(f"a sample needs at least one row, got {max_rows}")
    rows = require_table(table)
    chosen = draw_sample_rows(rows.num_rows, max_rows, seed=0)
    column_stats = {name: _measure_column(require_column(rows, name), chosen, name) for name in columns}
    found = {name: each for name, each in column_stats.items() if each is not None}
    if times_us is None:
        rate, span = assume_rate("a relation has no rate"), None
    else:
        bounds = _time_range_us(require_times(times_us, rows.num_rows))
        rate, span = measure_rate(rows.num_rows, *bounds), measure_span(rows.num_rows, *bounds)
    return StreamStats(
        rows_per_s=rate,
        row_bytes=measure_row_bytes(rows.num_rows, rows.nbytes),
        distinct={name: each.distinct for name, each in found.items() if each.distinct is not None},
        hot_share={name: each.hot_share for name, each in found.items() if each.hot_share is not None},
        span_s=span,
        rows=Estimate(rows.num_rows, Provenance.MEASURED),
        null_share={name: each.null_share for name, each in found.items()},
    )


def estimate_distinct(population: float, sampled: int, seen: int, seen_once: int) -> float:
    """Estimate the distinct values among `population` rows from those among `sampled` of them, by the jackknife.

    >>> estimate_distinct(1000, 100, 100, 100), estimate_distinct(1000, 100, 20, 0)
    (1000.0, 20.0)

    """
    unseen = (1 - sampled / population) * seen_once / sampled
    return float(min(population, seen / (1 - unseen)))


@dataclass(frozen=True, slots=True)
class _ColumnStats:
    """Statistics of a column. If all its values are null, only the share of nulls is known."""

    null_share: Estimate
    distinct: Estimate | None = None
    hot_share: Estimate | None = None


def _measure_column(column: pa.ChunkedArray[Any], chosen: NDArray[np.int64] | None, name: str) -> _ColumnStats | None:
    """Measure a column; return None without rows."""
    counts = value_counts(column, name, chosen)
    sampled_rows = len(column) if chosen is None else len(chosen)
    if not sampled_rows:
        return None
    note = "" if chosen is None else f"from a sample of {sampled_rows} rows"
    null_share = Estimate(1 - counts.rows / sampled_rows, Provenance.MEASURED, note)
    if not counts.rows:
        return _ColumnStats(null_share)
    once = int(np.count_nonzero(counts.counts == 1))
    distinct = estimate_distinct(counts.rows * (len(column) / sampled_rows), counts.rows, len(counts.values), once)
    hot = _measure_hot_share(counts.counts, distinct)
    return _ColumnStats(
        null_share, Estimate(distinct, Provenance.MEASURED, note), Estimate(hot, Provenance.MEASURED, note)
    )


def _measure_hot_share(counts: NDArray[np.int64], distinct: float) -> float:
    """Measure the share of the most frequent value.

    A value that was seen once gives no share. Then the share is only known to be at least 1/distinct.
    """
    most = int(counts.max())
    return max(most / int(counts.sum()) if most > 1 else 0.0, 1 / distinct)


def _time_range_us(times_us: NDArray[np.int64]) -> tuple[int, int]:
    return (int(times_us.min()), int(times_us.max())) if len(times_us) else (0, 0)


US_PER_S = 1_000_000


def measure_rate(rows: int, first_us: int, last_us: int) -> Estimate:
    """Measure rows per second of event time; assume a rate if the rows span no time.

    >>> print(measure_rate(10, 0, 2_000_000), measure_rate(10, 5, 5), sep=", ")
    5 (measured), 1000 (assumed)

    """
    if rows < 2:
        return assume_rate("fewer than two rows were read")
    if last_us <= first_us:
        return assume_rate("all rows have the same time")
    return Estimate(rows / ((last_us - first_us) / US_PER_S), Provenance.MEASURED)


def measure_span(rows: int, first_us: int, last_us: int) -> Estimate | None:
    """Measure the seconds of event time from the first row to the last; None without rows."""
    return Estimate((last_us - first_us) / US_PER_S, Provenance.MEASURED) if rows else None


def measure_row_bytes(rows: int, total_bytes: int) -> Estimate:
    """Measure the bytes per row in Arrow's layout, at least one."""
    if not rows:
        return assume_row_bytes("no rows were read")
    return Estimate(max(1.0, total_bytes / rows), Provenance.MEASURED)


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

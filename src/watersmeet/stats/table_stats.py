"""Statistics of a finite table: exact if it is small, from a sample if it is large.

The first-order jackknife estimates distinct values from a sample. Of N rows, n are sampled; d values occur in the
sample, f of them once:

    distinct = d / (1 − (1 − n/N) · f/n)

This is d if every row was sampled, N if every sampled row has its own value, and close if values are about equally
frequent. A few very frequent values among many rare ones make it too low.

References: Haas, Stokes, "Estimating the Number of Classes in a Finite Population", 1998, D_uj1, the one PostgreSQL's
ANALYZE uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import InputError
from watersmeet.stats.column_values import draw_sample_rows, require_column, require_table, require_times, value_counts
from watersmeet.stats.estimate import Estimate, Provenance
from watersmeet.stats.stream_stats import StreamStats, assume_rate, assume_row_bytes

EXACT_ROWS = 200_000


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

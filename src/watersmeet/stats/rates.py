"""Rates and row sizes of rows that were seen, with no division by zero."""

from __future__ import annotations

from watersmeet.stats.estimate import Estimate, Provenance
from watersmeet.stats.stream_stats import unknown_rate, unknown_row_bytes

US_PER_S = 1_000_000


def rate_of(rows: int, first_us: int, last_us: int) -> Estimate:
    """Rows per second of event time; assumed where the rows span no time.

    >>> print(rate_of(10, 0, 2_000_000), rate_of(10, 5, 5), sep=", ")
    5 (measured), 1000 (assumed)
    """
    if rows < 2:
        return unknown_rate("fewer than two rows were seen")
    if last_us <= first_us:
        return unknown_rate("all rows have the same time")
    return Estimate(rows / ((last_us - first_us) / US_PER_S), Provenance.MEASURED)


def span_of(rows: int, first_us: int, last_us: int) -> Estimate | None:
    """Seconds of event time from the first row to the last; None without rows."""
    return Estimate((last_us - first_us) / US_PER_S, Provenance.MEASURED) if rows else None


def row_bytes_of(rows: int, total_bytes: int) -> Estimate:
    """Bytes per row in Arrow's layout, at least one."""
    if not rows:
        return unknown_row_bytes("no rows were seen")
    return Estimate(max(1.0, total_bytes / rows), Provenance.MEASURED)

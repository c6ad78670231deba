"""Growth of our time per row with the rows in the windows, the number of streams, and the matches per row.

One quantity grows at a time. Keys are chosen so that a probe finds as many rows as before, except when the matches
grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from watersmeet_lab.bench.duckdb_comparison import embedded_seconds_per_row
from watersmeet_lab.bench.join_workloads import MIN_BATCHES, CommonKeyStreams

#: Rows of both streams together in a batch of the large-window benchmark.
BATCH_ROWS = 1_000_000
LARGE_WINDOW_S = 100


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """Time per row at one size of `dimension`: streams, matches or rows in windows.

    `over_first` is relative to the smallest size; `allowed` is its upper limit.
    """

    dimension: str
    engine: str
    size: int
    seconds_per_row: float
    over_first: float
    allowed: float

    def to_dict(self) -> dict[str, Any]:
        return {"workload": "growth", **asdict(self)}

    def __str__(self) -> str:
        return (
            f"{self.dimension:<18} {self.engine:<9} {self.size:>12,}  {self.seconds_per_row * 1e9:9.1f} ns per row"
            f"  {self.over_first:6.2f} times the smallest (limit {self.allowed:.2f})"
        )


def large_window_streams(rows_in_state: int, seed: int = 0) -> CommonKeyStreams:
    """Return two streams whose full windows hold `rows_in_state` rows together; a probe finds one."""
    window_rows = rows_in_state // 2
    # Stream five windows, but at most five batches; in any case fill the window and go on for a fifth of it.
    rows = max(window_rows * 6 // 5, min(5 * window_rows, 5 * BATCH_ROWS // 2))
    return CommonKeyStreams(
        rows=rows,
        keys=window_rows,
        rows_per_s=max(1, window_rows // LARGE_WINDOW_S),
        window_s=LARGE_WINDOW_S,
        seed=seed,
    )


def batch_count(workload: CommonKeyStreams) -> int:
    """Return the number of batches of a workload with large windows."""
    return max(MIN_BATCHES, workload.stream_count * workload.rows // BATCH_ROWS)


def measure_growth(
    scale: float, per_row_on_spark: Callable[[CommonKeyStreams], float] | None = None
) -> Iterator[GrowthPoint]:
    """Measure growth with the streams, with the matches per row and with the rows in the windows.

    All three are measured on the embedded engine. If `per_row_on_spark` is given, growth with the streams and with the
    windows is measured on Spark too: there, windows are state that is kept between batches.
    """
    embedded_seconds_per_row(CommonKeyStreams(rows=2_000, keys=1_000))  # builds the kernels
    streams = {n: _stream_growth_workload(n, scale) for n in range(2, 7)}
    yield from _measure_sizes("streams", "embedded", streams, embedded_seconds_per_row, _other_streams)
    matches = {
        n: replace(_stream_growth_workload(2, scale), keys=max(1, _rows_per_stream(scale) // (4 * n)))
        for n in (1, 2, 4, 8, 16)
    }
    yield from _measure_sizes("matches", "embedded", matches, embedded_seconds_per_row, float)
    windows = {
        round(millions * 1_000_000 * scale): large_window_streams(round(millions * 1_000_000 * scale))
        for millions in (1, 5, 20)
    }
    yield from _measure_sizes("rows in windows", "embedded", windows, embedded_seconds_per_row, lambda _: 2.0)
    if per_row_on_spark is not None:
        yield from _measure_sizes("streams", "Spark", streams, per_row_on_spark, _other_streams)
        yield from _measure_sizes("rows in windows", "Spark", windows, per_row_on_spark, lambda _: 2.0)


def _measure_sizes(
    dimension: str,
    engine: str,
    sizes: dict[int, CommonKeyStreams],
    per_row: Callable[[CommonKeyStreams], float],
    allowed: Callable[[int], float],
) -> Iterator[GrowthPoint]:
    first = None
    for size, workload in sizes.items():
        seconds = per_row(workload)
        first = first or seconds
        yield GrowthPoint(dimension, engine, size, seconds, seconds / first, allowed(size))


def _other_streams(streams: int) -> float:
    """Return the number of streams that a row must probe. The time per row may grow linearly with it."""
    return float(streams - 1)


def _stream_growth_workload(streams: int, scale: float) -> CommonKeyStreams:
    """Return streams with a quarter of their rows in the window; a probe finds one row in each of the other streams."""
    rows = _rows_per_stream(scale)
    return CommonKeyStreams(stream_count=streams, rows=rows, keys=rows // 4, rows_per_s=max(1, rows // 40), window_s=10)


def _rows_per_stream(scale: float) -> int:
    return max(2_000, round(1_000_000 * scale))

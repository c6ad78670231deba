"""Finite data in pieces of time, so that a long run shows how far it is and needs memory for its windows, not for all
its matches at once.

The pieces go by event time over all streams together, so no row of a later piece is before the watermark an earlier one
leaves: nothing becomes late, and the rows that come out are those of a single batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from watersmeet.sources.declarations import Stream, event_times_us

#: Rows of all streams together in one piece, about.
PIECE_ROWS = 1 << 19


def pieces(
    tables: Mapping[str, pa.Table], sources: Mapping[str, Stream], piece_rows: int = PIECE_ROWS
) -> Iterator[dict[str, pa.Table]]:
    """The tables cut at common instants.

    >>> at = pa.table({"ts": pa.array([3, 1, 2, 9], pa.int64())})
    >>> from watersmeet.runtime.sources import stream
    >>> [piece["a"].column("ts").to_pylist() for piece in pieces({"a": at}, {"a": stream(at, time="ts")}, piece_rows=2)]
    [[1, 2], [3, 9]]
    """
    total = sum(table.num_rows for table in tables.values())
    if total <= piece_rows:
        yield dict(tables)
        return
    times = {
        name: event_times_us(name, table, sources[name].time, sources[name].unit) for name, table in tables.items()
    }
    orders = {name: np.argsort(each, kind="stable") for name, each in times.items()}
    cuts = _cuts(np.concatenate(list(times.values())), total // piece_rows + (total % piece_rows > 0))
    bounds = {name: np.searchsorted(each[orders[name]], cuts) for name, each in times.items()}
    for k in range(cuts.size - 1):
        yield {
            name: table.take(pa.array(orders[name][bounds[name][k] : bounds[name][k + 1]]))
            for name, table in tables.items()
        }


def _cuts(times: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Instants with about as many rows between any two of them, the first before all rows and the last behind all."""
    places = np.linspace(0, times.size, count + 1).astype(np.int64)[1:-1]
    inner = np.unique(np.partition(times, places)[places]) if places.size else np.empty(0, np.int64)
    first, last = int(times.min()), int(times.max()) + 1
    return np.unique(np.concatenate([[first], inner, [last]])).astype(np.int64)

"""Joins by ranges of values, against DuckDB: bands, two inequalities, interval overlap, and a key with a band.

Streams arrive at 1,000 rows per second, or at 3,333 in the large workload. Windows are five seconds long. Values are
integers below 100,000. `y` is the end of an interval that starts at `x`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet_lab.bench.join_workloads import MIN_BATCHES, SECOND_US, START_US, JoinWorkload
from watersmeet_lab.bench.portable_joins import PortableJoin, SlidingWindow, ValueBand

_VALUES = 100_000
_KEYS = 100
_LONGEST_INTERVAL = 20
_ROWS, _LARGE_ROWS = 60_000, 2_000_000


def _random_table(rows: int, seconds: int, name: str) -> pa.Table:
    rng = np.random.default_rng([7, ord(name)])
    start = rng.integers(0, _VALUES, rows)
    columns = {
        "ts": START_US + np.sort(rng.integers(0, seconds * SECOND_US, rows)),
        "k": rng.integers(0, _KEYS, rows),
        "x": start,
        "y": start + rng.integers(0, _LONGEST_INTERVAL, rows),
        "id": np.arange(rows),
    }
    return pa.table({column: pa.array(values) for column, values in columns.items()})


def range_workload(
    name: str,
    rows: int,
    seconds: int,
    scale: float,
    *,
    equal: tuple[tuple[str, str], ...] = (),
    where: tuple[str, ...] = (),
    band: ValueBand | None = None,
) -> JoinWorkload:
    """Build a join of two streams by ranges; a smaller scale has fewer rows at the same rate."""
    rows, seconds = max(100, round(rows * scale)), max(1, round(seconds * scale))
    join = PortableJoin(
        {"a": "a", "b": "b"},
        SlidingWindow(5 * SECOND_US),
        (("a.id", "a_id"), ("b.id", "b_id")),
        equal=equal,
        where=where,
        band=band,
    )
    return JoinWorkload(name, join, partial(_random_table, rows, seconds), MIN_BATCHES)


_BAND = ValueBand("a.x", "b.x", 6)  # ABS(a.x - b.x) <= 5

RANGE_WORKLOADS: dict[str, Callable[[float], JoinWorkload]] = {
    "band": partial(range_workload, "band", _ROWS, 60, band=_BAND),
    "band-large": partial(range_workload, "band-large", _LARGE_ROWS, 600, band=_BAND),
    "two-inequalities": partial(range_workload, "two-inequalities", _ROWS, 60, where=("a.x < b.x", "a.y > b.y")),
    "interval-overlap": partial(range_workload, "interval-overlap", _ROWS, 60, where=("a.x <= b.y", "b.x <= a.y")),
    "equality-and-band": partial(
        range_workload,
        "equality-and-band",
        _ROWS,
        60,
        equal=(("a.k", "b.k"),),
        band=ValueBand("a.x", "b.x", 501),
    ),
}

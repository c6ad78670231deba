"""Too little of something, run for real: each direction of the join by itself, with drop boxes that let so many probe and so many stay.

Rows of A probe what is kept of window B: the directed join "B first, then A", with a drop box on A for the probes that are served and one
on B for the rows there is memory for. The other direction likewise; the output is the sum of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.cost.kang_limited import LimitedJoin, Pair

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of each stream's rows that probe, and the share of each window that is kept."""

    probing: Pair
    kept: Pair


def shares_of(join: LimitedJoin, probes_per_s: Pair, window_rows: Pair) -> Shares:
    """
    >>> shares_of(LimitedJoin(Pair(800, 200), Pair(100, 200), 0.01), Pair(100, 0), Pair(100, 200)).probing
    Pair(a=0.125, b=0.0)
    """
    probing = Pair(probes_per_s.a / join.rows_per_s.a, probes_per_s.b / join.rows_per_s.b)
    return Shares(probing, Pair(window_rows.a / join.window_rows.a, window_rows.b / join.window_rows.b))


def output_rate(join: LimitedJoin, shares: Shares, seconds: int) -> float:
    """Rows per second that our engine puts out, in so many seconds after the windows were full."""
    filled_us = max(_window_us(join, at) for at in (0, 1))
    span_us = filled_us + seconds * _SECOND_US
    streams = {name: _stream(join, at, span_us) for at, name in enumerate("ab")}
    from_a = _directed(join, streams, filled_us, first="b", then="a", keep=shares.kept.b, probe=shares.probing.a)
    from_b = _directed(join, streams, filled_us, first="a", then="b", keep=shares.kept.a, probe=shares.probing.b)
    return (from_a + from_b) / seconds


def _directed(join: LimitedJoin, streams: dict[str, pa.Table], since_us: int, *, first: str, then: str, keep: float, probe: float) -> int:
    """Pairs whose second row arrives from `since_us` on, while its partner, if kept, is in its window."""
    window_us = _window_us(join, "ab".index(first))
    query = f"SELECT {then}.ts AS found FROM a, b DWINDOW ({first}, {then}) = {window_us} MICROSECONDS WHERE a.k = b.k"
    plan = wm.plan(drop={first: 1 - keep, then: 1 - probe})
    found = wm.collect(query, {name: wm.stream(table, time="ts") for name, table in streams.items()}, plan)
    return int(np.count_nonzero(found["found"].to_numpy() >= since_us))


def _window_us(join: LimitedJoin, at: int) -> int:
    return round(join.window_rows[at] / join.rows_per_s[at] * _SECOND_US)


def _stream(join: LimitedJoin, at: int, span_us: int) -> pa.Table:
    rng = np.random.default_rng(at)
    rows = round(join.rows_per_s[at] * span_us / _SECOND_US)
    times = np.sort(rng.integers(0, span_us, rows))
    return pa.table({"ts": times, "k": rng.integers(0, round(1 / join.selectivity), rows), "id": np.arange(rows)})

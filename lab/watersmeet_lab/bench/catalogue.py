"""Workloads on which all systems are measured, by name.

A scale below 1 shortens the streams, for a quick look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from watersmeet_lab.bench.growth import batch_count, large_window_streams
from watersmeet_lab.bench.join_workloads import (
    MIN_BATCHES,
    SECOND_US,
    CommonKeyStreams,
    JoinWorkload,
    RandomStream,
    stream_tables,
)
from watersmeet_lab.bench.nexmark import QUERIES, nexmark_workload
from watersmeet_lab.bench.portable_joins import PortableJoin, SlidingWindow, ValueBand
from watersmeet_lab.bench.range_workloads import RANGE_WORKLOADS

#: Largest state, in rows, at which Spark and Flink run, on half of the machine's memory.
MAX_PEER_STATE_ROWS = 2_000_000


def common_key_workload(name: str, streams: int, rows: int, scale: float) -> JoinWorkload:
    """Build a join of streams with 500,000 keys over windows of ten seconds: about one match per probe.

    Each batch has 500,000 rows of every stream.
    """
    rows, batches = _scale_rows_and_batches(rows, rows // 500_000, scale)
    return CommonKeyStreams(stream_count=streams, rows=rows, keys=min(500_000, rows)).workload(name, batches)


def chain_workload(scale: float) -> JoinWorkload:
    """Build a chain of three streams; each pair joins on its own key."""
    rows, batches = _scale_rows_and_batches(2_000_000, 5, scale)
    keys = min(200_000, rows)
    streams = {
        alias: RandomStream(rows, 20_000, dict.fromkeys(names, keys))
        for alias, names in {"a": "k", "b": "kj", "c": "j"}.items()
    }
    outputs = (
        ("a.k", "k"),
        ("c.j", "j"),
        *((f"{alias}.{name}", f"{alias}_{name}") for alias in "abc" for name in ("ts", "id")),
    )
    equal = (("a.k", "b.k"), ("b.j", "c.j"))
    return JoinWorkload(
        "chain",
        PortableJoin({alias: alias for alias in "abc"}, SlidingWindow(10 * SECOND_US), outputs, equal),
        stream_tables(streams),
        batches,
    )


def hot_key_workload(scale: float) -> JoinWorkload:
    """Build a join in which half of all rows have one key.

    The window is so narrow that a row with the hot key matches about ten others.
    """
    rows, batches = _scale_rows_and_batches(100_000, 5, scale)
    work = CommonKeyStreams(rows=rows, keys=100_000, rows_per_s=1_000, window_us=10_000, hot_share=0.5)
    note = "Spark scans all rows of a key in its state and evicts old ones only between batches, so batches are small"
    return work.workload("hot-key", batches, note)


def theta_band_workload(scale: float) -> JoinWorkload:
    """Build a join without an equality: values closer than a width, over windows of one second."""
    rows, batches = _scale_rows_and_batches(200_000, 5, scale)
    values, width = 1_000_000, 50
    streams = {alias: RandomStream(rows, 10_000, {"x": values}) for alias in "ab"}
    outputs = tuple((f"{alias}.{name}", f"{alias}_{name}") for alias in "ab" for name in ("ts", "x", "id"))
    join = PortableJoin({"a": "a", "b": "b"}, SlidingWindow(SECOND_US), outputs, band=ValueBand("a.x", "b.x", width))
    note = "Spark and Flink need an equality: they join on cells as wide as the band, with one stream copied into three"
    return JoinWorkload("theta-band", join, stream_tables(streams), batches, note=note)


def tiny_batches_workload(scale: float) -> JoinWorkload:
    """Build a join with batches of 2,000 rows, to measure the fixed cost of a batch."""
    batches = max(MIN_BATCHES, round(60 * scale))
    work = CommonKeyStreams(rows=1_000 * batches, keys=10_000, rows_per_s=1_000)
    return work.workload("tiny-batches", batches, "Flink processes rows one by one; its time per row is not measured")


def large_window_workload(scale: float) -> JoinWorkload:
    """Build a join of two streams with 20,000,000 rows in their windows."""
    in_state = max(10_000, round(20_000_000 * scale))
    work = large_window_streams(in_state)
    reason = f"not run with {in_state:,} rows of state; its limit here is {MAX_PEER_STATE_ROWS:,}"
    without = {"spark": reason, "flink": reason} if in_state > MAX_PEER_STATE_ROWS else {}
    return replace(work.workload("large-window", batch_count(work)), excluded_peers=without)


CATALOGUE: dict[str, Callable[[float], JoinWorkload]] = {
    "two-way": partial(common_key_workload, "two-way", 2, 4_000_000),
    "three-way": partial(common_key_workload, "three-way", 3, 2_000_000),
    "five-way": partial(common_key_workload, "five-way", 5, 1_500_000),
    "chain": chain_workload,
    "hot-key": hot_key_workload,
    "theta-band": theta_band_workload,
    "tiny-batches": tiny_batches_workload,
    "large-window": large_window_workload,
    **{f"nexmark-{number}": partial(nexmark_workload, number) for number in QUERIES},
}


#: Workloads for the engine alone, against DuckDB.
DUCKDB_ONLY: dict[str, Callable[[float], JoinWorkload]] = {
    "embedded": partial(common_key_workload, "embedded", 2, 4_000_000),
    "five-way-embedded": partial(common_key_workload, "five-way-embedded", 5, 1_000_000),
    **RANGE_WORKLOADS,
}


def _scale_rows_and_batches(rows: int, batches: int, scale: float) -> tuple[int, int]:
    """Return fewer batches first; below the minimum, return smaller ones."""
    return max(MIN_BATCHES * 10, round(rows * scale)), max(MIN_BATCHES, round(batches * min(1.0, scale)))

"""The workloads on which all systems are measured, by name. A scale below 1 shortens the streams, for a quick look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from watersmeet_lab.bench.growth import batches_of, large_window
from watersmeet_lab.bench.joins import Band, Range, WindowJoin
from watersmeet_lab.bench.nexmark_queries import QUERIES, nexmark
from watersmeet_lab.bench.workloads import FEWEST_BATCHES, SECOND_US, CommonKey, Flow, Workload, flowing

#: Rows in state that they are tried with, on half of the machine's memory.
SPARK_AND_FLINK_HOLD = 2_000_000


def common_key(name: str, streams: int, rows: int, scale: float) -> Workload:
    """Streams of so many rows with 500,000 keys over windows of ten seconds, 500,000 rows of each in a batch: about one
    match per probe.
    """
    rows, batches = _scaled(rows, rows // 500_000, scale)
    return CommonKey(streams=streams, rows=rows, keys=min(500_000, rows)).workload(name, batches)


def chain(scale: float) -> Workload:
    """Three streams, each pair on a key of its own."""
    rows, batches = _scaled(2_000_000, 5, scale)
    keys = min(200_000, rows)
    streams = {
        alias: Flow(rows, 20_000, dict.fromkeys(names, keys))
        for alias, names in {"a": "k", "b": "kj", "c": "j"}.items()
    }
    outputs = (
        ("a.k", "k"),
        ("c.j", "j"),
        *((f"{alias}.{name}", f"{alias}_{name}") for alias in "abc" for name in ("ts", "id")),
    )
    equal = (("a.k", "b.k"), ("b.j", "c.j"))
    return Workload(
        "chain",
        WindowJoin({alias: alias for alias in "abc"}, Range(10 * SECOND_US), outputs, equal),
        flowing(streams),
        batches,
    )


def hot_key(scale: float) -> Workload:
    """Half of all rows have one key; the window is so narrow that a row with it meets about ten others."""
    rows, batches = _scaled(100_000, 5, scale)
    work = CommonKey(rows=rows, keys=100_000, rows_per_s=1_000, window_us=10_000, hot_share=0.5)
    said = "Spark looks through all rows of a key in its state, and drops old ones only between batches: a batch is small for its sake"
    return work.workload("hot-key", batches, said)


def theta_band(scale: float) -> Workload:
    """Two streams with no equality at all: values closer than a width, over windows of a second."""
    rows, batches = _scaled(200_000, 5, scale)
    values, width = 1_000_000, 50
    streams = {alias: Flow(rows, 10_000, {"x": values}) for alias in "ab"}
    outputs = tuple((f"{alias}.{name}", f"{alias}_{name}") for alias in "ab" for name in ("ts", "x", "id"))
    join = WindowJoin({"a": "a", "b": "b"}, Range(SECOND_US), outputs, band=Band("a.x", "b.x", width))
    said = "Spark and Flink join on equality only; they are given cells as wide as the band, and rows of one stream in three of them"
    return Workload("theta-band", join, flowing(streams), batches, said=said)


def tiny_batches(scale: float) -> Workload:
    """Batches of 2,000 rows, for what a batch takes at the least."""
    batches = max(FEWEST_BATCHES, round(60 * scale))
    work = CommonKey(rows=1_000 * batches, keys=10_000, rows_per_s=1_000)
    return work.workload(
        "tiny-batches", batches, "Flink takes rows one by one; how long a row takes is not measured there"
    )


def large_window_join(scale: float) -> Workload:
    """Two streams with 20,000,000 rows in their windows."""
    in_state = max(10_000, round(20_000_000 * scale))
    work = large_window(in_state)
    reason = f"with {in_state:,} rows in its state it was not tried; it is measured up to {SPARK_AND_FLINK_HOLD:,}"
    without = {"spark": reason, "flink": reason} if in_state > SPARK_AND_FLINK_HOLD else {}
    return replace(work.workload("large-window", batches_of(work)), without=without)


CATALOGUE: dict[str, Callable[[float], Workload]] = {
    "two-way": partial(common_key, "two-way", 2, 4_000_000),
    "three-way": partial(common_key, "three-way", 3, 2_000_000),
    "five-way": partial(common_key, "five-way", 5, 1_500_000),
    "chain": chain,
    "hot-key": hot_key,
    "theta-band": theta_band,
    "tiny-batches": tiny_batches,
    "large-window": large_window_join,
    **{f"nexmark-{number}": partial(nexmark, number) for number in QUERIES},
}


#: For a look at nothing but the engine, beside DuckDB.
FINITE: dict[str, Callable[[float], Workload]] = {
    "embedded": partial(common_key, "embedded", 2, 4_000_000),
    "five-way-embedded": partial(common_key, "five-way-embedded", 5, 1_000_000),
}


def _scaled(rows: int, batches: int, scale: float) -> tuple[int, int]:
    """Fewer batches first; below the fewest, smaller ones."""
    return max(FEWEST_BATCHES * 10, round(rows * scale)), max(FEWEST_BATCHES, round(batches * min(1.0, scale)))

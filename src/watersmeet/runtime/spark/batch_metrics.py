"""Metrics: numbers every bucket adds up per batch, carried by `observe` to the driver, where they are Python values
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.operators.window_join.work_counters import ALL_INPUTS, EMIT, INGEST, PROBE, STORE
from watersmeet.runtime.spark.bucket import MERGE_METRICS, Bucket, time_metric_name
from watersmeet.runtime.spark.emission import METRICS

OBSERVATION, MERGED = "watersmeet", "watersmeet groups"

_PER_BUCKET = (
    "results",
    "state_rows",
    "state_bytes",
    "pack_us",
    "take_us",
    "state_read_us",
    "join_us",
    "state_write_us",
    "watermark_us",
    "newest_us",
)
_EQUAL_IN_ALL = ("watermark_us", "newest_us")
_RESULTS = json.dumps(["results"])
_PER_STREAM = ("arrived", "late", "shed")
_PER_INPUT = (INGEST, STORE, PROBE)
_PER_PAIR = ("probes", "comparisons", "touched")


@dataclass(frozen=True, slots=True)
class SparkBatchMetrics:
    """One micro-batch. Streams go by name, pairs by (origin, target) alias; times are sums over all tasks, in
    microseconds.

    `watermark_us` is the one the next batch starts with, `newest_us` the largest time seen so far. A stream's rows are
    `arrived`; of these, `late` came too late to be joined and `shed` were dropped on purpose.
    `shuffled` are the rows that buckets received by alias, copies included.
    `spent_us` is the CPU time of the join's operators, named as the cost model names them; it is a part of `join_us`.
    """

    batch: int
    results: int
    state_rows: int
    state_bytes: int
    watermark_us: int
    newest_us: int
    pack_us: int
    take_us: int
    state_read_us: int
    join_us: int
    state_write_us: int
    trigger_ms: int
    arrived: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    shed: Mapping[str, int] = field(default_factory=dict)
    shuffled: Mapping[str, int] = field(default_factory=dict)
    probes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    comparisons: Mapping[tuple[str, str], int] = field(default_factory=dict)
    touched: Mapping[tuple[str, str], int] = field(default_factory=dict)
    spent_us: Mapping[str, int] = field(default_factory=dict)


def metric_names(bucket: Bucket) -> tuple[str, ...]:
    """The numbers a bucket fills, in order."""
    return tuple(column for column, _ in _list_metrics(bucket))


def observe_buckets(emitted: DataFrame, bucket: Bucket, seen: Observation | None = None) -> DataFrame:
    """The same rows, with the metrics observed: sums over the buckets, and the times that are the same in all.

    A streaming query's are in its progress; a finite one's go to whoever has seen it.
    """
    sums = [
        (F.max if column in _EQUAL_IN_ALL else F.sum)(_number(place)).alias(json.dumps(key))
        for place, (column, key) in enumerate(_list_metrics(bucket))
    ]
    return emitted.observe(seen or OBSERVATION, *sums)


def observe_merger(emitted: DataFrame) -> DataFrame:
    """The same for the second step of an aggregation."""
    return emitted.observe(
        MERGED, *(F.sum(_number(place)).alias(json.dumps([name])) for place, name in enumerate(MERGE_METRICS))
    )


def _number(place: int) -> Column:
    return F.col(METRICS)[place]


def list_batches(query: Any) -> list[SparkBatchMetrics]:
    """The metrics of a streaming query's recent micro-batches, oldest first; `query` is what `start()` returned."""
    return parse_progress(query.recentProgress)


def parse_progress(progress: Iterable[Any]) -> list[SparkBatchMetrics]:
    """The metrics in the progress reports of a streaming query; batches in which no bucket ran have none."""
    found = ((each, each["observedMetrics"].get(OBSERVATION)) for each in progress)
    return [
        _parse_batch(each, _add_merger_metrics(each, row.asDict()))
        for each, row in found
        if row is not None and row[_RESULTS] is not None
    ]


def build_ledger(values: Mapping[str, int | None]) -> dict[str, dict[str, int]]:
    """Where the rows of each stream went, from the metrics of a finite query."""
    found: dict[str, dict[str, int]] = {}
    for text, value in values.items():
        what, *about = json.loads(text)
        if what in _PER_STREAM:
            found.setdefault(about[0], {})[what] = value or 0
    return {name: {**each, "kept": each["arrived"] - each["late"] - each["shed"]} for name, each in found.items()}


def _add_merger_metrics(progress: Any, values: dict[str, int]) -> dict[str, int]:
    """Both steps' metrics together; results are those of the last."""
    merged = progress["observedMetrics"].get(MERGED)
    if merged is None:
        return values
    added = {name: values[name] + (value or 0) for name, value in merged.asDict().items()}
    return values | added | {_RESULTS: merged[_RESULTS] or 0}


def _parse_batch(progress: Any, observed_values: Mapping[str, int]) -> SparkBatchMetrics:
    values: dict[str, Any] = {"batch": progress["batchId"], "trigger_ms": progress["durationMs"]["triggerExecution"]}
    for text, value in observed_values.items():
        what, *about = json.loads(text)
        if value is None:  # an operator that did nothing
            continue
        if not about:
            values[what] = value
        else:
            values.setdefault(what, {})[about[0] if len(about) == 1 else tuple(about)] = value
    return SparkBatchMetrics(**values)


def _list_metrics(bucket: Bucket) -> list[tuple[str, list[str]]]:
    """Every number with what it is about: the metric's name, then the stream, or the two aliases."""
    aliases = [each.alias for each in bucket.config.inputs]
    pairs = [(i, j) for i in range(len(aliases)) for j in range(len(aliases)) if i != j]
    return [
        *((name, [name]) for name in _PER_BUCKET),
        *((f"{what}_{number}", [what, name]) for what in _PER_STREAM for number, name in enumerate(bucket.streams)),
        *((f"shuffled_{i}", ["shuffled", aliases[i]]) for i in bucket.packed_schemas),
        *((f"{what}_{i}_{j}", [what, aliases[i], aliases[j]]) for what in _PER_PAIR for i, j in pairs),
        *(
            (time_metric_name(operator, i), ["spent_us", f"{operator} {alias}"])
            for operator in _PER_INPUT
            for i, alias in enumerate(aliases)
        ),
        *((time_metric_name(operator, ALL_INPUTS), ["spent_us", operator]) for operator in (PROBE, EMIT)),
    ]

"""Engines that run the queries of the demo, and their costs by group.

An engine is a function from a query, its streams and a plan to rows. On Spark, each quarter of a stream is a file, and
a streaming query reads one file of each stream per micro-batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.cli.demo.flights import Tables, count_days, split_into_streams
from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.planner.explain import Explanation
from watersmeet.runtime.embedded.run import Sources, collect_with_metrics
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import write_numbered_files

#: Takes a query, its streams and a plan, and returns the rows; the observer receives the metrics of every batch.
QueryRunner = Callable[[str, Sources, wm.Plan, Observer], pa.Table]


@dataclass(frozen=True)
class DemoEngine:
    """Engine by its name in `explain`, and the number of batches of each stream (None: one per day)."""

    name: str
    where: str
    batches: int | None
    run: QueryRunner

    def streams(self, departures: Tables) -> Sources:
        return split_into_streams(self.batches or count_days(departures), departures)


def _run_embedded(query: str, streams: Sources, plan: wm.Plan, observe: Observer) -> pa.Table:
    return collect_with_metrics(wm.run(query, streams, plan=plan), observe)


EMBEDDED = DemoEngine("embedded", "in this process", None, _run_embedded)


def sum_measured_seconds(figures: Iterable[BatchMetrics], *, on_spark: bool) -> dict[str, float]:
    """Sum measured CPU seconds by cost group."""
    spent: dict[str, float] = {}
    for each in figures:
        has_total = "probe" in each.operators_s  # the total includes the probes of every origin
        for name, seconds in each.operators_s.items():
            if not (has_total and name.startswith("probe ")):
                part = find_cost_group(name, on_spark=on_spark)
                spent[part] = spent.get(part, 0.0) + seconds
    return spent


def sum_predicted_seconds(about: Explanation, seconds: float, *, on_spark: bool) -> dict[str, float]:
    """Sum predicted CPU seconds for `seconds` of event time, by cost group."""
    totals: dict[str, float] = {}
    for part in about.chosen.cost.operators:
        name = find_cost_group(part.name, on_spark=on_spark)
        totals[name] = totals.get(name, 0.0) + part.cpu_per_s * seconds
    return totals


def find_cost_group(operator: str, *, on_spark: bool) -> str:
    """Return the cost group of an operator. On Spark, all work of a bucket on its rows is one group.

    >>> find_cost_group("probe e → j → l", on_spark=False), find_cost_group("ingest e", on_spark=True)
    ('probe', 'join')
    >>> find_cost_group("spark: state", on_spark=True)
    'spark: state'
    """
    if on_spark:
        return operator if operator.startswith("spark: ") else "join"
    return next((part for part in ("ingest", "store", "probe", "emit") if operator.startswith(part)), "batches")


#: Java options for a run of a minute. The second JIT compiler would take a third of all CPU time and never pay off.
SHORT_RUN_JAVA_OPTIONS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

#: A micro-batch reads one file of each stream. It costs about a second, regardless of its size.
_FILES_PER_STREAM = 4


def _run_on_spark(query: str, streams: Sources, plan: wm.Plan, observe: Observer) -> pa.Table:
    """Run a streaming query from files to files with a checkpoint, like a job on a cluster."""
    from watersmeet.runtime.spark.execution import Sink, follow_query, start_streaming

    with TemporaryDirectory(prefix="watersmeet-demo-") as name:
        directory = Path(name)
        frame = wm.on_spark(
            query, {each: _write_stream_files(directory / each, source) for each, source in streams.items()}, plan=plan
        )
        running = start_streaming(frame, Sink(directory / "checkpoint", directory / "out"), follow=False)
        follow_query(running, threading.Event(), observe, plan)
        files = sorted((directory / "out").glob("part-*.parquet"))
        # Spark writes times in nanoseconds without a time zone.
        declared = wm.run(query, streams, plan=plan).config.result
        return pa.concat_tables([declared.empty_table(), *(pq.read_table(file).cast(declared) for file in files)])


SPARK = DemoEngine("spark", "on Spark", _FILES_PER_STREAM, _run_on_spark)


def _write_stream_files(directory: Path, source: Stream | Relation) -> Stream:
    """Write each batch of a stream to a file; Spark then reads one file per micro-batch."""
    if not isinstance(source, Stream):
        raise TypeError("the demo joins streams")
    write_numbered_files(directory, source.batches())
    return wm.stream(directory, time=source.time, unit=source.unit, follow=True, files_per_batch=1)

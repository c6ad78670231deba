"""Who runs the demo's queries. An engine is a function from a query, its streams and a plan to rows; the steps do not
look inside.
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

#: Query, streams and plan in, rows out; the observer sees every batch.
QueryRunner = Callable[[str, Sources, wm.Plan, Observer], pa.Table]


@dataclass(frozen=True)
class DemoEngine:
    """Where queries run, under the name `explain` knows it by, and in how many batches, or files, a stream comes (None:
    one a day).
    """

    name: str
    where: str
    batches: int | None
    runs: QueryRunner

    def streams(self, departures: Tables) -> Sources:
        return split_into_streams(self.batches or count_days(departures), departures)


def _run_embedded(query: str, streams: Sources, plan: wm.Plan, observe: Observer) -> pa.Table:
    return collect_with_metrics(wm.run(query, streams, plan), observe)


EMBEDDED = DemoEngine("embedded", "in this process", None, _run_embedded)


def sum_measured_seconds(figures: Iterable[BatchMetrics], *, on_spark: bool) -> dict[str, float]:
    """Measured seconds by part, named as `predicted_by_part` names them."""
    spent: dict[str, float] = {}
    for each in figures:
        whole = "probe" in each.operators_s  # what every origin's probes took is in it
        for name, seconds in each.operators_s.items():
            if not (whole and name.startswith("probe ")):
                part = cost_group(name, on_spark=on_spark)
                spent[part] = spent.get(part, 0.0) + seconds
    return spent


def sum_predicted_seconds(about: Explanation, seconds: float, *, on_spark: bool) -> dict[str, float]:
    """Predicted seconds of CPU for so many seconds of stream, by part."""
    found: dict[str, float] = {}
    for part in about.chosen.cost.parts:
        name = cost_group(part.name, on_spark=on_spark)
        found[name] = found.get(name, 0.0) + part.cpu_per_s * seconds
    return found


def cost_group(operator: str, *, on_spark: bool) -> str:
    """What an operator is a part of. On Spark everything that a bucket does with its rows is measured as one.

    >>> part_of("probe e → j → l", on_spark=False), part_of("ingest e", on_spark=True), part_of("spark: state", on_spark=True)
    ('probe', 'join', 'spark: state')
    """
    if on_spark:
        return operator if operator.startswith("spark: ") else "join"
    return next((part for part in ("ingest", "store", "probe", "emit") if operator.startswith(part)), "batches")


#: What Java is told when it is to run for a minute: the second compiler would take a third of all CPU time and never
#: pay it back.
SHORT_RUN_JAVA_OPTIONS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

#: Files of each stream. One is taken per micro-batch, which costs a second or so, whatever is in it.
_FILES_PER_STREAM = 4


def _run_on_spark(query: str, streams: Sources, plan: wm.Plan, observe: Observer) -> pa.Table:
    """A streaming query over files, into files, with a checkpoint: what a job on a cluster would be."""
    from watersmeet.runtime.spark.execution import Sink, follow_query, start_streaming

    with TemporaryDirectory(prefix="watersmeet-demo-") as name:
        place = Path(name)
        frame = wm.on_spark(
            query, {each: _write_stream_files(place / each, source) for each, source in streams.items()}, plan=plan
        )
        running = start_streaming(frame, Sink(place / "checkpoint", place / "out"), follow=False)
        follow_query(running, threading.Event(), observe, plan)
        files = sorted((place / "out").glob("part-*.parquet"))
        declared = wm.run(query, streams, plan).config.result  # Spark writes times as nanoseconds of no zone
        return pa.concat_tables([declared.empty_table(), *(pq.read_table(file).cast(declared) for file in files)])


SPARK = DemoEngine("spark", "on Spark", _FILES_PER_STREAM, _run_on_spark)


def _write_stream_files(directory: Path, source: Stream | Relation) -> Stream:
    """The batches of a stream, which Spark then takes a file at a time."""
    if not isinstance(source, Stream):
        raise TypeError("the demo joins streams")
    write_numbered_files(directory, source.batches())
    return wm.stream(directory, time=source.time, unit=source.unit, follow=True, files_per_batch=1)

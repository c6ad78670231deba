"""Engines that run the queries of the demo, the CPU that they use, and the context that the steps share.

An engine is a function from a query, its streams and a plan to rows. A paced run receives a batch of each stream every
few seconds, like a live stream. On Spark, each batch of a stream is a file that appears in a directory, and a streaming
query with a checkpoint reads the new files of each trigger interval.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.syntax import Syntax

import watersmeet as wm
from watersmeet.cli.demo.replay import Replay, write_aircraft_query
from watersmeet.cli.spark import quiet_spark
from watersmeet.metrics import BatchMetrics, Observer
from watersmeet.planner.explain import Explanation
from watersmeet.runtime.background import BackgroundThread
from watersmeet.runtime.embedded.run import collect_with_metrics
from watersmeet.sources.declarations import Sources, Stream
from watersmeet.sources.directories import write_numbered_files
from watersmeet.units import format_duration, pluralize

#: Takes a query, its streams, a plan, an observer of every batch, and the seconds between two batches of a paced run.
#: Without a pace (None), the run is as fast as it can be. Returns the rows.
QueryRunner = Callable[[str, Sources, wm.Plan, Observer, float | None], pa.Table]


def _start_nothing() -> None:
    pass


@dataclass(frozen=True)
class DemoEngine:
    """Engine by its name in `explain`. `read_cpu_s` returns the CPU seconds that its processes have used so far.

    `start` can run in another thread. `start_workers` follows it, in the thread that runs queries.
    """

    name: str
    where: str
    run: QueryRunner
    read_cpu_s: Callable[[], float]
    start: Callable[[], None] = _start_nothing
    start_workers: Callable[[], None] = _start_nothing


def _run_embedded(query: str, streams: Sources, plan: wm.Plan, observe: Observer, pace_s: float | None) -> pa.Table:
    batches, started = _count_batches(streams), time.monotonic()

    def observe_and_wait(figures: BatchMetrics) -> None:
        observe(figures)
        if pace_s is not None and figures.batch + 1 < batches:
            time.sleep(max(0.0, started + (figures.batch + 1) * pace_s - time.monotonic()))

    return collect_with_metrics(wm.run(query, streams, plan=plan), observe_and_wait)


def _count_batches(streams: Sources) -> int:
    return max(sum(1 for _ in source.batches()) for source in streams.values())


EMBEDDED = DemoEngine("embedded", "in this process", _run_embedded, time.process_time)


#: Java options for a run of a minute. The second JIT compiler would take a third of all CPU time and never pay off.
SHORT_RUN_JAVA_OPTIONS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

#: Files appear this long before the trigger that reads them.
_PUBLISH_AHEAD_S = 0.2

#: A run without a pace has this many micro-batches, so that it also saves and restores its state.
_UNPACED_BATCHES = 2


def _start_spark() -> None:
    with quiet_spark(SHORT_RUN_JAVA_OPTIONS, show_status=False):
        pass  # the session stays active after the block


def _start_workers() -> None:
    from watersmeet.runtime.spark.python_steps import check_workers

    check_workers(wm.session())


def _run_on_spark(query: str, streams: Sources, plan: wm.Plan, observe: Observer, pace_s: float | None) -> pa.Table:
    """Run a streaming query from files to files with a checkpoint, like a job on a cluster."""
    with TemporaryDirectory(prefix="watersmeet-demo-") as name:
        directory = Path(name)
        _follow_files(query, streams, plan, observe, pace_s, directory)
        files = sorted((directory / "out").glob("part-*.parquet"))
        declared = wm.run(
            query, streams, plan=plan
        ).config.result  # Spark writes times in nanoseconds without a time zone
        return pa.concat_tables([declared.empty_table(), *(pq.read_table(file).cast(declared) for file in files)])


def _follow_files(
    query: str, streams: Sources, plan: wm.Plan, observe: Observer, pace_s: float | None, directory: Path
) -> None:
    from watersmeet.runtime.spark.execution import AVAILABLE_NOW, StreamSink, follow_query

    sink = StreamSink(directory / "out", checkpoint=directory / "checkpoint", trigger=AVAILABLE_NOW)
    if pace_s is None:
        for name, source in streams.items():
            write_numbered_files(directory / name, source.batches())
        per_batch = math.ceil(_count_batches(streams) / _UNPACED_BATCHES)
        frame = wm.on_spark(query, _declare_directories(directory, streams, files_per_batch=per_batch), plan=plan)
        follow_query(sink.start(frame), threading.Event(), observe, plan)
        return
    for name, source in streams.items():
        write_numbered_files(directory / "later" / name, source.batches())
        (directory / name).mkdir()
    publisher = FilePublisher(directory / "later", directory, pace_s)
    publisher.publish_next()  # the first file determines the schema
    frame = wm.on_spark(query, _declare_directories(directory, streams), plan=plan)
    running = replace(sink, trigger=f"{pace_s} seconds").start(frame)
    has_started, ended = threading.Event(), threading.Event()

    def observe_start(figures: BatchMetrics) -> None:
        has_started.set()
        observe(figures)

    def publish_rest() -> None:
        while not has_started.wait(_PUBLISH_AHEAD_S) and running.isActive:
            pass  # the first micro-batch also starts the query
        publisher.publish_rest(ended)
        running.processAllAvailable()
        ended.set()

    thread = BackgroundThread("publishing the files of the demo", publish_rest, running.stop).start()
    try:
        follow_query(running, ended, observe_start, plan)
    finally:
        ended.set()
    thread.join()
    thread.raise_failure()


@dataclass
class FilePublisher:
    """Moves numbered files from `later/NAME` to `now/NAME`, one number every `pace_s` seconds.

    Spark's triggers are at whole multiples of the interval since 1970. Files appear shortly before, so that a
    micro-batch reads one file of every stream.
    """

    later: Path
    now: Path
    pace_s: float
    _next: int = 0

    def publish_next(self) -> None:
        """Move the files of the next number."""
        for staged in sorted(self.later.glob(f"*/{self._next:05d}.parquet")):
            os.rename(staged, self.now / staged.parent.name / staged.name)
        self._next += 1

    def publish_rest(self, stop: threading.Event) -> None:
        """Move the other files, one number before each trigger, until `stop` is set."""
        first_s = (math.floor((time.time() + _PUBLISH_AHEAD_S) / self.pace_s) + 1) * self.pace_s - _PUBLISH_AHEAD_S
        for number in range(len(list(next(self.later.iterdir()).glob("*.parquet")))):
            if stop.wait(max(0.0, first_s + number * self.pace_s - time.time())):
                return
            self.publish_next()


def _declare_directories(directory: Path, streams: Sources, files_per_batch: int | None = None) -> dict[str, Stream]:
    declared: dict[str, Stream] = {}
    for name, source in streams.items():
        if not isinstance(source, Stream):
            raise TypeError("the demo joins streams")
        declared[name] = wm.stream(directory / name, time=source.time, follow=True, files_per_batch=files_per_batch)
    return declared


def read_spark_cpu_s() -> float:
    """Return the CPU seconds that Spark's Java process and its Python workers have used since they started."""
    from watersmeet.runtime.spark.versions import java_machine

    java = java_machine(wm.session()).java.lang.ProcessHandle.current()
    return sum(_read_process_cpu_s(process) for process in (java, *java.descendants().toArray()))


def _read_process_cpu_s(process: Any) -> float:
    used = process.info().totalCpuDuration()
    return float(used.get().toNanos()) / 1e9 if used.isPresent() else 0.0


SPARK = DemoEngine("spark", "on Spark", _run_on_spark, read_spark_cpu_s, _start_spark, _start_workers)


@dataclass(frozen=True, slots=True)
class BatchSample:
    """Metrics of a batch, and the CPU seconds that the engine had used when it ended."""

    figures: BatchMetrics
    cpu_s: float


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Averages per second of event time, from the end of the first batch to the end of the last.

    `cpu_per_s` is all CPU that the processes of the engine use, `join_cpu_per_s` the part of the join.
    """

    cpu_per_s: float
    join_cpu_per_s: float
    rows_out_per_s: float
    state_bytes: float


def measure_steady_state(samples: Sequence[BatchSample]) -> SteadyState | None:
    """Average over all batches but the first; None if there are too few."""
    first, rest = samples[0], [each.figures for each in samples[1:]]
    if not rest or rest[-1].newest_us is None or first.figures.newest_us is None:
        return None
    span_s = (rest[-1].newest_us - first.figures.newest_us) / 1e6
    return SteadyState(
        cpu_per_s=(samples[-1].cpu_s - first.cpu_s) / span_s,
        join_cpu_per_s=sum(sum_join_cpu_s(each.operators_s) for each in rest) / span_s,
        rows_out_per_s=sum(each.rows_out for each in rest) / span_s,
        state_bytes=sum(each.state_bytes for each in rest) / len(rest),
    )


def sum_join_cpu_s(operators_s: Mapping[str, float]) -> float:
    """Sum the CPU seconds of the join's operators, without Spark's part.

    On Spark, `batches` is the rest of the wall-clock time of a step, so it does not count as CPU of the join.

    >>> sum_join_cpu_s({"ingest a": 1.0, "probe": 3.0, "probe a": 2.0, "batches": 1.0})
    5.0
    >>> sum_join_cpu_s({"ingest a": 1.0, "probe": 3.0, "probe a": 2.0, "batches": 1.0, "spark: state": 9.0})
    4.0
    """
    has_total = "probe" in operators_s  # the total includes the probes of every origin
    on_spark = any(name.startswith("spark: ") for name in operators_s)
    return sum(
        seconds
        for name, seconds in operators_s.items()
        if not name.startswith("spark: ")
        and not (has_total and name.startswith("probe "))
        and not (on_spark and name == "batches")
    )


def predict_join_cpu_per_s(about: Explanation) -> float:
    """Return the predicted CPU seconds per second of the join, without Spark's part."""
    return sum(part.cpu_per_s for part in about.chosen.cost.operators if not part.name.startswith("spark: "))


#: Text of a query, which depends on the speed of the replay, and its plan.
_ReferenceKey = tuple[str, wm.Plan]


@dataclass
class DemoContext:
    """Data, engine and results that the steps share.

    `explanation` has the plan of the join, `rows` its result. Both are None until their step has run. `background` is
    one thread: it starts the engine, and then computes reference results while Spark runs queries. `starting` gives the
    seconds that the start of the engine took.
    """

    screen: Console
    replay: Replay
    engine: DemoEngine
    observe: Observer = lambda figures: None
    paced: bool = True
    explanation: Explanation | None = None
    rows: pa.Table | None = None
    all_checks_passed: bool = True
    started_s: float = field(default_factory=time.perf_counter)
    background: Executor = field(default_factory=lambda: ThreadPoolExecutor(1))
    starting: Future[float] | None = None
    _references: dict[_ReferenceKey, Future[pa.Table]] = field(default_factory=dict)

    @property
    def on_spark(self) -> bool:
        return self.engine is not EMBEDDED

    def run_join_observed(self) -> tuple[pa.Table, list[BatchSample]]:
        """Run the join at the pace of the replay; print each batch and pass it to the observer."""
        if self.explanation is None:
            raise ValueError("the join has not been planned")

        def observe(figures: BatchMetrics) -> None:
            self.observe(figures)
            self._print_batch(figures)

        pace_s = self.replay.batch_s if self.paced else None
        return self.run(write_aircraft_query(self.replay), self.explanation.plan, self.replay, (), observe, pace_s)

    def run(
        self,
        query: str,
        plan: wm.Plan,
        replay: Replay,
        names: tuple[str, ...] = (),
        observe: Observer = lambda figures: None,
        pace_s: float | None = None,
    ) -> tuple[pa.Table, list[BatchSample]]:
        """Run a query over the named airports, or all of them; return its rows and a sample of every batch."""
        samples: list[BatchSample] = []

        def sample(figures: BatchMetrics) -> None:
            samples.append(BatchSample(figures, self.engine.read_cpu_s()))
            observe(figures)

        with self.screen.status(f"running {self.engine.where}"):
            rows = self.engine.run(query, replay.declare_streams(names), plan, sample, pace_s)
        return rows, samples

    def prepare_reference(
        self, query: str, plan: wm.Plan, names: tuple[str, ...] = (), replay: Replay | None = None
    ) -> None:
        """Start running the query on the embedded engine in the background. `run_embedded` then waits for its rows."""
        self._references[query, plan] = self.background.submit(
            EMBEDDED.run, query, (replay or self.replay).declare_streams(names), plan, lambda figures: None, None
        )

    def run_embedded(
        self, query: str, plan: wm.Plan, names: tuple[str, ...] = (), replay: Replay | None = None
    ) -> pa.Table:
        """Run the query on the embedded engine, as a reference."""
        if (query, plan) in self._references:
            return self._references.pop((query, plan)).result()
        streams = (replay or self.replay).declare_streams(names)
        return EMBEDDED.run(query, streams, plan, lambda figures: None, None)

    def print_query(self, query: str) -> None:
        self.screen.print(Syntax(query, "sql", background_color="default"))

    def report_check(self, passed: bool, success: str, failure: str) -> None:
        """Print the outcome of a check and remember a failure."""
        self.screen.print(f"[bold green]{success}[/bold green]" if passed else f"[bold red]{failure}[/bold red]")
        self.all_checks_passed &= passed

    def _print_batch(self, figures: BatchMetrics) -> None:
        until = ""
        if figures.newest_us is not None:
            until = f" until {format_day(self.replay.to_departure_us(figures.newest_us))}"
        self.screen.print(
            f"  batch {figures.batch + 1}: {pluralize(sum(figures.rows_in.values()), 'flight')}{until}, "
            f"{pluralize(figures.rows_out, 'row')} out, {format_duration(figures.took_s)}",
            style="dim",
        )


def format_day(instant_us: int) -> str:
    return str(np.datetime64(instant_us, "us").astype("datetime64[D]"))

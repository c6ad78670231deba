"""`watersmeet run`: run a query over files, once or for as long as new files appear.

A finite run reads all files, prints or writes the result and exits. An incremental run processes new files batch by
batch, with a checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer

import watersmeet as wm
from watersmeet.algebra.query import Query
from watersmeet.cli import spark
from watersmeet.cli.arguments import PlanningOptions
from watersmeet.cli.exit import StoppedByUser, stop_on_signals
from watersmeet.cli.reporter import RunReporter
from watersmeet.cli.terminal import (
    LATE_SENTENCE,
    SHED_SENTENCE,
    describe_dropped_rows,
    describe_late_rows,
    describe_row_count,
    describe_shed_rows,
    make_console,
    render_rows,
)
from watersmeet.errors import InputError, escape_controls
from watersmeet.extras import DASHBOARD, require_extra
from watersmeet.metrics import BatchMetrics
from watersmeet.planner.live_report import LiveReport
from watersmeet.runtime.batch_limit import choose_batch_limit, limit_batches
from watersmeet.runtime.embedded.finite_input import read_input_streams, run_in_pieces
from watersmeet.runtime.embedded.incremental import BatchSink, IncrementalJob, JobProgress, run_incremental
from watersmeet.runtime.embedded.run import EmbeddedRun
from watersmeet.runtime.live import LiveWatch, forecast_run
from watersmeet.sinks import SINK_FORMATS, PartFileSink, check_output_path, format_json_line, write_table
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import FileSource
from watersmeet.sources.feeds import PathFeed, make_feed
from watersmeet.sources.files import is_directory, list_data_files
from watersmeet.sql.binder import refuse_undeclared_sources
from watersmeet.units import format_bytes, pluralize

if TYPE_CHECKING:
    from watersmeet.dashboard.view import LiveRun

CONSOLE, MEMORY = "console", "memory"


@dataclass(frozen=True)
class RunOptions:
    """Options of a run, from the command line and the job file."""

    query: Query
    title: str
    sources: Mapping[str, Stream | Relation]
    out: str = MEMORY
    format: str | None = None
    limit: int = 20
    follow: bool = False
    checkpoint: Path | None = None
    max_batch: int | str | None = None
    planning: PlanningOptions = field(default_factory=PlanningOptions)
    on_spark: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)
    as_json: bool = False
    quiet: bool = False
    ui_port: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None and f".{self.format}" not in SINK_FORMATS:
            names = ", ".join(suffix[1:] for suffix in SINK_FORMATS)
            raise InputError(f'there is no format "{self.format[:20]}"', hint=f"formats: {names}")
        if self.out not in (CONSOLE, MEMORY):
            (_refuse_output_file if self.is_incremental else check_output_path)(Path(self.out))
        if self.ui_port is not None:
            require_extra(DASHBOARD)
        if self.on_spark and self.follow and self.checkpoint is None:
            raise InputError(
                "--follow needs a checkpoint on Spark, which keeps the state of the query there",
                hint="name a directory: --checkpoint DIR",
            )
        if self.max_batch is not None and not self.is_incremental:
            raise InputError(
                "max_batch limits the batches of a growing input, and this run reads all its files at once",
                hint="--checkpoint DIR processes them batch by batch",
            )
        unbounded = [name for name, each in self.sources.items() if isinstance(each, Stream) and each.is_unbounded]
        if unbounded and not self.is_incremental:
            raise InputError(
                f'stream "{unbounded[0]}" has no end',
                hint="--checkpoint DIR processes the available rows and saves progress; add --follow to keep running",
            )

    @property
    def is_incremental(self) -> bool:
        return self.follow or self.checkpoint is not None


def run_query(job: RunOptions, reporter: RunReporter) -> None:
    """Run the query and report the result; raise `StoppedByUser` if Ctrl-C stopped it."""
    refuse_undeclared_sources(job.query, job.sources)
    if job.follow and job.on_spark:
        _announce_followed_streams(job, reporter)
    # Spark installs its own Ctrl-C handler when it starts, so it must start before we install ours.
    with (
        spark.quiet_spark(job.spark, reporter) if job.on_spark else nullcontext(),
        stop_on_signals() as stop,
        DashboardSession(job, stop) as dashboard,
    ):
        if job.follow and not job.on_spark:
            _announce_followed_streams(job, reporter)
        if job.is_incremental:
            _run_incrementally(job, reporter, dashboard, stop)
        else:
            _run_to_end(job, reporter, dashboard, stop)


def _announce_followed_streams(job: RunOptions, reporter: RunReporter) -> None:
    """Say what a run without an end waits for, where its dashboard is, and how to stop it."""
    reporter.say(f"{job.title} joins new files as they appear:")
    for name, source in job.sources.items():
        if isinstance(source, Stream):
            reporter.say(f"  {name}  {_describe_input(source)}")
    dashboard = "opens when every stream has a file" if job.ui_port is not None else "add --ui to open it"
    reporter.say(f"dashboard: {dashboard}")
    reporter.say("Ctrl-C finishes the current batch and stops.")


def _describe_input(source: Stream) -> str:
    """Return where the rows of a stream come from, and the number of files that are there already."""
    if not isinstance(source.feed, FileSource | PathFeed):
        return "read by Spark"
    files = list_data_files(source.feed.path) if is_directory(source.feed.path) else [source.feed.path]
    return f"{source.feed.path}  {pluralize(len(files), 'file') if files else 'no file yet'}"


class DashboardSession:
    """Dashboard of a run, if the caller asked for one.

    It opens when the run knows its streams and stays open until Ctrl-C. If it fails, it sets `stop` to end the run.
    """

    def __init__(self, job: RunOptions, stop: threading.Event) -> None:
        self._job = job
        self._stop = stop
        self._open = ExitStack()
        self._live: LiveRun | None = None

    def __enter__(self) -> DashboardSession:
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._open.__exit__(*error)

    def open(self, sources: Mapping[str, Stream | Relation]) -> None:
        if self._job.ui_port is not None:
            from watersmeet.cli.ui import build_dashboard, serve_during_run

            content = build_dashboard(
                self._job.title,
                self._job.query,
                {name: _with_planning_sample(each) for name, each in sources.items()},
                stats=self._job.planning.stats,
                plan=self._job.planning.plan,
                budget=self._job.planning.budget,
                engine="spark" if self._job.on_spark else "embedded",
            )
            self._live = self._open.enter_context(serve_during_run(content, self._job.ui_port, self._stop))

    def observe(self, metrics: BatchMetrics, report: LiveReport | None = None) -> None:
        if self._live is not None:
            self._live.observe(metrics, report)


@dataclass
class BatchWatcher:
    """Shows each batch of an incremental run, with the verdict that follows from it."""

    job: RunOptions
    reporter: RunReporter
    dashboard: DashboardSession
    watch: LiveWatch | None = None

    def start(self, sources: Mapping[str, Stream | Relation]) -> None:
        """Open the dashboard, and forecast the run from the files that are there before its first batch."""
        self.dashboard.open(sources)
        samples = {name: _with_planning_sample(each) for name, each in sources.items()}
        planning, engine = self.job.planning, "spark" if self.job.on_spark else "embedded"
        forecast = forecast_run(
            lambda: wm.explain(
                self.job.query,
                samples,
                plan=planning.plan,
                stats=planning.stats,
                budget=planning.budget,
                engine=engine,
            )
        )
        self.watch = LiveWatch(lambda: forecast, checkpoint=self.job.checkpoint)

    def observe(self, metrics: BatchMetrics) -> None:
        """Judge the run by one more batch, and show it."""
        assert self.watch is not None, "a run starts before its first batch"
        metrics = self.watch.observe(metrics)
        _observe_batch(self.job, self.reporter, self.dashboard, metrics, self.watch.report)

    def end(self) -> None:
        """Keep the last report."""
        if self.watch is not None:
            self.watch.save()


def _with_planning_sample(source: Stream | Relation) -> Stream | Relation:
    """Return the source with the rows that are available for planning: those of its next file.

    The unit of integer times is not checked here: one file says less about it than a batch does, so the run checks it.
    """
    first = source.feed.peek() if isinstance(source.feed, FileSource | PathFeed) else None
    if first is None:
        return source
    sample = replace(source, feed=make_feed(first))
    return sample.with_default_unit if isinstance(sample, Stream) else sample


# --- finite input


def _run_to_end(job: RunOptions, reporter: RunReporter, dashboard: DashboardSession, stop: threading.Event) -> None:
    rows = collect_rows(job, reporter, dashboard, stop)
    if job.out not in (CONSOLE, MEMORY):
        reporter.enter_phase(f"writing {job.out}")
        write_table(rows, Path(job.out))
    reporter.close()
    if job.out in (CONSOLE, MEMORY):
        _print_rows(job, rows)
    elif job.as_json:
        ledger = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
        typer.echo(json.dumps({"rows": rows.num_rows, "out": job.out, **ledger}))
    elif not job.quiet:
        written = f"{pluralize(rows.num_rows, 'row')} written to {escape_controls(job.out)}"
        make_console().print(written, markup=False, soft_wrap=True)
    for sentence in (*describe_late_rows(rows), *describe_shed_rows(rows)):
        reporter.say(sentence)


def _print_rows(job: RunOptions, rows: pa.Table) -> None:
    if job.as_json:
        _print_json_lines(rows)
        return
    make_console().print(render_rows(rows, job.limit))
    if not job.quiet:
        make_console().print(describe_row_count(rows, job.limit), style="dim")


def collect_rows(
    job: RunOptions, reporter: RunReporter, dashboard: DashboardSession, stop: threading.Event
) -> pa.Table:
    """Return all rows of a finite run. A large input is processed in pieces."""
    if job.on_spark:
        dashboard.open(job.sources)
        reporter.enter_phase("planning")
        plan = _choose_plan(job)
        reporter.enter_phase(spark.watch_stages())
        return spark.collect_on_spark(job.query, job.sources, plan, job.planning.stats)
    _read_sources(job, reporter)
    reporter.enter_phase("planning")
    planning = job.planning
    started = wm.run(
        job.query, job.sources, plan=planning.plan, budget=planning.budget, shed=planning.shed, stats=planning.stats
    )
    dashboard.open(started.sources)
    tables = read_input_streams(started)
    rows = sum(table.num_rows for table in tables.values())
    reporter.expect_rows(rows)
    reporter.enter_phase(f"joining {pluralize(rows, 'row')}")
    results: list[pa.RecordBatch] = []
    for batches, metrics in run_in_pieces(started, tables):
        results += batches
        _observe_batch(job, reporter, dashboard, metrics)
        if stop.is_set():
            raise StoppedByUser
    return started.to_table_with_ledger(results)


def _read_sources(job: RunOptions, reporter: RunReporter) -> None:
    """Read the files of every source; the sources keep their rows."""
    for name, source in job.sources.items():
        if isinstance(source.feed, PathFeed):
            size = sum(file.stat().st_size for file in source.feed.files)
            reporter.enter_phase(f"reading {name} from {source.feed.path} ({format_bytes(size)})")
            source.feed.peek()


# --- growing input


def _run_incrementally(
    job: RunOptions, reporter: RunReporter, dashboard: DashboardSession, stop: threading.Event
) -> None:
    if job.on_spark:
        _run_incrementally_on_spark(job, reporter, dashboard, stop)
    else:
        _run_incrementally_embedded(job, reporter, dashboard, stop)
    if stop.is_set():
        raise StoppedByUser


def _run_incrementally_on_spark(
    job: RunOptions, reporter: RunReporter, dashboard: DashboardSession, stop: threading.Event
) -> None:
    out = None if job.out in (CONSOLE, MEMORY) else Path(job.out)
    assert job.checkpoint is not None, "RunOptions refuses an incremental run on Spark without a checkpoint"
    on_spark = spark.SparkJob(
        job.query, job.sources, job.checkpoint, out, job.format or "parquet", job.follow, job.planning.stats
    )
    missing = spark.wait_for_columns(on_spark, stop, partial(_report_missing_files, reporter))
    if missing:
        _report_stop_before_first_file(reporter, missing)
        return
    on_spark = replace(on_spark, sources=_limit_sources(job, job.sources))
    watcher = BatchWatcher(job, reporter, dashboard)
    watcher.start(job.sources)
    reporter.enter_phase(spark.watch_stages())
    rows = spark.run_streaming_query(on_spark, _choose_plan(job), stop, watcher.observe, _ConsoleSink(job).write_batch)
    watcher.end()
    reporter.close()
    reporter.say(f"{'stopped' if stop.is_set() else 'all files processed'}: {pluralize(rows, 'result row')}")
    _report_how_to_resume(job, reporter)


def _run_incrementally_embedded(
    job: RunOptions, reporter: RunReporter, dashboard: DashboardSession, stop: threading.Event
) -> None:
    incremental = IncrementalJob(
        query=job.query,
        sources=job.sources,
        sink=_open_sink(job),
        follow=job.follow,
        checkpoint=job.checkpoint,
        out=None if job.out in (CONSOLE, MEMORY) else str(Path(job.out).absolute()),
        choose_plan=lambda: _choose_plan(job),
        stats=job.planning.stats,
    )

    watcher = BatchWatcher(job, reporter, dashboard)

    def start_watching(run: EmbeddedRun) -> None:
        _limit_sources(job, job.sources)
        watcher.start(run.sources)
        reporter.enter_phase("joining the first files")

    progress = run_incremental(
        incremental, stop, watcher.observe, start_watching, partial(_report_missing_files, reporter)
    )
    watcher.end()
    reporter.close()
    if progress.run is None:
        _report_stop_before_first_file(reporter, progress.waiting_for)
    else:
        _report_end(job, reporter, progress.run, progress, stopped=stop.is_set())


def _limit_sources(job: RunOptions, sources: Mapping[str, Stream | Relation]) -> Mapping[str, Stream | Relation]:
    """Return the sources with the rows of a batch limited, if the caller asked for it."""
    if job.max_batch is None:
        return sources
    planning, engine = job.planning, "spark" if job.on_spark else "embedded"
    samples = {name: _with_planning_sample(each) for name, each in sources.items()}
    about = wm.explain(job.query, samples, plan=planning.plan, stats=planning.stats, engine=engine)
    return limit_batches(sources, choose_batch_limit(about, job.max_batch))


def _report_missing_files(reporter: RunReporter, names: list[str]) -> None:
    reporter.enter_phase(f"waiting for the first file of {', '.join(names)}")


def _report_stop_before_first_file(reporter: RunReporter, names: list[str]) -> None:
    reporter.close()
    reporter.say(f"stopped while waiting for the first file of {', '.join(names)}")


def _choose_plan(job: RunOptions) -> wm.Plan | None:
    """Return the pinned plan, or one that stays within the budget, planned by the first files; None without both."""
    planning = job.planning
    if planning.budget is None and not planning.shed:
        return planning.plan
    samples = {name: _with_planning_sample(each) for name, each in job.sources.items()}
    planned = wm.job(
        job.query, samples, plan=planning.plan, budget=planning.budget, shed=planning.shed, stats=planning.stats
    )
    return planned.choose_pinned_plan("spark" if job.on_spark else "embedded")


def _open_sink(job: RunOptions) -> BatchSink:
    if job.out in (CONSOLE, MEMORY):
        return _ConsoleSink(job)
    return PartFileSink(Path(job.out), f".{job.format or 'parquet'}")


def _refuse_output_file(out: Path) -> None:
    if out.suffix in SINK_FORMATS and not out.is_dir():
        raise InputError(
            f'an incremental run writes one file per batch to a directory, but "{out}" is the name of a file',
            hint=f"write --out {out.with_suffix('')} --format {out.suffix[1:]}",
        )


@dataclass
class _ConsoleSink:
    """Sink that prints rows: up to the limit, or all of them as JSON lines."""

    job: RunOptions
    shown: int = 0

    def write_batch(self, batch: int, rows: pa.Table) -> None:
        if self.job.as_json:
            _print_json_lines(rows)
            return
        left = self.job.limit - self.shown if self.job.out == MEMORY else rows.num_rows
        if left > 0 and rows.num_rows:
            make_console().print(render_rows(rows, left))
        self.shown += min(left, rows.num_rows)


def _report_end(
    job: RunOptions, reporter: RunReporter, run: EmbeddedRun, progress: JobProgress, *, stopped: bool
) -> None:
    after = "" if progress.resumed_after is None else f", resumed after batch {progress.resumed_after}"
    end = "stopped" if stopped else "all files processed"
    written = f"{pluralize(progress.rows_out, 'result row')} in {pluralize(progress.batches, 'batch')}"
    reporter.say(f"{end}: {written}{after}")
    _report_how_to_resume(job, reporter)
    for name, entry in run.ledger.items():
        if entry.late:
            reporter.say(describe_dropped_rows(LATE_SENTENCE, name, entry.late, entry.arrived))
        if entry.shed:
            reporter.say(describe_dropped_rows(SHED_SENTENCE, name, entry.shed, entry.arrived))


def _report_how_to_resume(job: RunOptions, reporter: RunReporter) -> None:
    if job.checkpoint is not None:
        reporter.say(f"rerun the same command to resume; checkpoint: {job.checkpoint}")


# --- output


def _observe_batch(
    job: RunOptions,
    reporter: RunReporter,
    dashboard: DashboardSession,
    metrics: BatchMetrics,
    report: LiveReport | None = None,
) -> None:
    reporter.observe(metrics)
    dashboard.observe(metrics, report)
    for name, count in metrics.unreadable.items():
        if count:
            reporter.say(
                f"{pluralize(count, 'message')} of {escape_controls(name)} cannot be read (batch {metrics.batch})"
            )
    if job.as_json and job.out not in (CONSOLE, MEMORY) and job.is_incremental:
        typer.echo(json.dumps(metrics.to_dict()))


def _print_json_lines(rows: pa.Table) -> None:
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            typer.echo(format_json_line(row))

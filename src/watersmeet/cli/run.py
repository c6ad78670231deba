"""`watersmeet run`: run a query over files, once or for as long as new files appear.

A finite run reads all files, prints or writes the result and exits. An incremental run processes new files batch by
batch, with a checkpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer

import watersmeet as wm
from watersmeet.algebra.query import Query
from watersmeet.cli import spark
from watersmeet.cli.exit import StoppedByUser, stop_on_signals
from watersmeet.cli.terminal import (
    LATE_SENTENCE,
    SHED_SENTENCE,
    LiveView,
    describe_dropped_rows,
    describe_late_rows,
    describe_row_count,
    describe_shed_rows,
    escape_controls,
    make_console,
    pluralize,
    render_rows,
    show_live,
)
from watersmeet.errors import InputError
from watersmeet.extras import DASHBOARD, require_extra
from watersmeet.metrics.batch import BatchMetrics
from watersmeet.runtime.embedded.incremental import BatchSink, IncrementalJob, JobProgress, run_incremental
from watersmeet.runtime.embedded.run import EmbeddedRun, run_batch_with_metrics
from watersmeet.sinks.result_files import FORMATS, PartFileSink, check_output_path, format_json_line, write_table
from watersmeet.sources.declarations import Relation, Stream, split_tables_by_time
from watersmeet.sources.directories import FileSource
from watersmeet.sources.feeds import PathFeed, make_feed

if TYPE_CHECKING:
    from watersmeet.dashboard.live import LiveRun

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
    budget: wm.Budget | None = None
    shed: bool = False
    on_spark: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)
    as_json: bool = False
    ui_port: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None and f".{self.format}" not in FORMATS:
            raise InputError(
                f'there is no format "{self.format[:20]}"', hint=f"formats: {', '.join(each[1:] for each in FORMATS)}"
            )
        if self.out not in (CONSOLE, MEMORY) and not self.is_incremental:
            check_output_path(Path(self.out))
        if self.ui_port is not None:
            require_extra(DASHBOARD)
        if self.on_spark and self.follow and self.checkpoint is None:
            raise InputError(
                "--follow needs a checkpoint on Spark, which keeps the state of the query there",
                hint="name a directory: --checkpoint DIR",
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


def run_query(job: RunOptions) -> None:
    """Run the query and report the result; raise `StoppedByUser` if Ctrl-C stopped it."""
    # Spark installs its own Ctrl-C handler when it starts, so it must start before we install ours.
    with (
        spark.quiet_spark(job.spark) if job.on_spark else nullcontext(),
        stop_on_signals() as stop,
        DashboardSession(job, stop) as dashboard,
    ):
        if job.is_incremental:
            _run_incrementally(job, dashboard, stop)
        else:
            _run_to_end(job, dashboard, stop)


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
                budget=self._job.budget,
                engine="spark" if self._job.on_spark else "embedded",
            )
            self._live = self._open.enter_context(serve_during_run(content, self._job.ui_port, self._stop))

    def observe(self, metrics: BatchMetrics) -> None:
        if self._live is not None:
            self._live.observe(metrics)


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


def _run_to_end(job: RunOptions, dashboard: DashboardSession, stop: threading.Event) -> None:
    rows = collect_rows(job, dashboard, stop)
    screen = make_console()
    if job.out not in (CONSOLE, MEMORY):
        write_table(rows, Path(job.out))
        if job.as_json:
            ledger = json.loads((rows.schema.metadata or {}).get(b"watersmeet", b"{}"))
            typer.echo(json.dumps({"rows": rows.num_rows, "out": job.out, **ledger}))
        else:
            screen.print(
                f"{pluralize(rows.num_rows, 'row')} written to {escape_controls(job.out)}",
                markup=False,
                soft_wrap=True,
            )
    elif job.as_json:
        _print_json_lines(rows)
    else:
        screen.print(render_rows(rows, job.limit))
        screen.print(describe_row_count(rows, job.limit), style="dim")
    for sentence in (*describe_late_rows(rows), *describe_shed_rows(rows)):
        make_console(stderr=True).print(sentence, markup=False)


def collect_rows(job: RunOptions, dashboard: DashboardSession, stop: threading.Event) -> pa.Table:
    """Return all rows of a finite run. A large input is processed in pieces."""
    if job.on_spark:
        dashboard.open(job.sources)
        with make_console(stderr=True).status("running on Spark"):
            return spark.collect_on_spark(job.query, job.sources, _choose_plan(job))
    started = wm.run(job.query, job.sources, budget=job.budget, shed=job.shed)
    dashboard.open(started.sources)
    results: list[pa.RecordBatch] = []
    with _observe_batches(job, dashboard) as observe:
        for number, (tables, last) in enumerate(_split_input(started)):
            if stop.is_set():
                raise StoppedByUser
            batches, metrics = run_batch_with_metrics(started, number, tables, last=last)
            results += batches
            observe(metrics)
    return started.to_table_with_ledger(results)


def _split_input(started: EmbeddedRun) -> Iterator[tuple[dict[str, pa.Table], bool]]:
    """Split the input into pieces and mark the last one.

    If the result depends on where batches end, the whole input is one piece.
    """
    streams = {
        name: source
        for name, source in started.sources.items()
        if isinstance(source, Stream) and name in _used_streams(started)
    }
    tables = {name: pa.concat_tables(source.batches()) for name, source in streams.items()}
    started.check_units(tables)
    waiting: dict[str, pa.Table] | None = None
    for piece in iter([tables]) if started.evaluates_at_batch_ends else split_tables_by_time(tables, streams):
        if waiting is not None:
            yield waiting, False
        waiting = piece
    yield waiting or {}, True


def _used_streams(started: EmbeddedRun) -> set[str]:
    return {started.config.inputs[i].name for i in started.config.stream_inputs}


# --- growing input


def _run_incrementally(job: RunOptions, dashboard: DashboardSession, stop: threading.Event) -> None:
    if job.on_spark:
        _run_incrementally_on_spark(job, dashboard, stop)
    else:
        _run_incrementally_embedded(job, dashboard, stop)
    if stop.is_set():
        raise StoppedByUser


def _run_incrementally_on_spark(job: RunOptions, dashboard: DashboardSession, stop: threading.Event) -> None:
    out = None if job.out in (CONSOLE, MEMORY) else _check_output_directory(job)
    assert job.checkpoint is not None, "RunOptions refuses an incremental run on Spark without a checkpoint"
    on_spark = spark.SparkJob(job.query, job.sources, job.checkpoint, out, job.format or "parquet", job.follow)
    dashboard.open(job.sources)
    with _observe_batches(job, dashboard) as observe:
        rows = spark.run_streaming_query(on_spark, _choose_plan(job), stop, observe, _ConsoleSink(job).write_batch)
    make_console(stderr=True).print(
        f"{'stopped' if stop.is_set() else 'all files processed'}: {pluralize(rows, 'row')}", markup=False
    )
    _print_resume_hint(job)


def _run_incrementally_embedded(job: RunOptions, dashboard: DashboardSession, stop: threading.Event) -> None:
    incremental = IncrementalJob(
        query=job.query,
        sources=job.sources,
        sink=_open_sink(job),
        follow=job.follow,
        checkpoint=job.checkpoint,
        out=None if job.out in (CONSOLE, MEMORY) else str(Path(job.out).absolute()),
        choose_plan=lambda: _choose_plan(job),
    )
    with _observe_batches(job, dashboard) as observe:
        progress = run_incremental(incremental, stop, observe, lambda run: dashboard.open(run.sources))
    _print_summary(job, progress, stopped=stop.is_set())


def _choose_plan(job: RunOptions) -> wm.Plan | None:
    """Return the plan that stays within the budget, planned by the first files; None without a budget."""
    if job.budget is None and not job.shed:
        return None
    samples = {name: _with_planning_sample(each) for name, each in job.sources.items()}
    about = wm.explain(job.query, samples, budget=job.budget, engine="spark" if job.on_spark else "embedded")
    return about.choose_shedding_plan(shed=job.shed)


def _open_sink(job: RunOptions) -> BatchSink:
    if job.out in (CONSOLE, MEMORY):
        return _ConsoleSink(job)
    return PartFileSink(_check_output_directory(job), f".{job.format or 'parquet'}")


def _check_output_directory(job: RunOptions) -> Path:
    out = Path(job.out)
    if out.suffix in FORMATS and not out.is_dir():
        raise InputError(
            f'an incremental run writes one file per batch to a directory, but "{out}" is the name of a file',
            hint=f"write --out {out.with_suffix('')} --format {out.suffix[1:]}",
        )
    return out


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


def _print_summary(job: RunOptions, progress: JobProgress, *, stopped: bool) -> None:
    screen = make_console(stderr=True)
    if progress.run is None:
        screen.print(
            f"stopped while waiting for the first file of {escape_controls(', '.join(progress.waiting_for))}",
            markup=False,
        )
        return
    after = "" if progress.resumed_after is None else f", resumed after batch {progress.resumed_after}"
    end = "stopped" if stopped else "all files processed"
    screen.print(
        f"{end}: {pluralize(progress.rows_out, 'row')} in {pluralize(progress.batches, 'batch')}{after}", markup=False
    )
    _print_resume_hint(job)
    for name, entry in progress.run.ledger.items():
        if entry.late:
            screen.print(describe_dropped_rows(LATE_SENTENCE, name, entry.late, entry.arrived), markup=False)
        if entry.shed:
            screen.print(describe_dropped_rows(SHED_SENTENCE, name, entry.shed, entry.arrived), markup=False)


def _print_resume_hint(job: RunOptions) -> None:
    if job.checkpoint is not None:
        words = f"rerun the same command to resume; checkpoint: {escape_controls(str(job.checkpoint))}"
        make_console(stderr=True).print(words, markup=False, soft_wrap=True)


# --- output


@contextmanager
def _observe_batches(job: RunOptions, dashboard: DashboardSession) -> Iterator[Callable[[BatchMetrics], None]]:
    with show_live(make_console(stderr=True), LiveView(job.title)) as show:

        def observe(metrics: BatchMetrics) -> None:
            show(metrics)
            dashboard.observe(metrics)
            if job.as_json and job.out not in (CONSOLE, MEMORY) and job.is_incremental:
                typer.echo(json.dumps(metrics.to_dict()))

        yield observe


def _print_json_lines(rows: pa.Table) -> None:
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            typer.echo(format_json_line(row))

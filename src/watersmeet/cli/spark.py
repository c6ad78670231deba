"""`watersmeet run --engine spark`: the session, its log file, and a streaming query that the command stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa

import watersmeet as wm
from watersmeet.checkpoint.owner import check_output_owner, claim_output, is_new_spark_checkpoint, read_spark_owner
from watersmeet.checkpoint.store import lock_checkpoint
from watersmeet.cli.reporter import RunReporter
from watersmeet.cli.terminal import make_console
from watersmeet.extras import SPARK, find_missing_module, require_extra
from watersmeet.metrics import Observer
from watersmeet.runtime.embedded.incremental import refuse_empty_sources, wait_for_first_files
from watersmeet.runtime.java import check_java, find_java_problem
from watersmeet.sources.declarations import Sources
from watersmeet.sources.feeds import PathFeed


@dataclass(frozen=True)
class SparkJob:
    """Streaming query on Spark, and where its rows and its checkpoint go."""

    query: wm.Query
    sources: Sources
    checkpoint: Path
    directory: Path | None
    format: str
    follow: bool
    stats: Mapping[str, wm.StreamStats] = field(default_factory=dict)


def find_spark_problem() -> str | None:
    """Return one sentence about why Spark cannot start here; None if it can."""
    return find_missing_module(SPARK) or find_java_problem()


def make_spark_reader(settings: Mapping[str, Any], reporter: RunReporter) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that reads streams in Spark's own formats. Its first call starts the session."""

    def read(stream: Mapping[str, Any]) -> Any:
        with quiet_spark(settings, reporter):
            from watersmeet.runtime.spark.formats import FormatSource

            source = FormatSource(
                stream["format"],
                stream["options"],
                stream["schema"],
                stream.get("value"),
                stream.get("name", stream["format"]),
                stream["time"],
                stream.get("on_error", "stop"),
                stream.get("diverted"),
            )
            return source.rows(wm.session(**settings))

    return read


@contextmanager
def quiet_spark(
    settings: Mapping[str, Any], reporter: RunReporter | None = None, *, show_status: bool = True
) -> Iterator[None]:
    """Start a session whose log goes to a file, so that it does not mix with our output.

    If Spark fails, the error names the file. Otherwise the file is deleted. A session that is already active keeps its
    own log. Without a reporter, a status line on the terminal says that Spark starts, unless `show_status` is False.
    """
    require_extra(SPARK)
    check_java()
    from watersmeet.runtime.spark.session import start_writing_to
    from watersmeet.runtime.spark.spark_errors import SparkError, summarize_spark_errors

    if reporter is not None:
        reporter.enter_phase("starting Spark")
    with (
        NamedTemporaryFile(prefix="watersmeet-spark-", suffix=".log", delete=False) as log,
        make_console(stderr=True).status("starting Spark") if reporter is None and show_status else nullcontext(),
    ):
        started = start_writing_to(log, settings)
    failed = False
    try:
        with summarize_spark_errors():
            yield
    except SparkError as failure:
        failed = started
        if started:
            failure.hint = "; ".join([*([failure.hint] if failure.hint else []), f"the log of Spark is {log.name}"])
        raise
    finally:
        if not failed:
            Path(log.name).unlink(missing_ok=True)


def collect_on_spark(
    query: wm.Query, sources: Sources, plan: wm.Plan | None, stats: Mapping[str, wm.StreamStats]
) -> pa.Table:
    """Return all rows of a query over finite data."""
    from watersmeet.runtime.spark.execution import collect_with_ledger

    return collect_with_ledger(query, sources, plan, stats)


def watch_stages() -> Callable[[], str]:
    """Return a function that describes the stages that Spark runs at the moment of the call."""
    from watersmeet.runtime.spark.ui_names import watch_stages as watch

    return watch()


def wait_for_columns(job: SparkJob, stop: threading.Event, on_wait: Callable[[list[str]], None]) -> list[str]:
    """Wait until every directory has a file that shows its columns; return the names of the streams without one."""
    directories = {name: source.feed for name, source in job.sources.items() if isinstance(source.feed, PathFeed)}
    if not job.follow:
        refuse_empty_sources(directories)
    return wait_for_first_files(directories, stop, on_wait)


def run_streaming_query(
    job: SparkJob, plan: wm.Plan | None, stop: threading.Event, observe: Observer, show: Callable[[int, pa.Table], None]
) -> int:
    """Run a streaming query until `stop` is set or all input is processed; return the number of rows written."""
    from watersmeet.runtime.spark.execution import Sink, follow_query, start_streaming

    with lock_checkpoint(job.checkpoint):
        if job.directory is not None:
            owner = read_spark_owner(job.checkpoint)
            check_output_owner(job.directory, owner, is_new=is_new_spark_checkpoint(job.checkpoint))
            claim_output(job.directory, owner)
        frame = wm.on_spark(job.query, job.sources, plan=plan, stats=job.stats, checkpoint=job.checkpoint)
        query = start_streaming(
            job.query, frame, Sink(job.checkpoint, job.directory, job.format, show), follow=job.follow
        )
        return follow_query(query, stop, observe, plan)

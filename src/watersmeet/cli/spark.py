"""`watersmeet run --engine spark`: the same job on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import pyarrow as pa

import watersmeet as wm
from watersmeet.cli.show import several
from watersmeet.errors import InputError
from watersmeet.runtime.embedded import Sources
from watersmeet.runtime.figures import Observer
from watersmeet.runtime.java import check_java
from watersmeet.runtime.job.checkpoint import locked


@dataclass(frozen=True)
class OnSpark:
    """A query that goes on, on Spark."""

    query: wm.Query
    sources: Sources
    checkpoint: Path | None
    directory: Path | None
    format: str
    follow: bool


def collected(query: wm.Query, sources: Sources, plan: wm.Plan | None) -> pa.Table:
    """All rows of a query over finite data."""
    check_java()
    from watersmeet.runtime.spark.writing import collected as collected_rows

    with quiet_spark():
        return collected_rows(wm.on_spark(query, sources, plan=plan))


def grow(job: OnSpark, plan: wm.Plan | None, stop: threading.Event, observe: Observer, show: Callable[[int, pa.Table], None]) -> str:
    """Runs until it is to stop, or all is read; says what came of it."""
    if job.checkpoint is None:
        raise InputError("a query that goes on keeps its state in a checkpoint on Spark", hint="name a directory for it: --checkpoint DIR")
    check_java()
    from watersmeet.runtime.spark.writing import Sink, watch, write

    with locked(job.checkpoint), quiet_spark():
        frame = wm.on_spark(job.query, job.sources, plan=plan)
        query = write(frame, Sink(job.checkpoint, job.directory, job.format, show), follow=job.follow)
        rows = watch(query, stop, observe)
    return f"{'stopped' if stop.is_set() else 'all files are read'}: {several(rows, 'row')}"


@contextmanager
def quiet_spark() -> Iterator[None]:
    """A session whose words go to a file, so that they do not mix with ours; it is named where Spark fails, and gone where it does not."""
    from watersmeet.runtime.spark.faults import SparkError
    from watersmeet.runtime.spark.session import session_that_writes_to

    with NamedTemporaryFile(prefix="watersmeet-spark-", suffix=".log", delete=False) as log:
        session_that_writes_to(log)
    failed = False
    try:
        yield
    except SparkError as failure:
        failed, failure.hint = True, f"what Spark said besides is in {log.name}"
        raise
    finally:
        if not failed:
            Path(log.name).unlink(missing_ok=True)

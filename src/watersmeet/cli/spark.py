"""`watersmeet run --engine spark`: the same job on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

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
    settings: Mapping[str, str] = field(default_factory=dict)


def reader(settings: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Any]:
    """Reads streams by Spark's own formats, in a session with these settings, which starts with the first of them."""

    def read(stream: Mapping[str, Any]) -> Any:
        check_java()
        from watersmeet.runtime.spark.formats import FormatSource

        source = FormatSource(stream["format"], stream["options"], stream["schema"], stream.get("value"))
        return source.rows(wm.session(**settings))

    return read


def collected(query: wm.Query, sources: Sources, plan: wm.Plan | None, settings: Mapping[str, str]) -> pa.Table:
    """All rows of a query over finite data."""
    check_java()
    from watersmeet.runtime.spark.writing import collected as collected_rows

    with quiet_spark(settings):
        return collected_rows(wm.on_spark(query, sources, plan=plan, session=wm.session(**settings)))


def grow(job: OnSpark, plan: wm.Plan | None, stop: threading.Event, observe: Observer, show: Callable[[int, pa.Table], None]) -> str:
    """Runs until it is to stop, or all is read; says what came of it."""
    if job.checkpoint is None:
        raise InputError("a query that goes on keeps its state in a checkpoint on Spark", hint="name a directory for it: --checkpoint DIR")
    check_java()
    from watersmeet.runtime.spark.writing import Sink, watch, write

    with locked(job.checkpoint), quiet_spark(job.settings):
        frame = wm.on_spark(job.query, job.sources, plan=plan, session=wm.session(**job.settings))
        query = write(frame, Sink(job.checkpoint, job.directory, job.format, show), follow=job.follow)
        rows = watch(query, stop, observe, plan)
    return f"{'stopped' if stop.is_set() else 'all files are read'}: {several(rows, 'row')}"


@contextmanager
def quiet_spark(settings: Mapping[str, str] | None = None) -> Iterator[None]:
    """A session whose words go to a file, so that they do not mix with ours; it is named where Spark fails, and gone where it does not.

    A session that is active already goes on saying what it says where it did.
    """
    from watersmeet.runtime.spark.faults import SparkError
    from watersmeet.runtime.spark.session import start_writing_to

    with NamedTemporaryFile(prefix="watersmeet-spark-", suffix=".log", delete=False) as log:
        started = start_writing_to(log, settings or {})
    failed = False
    try:
        yield
    except SparkError as failure:
        failed = started
        failure.hint = f"what Spark said besides is in {log.name}" if started else failure.hint
        raise
    finally:
        if not failed:
            Path(log.name).unlink(missing_ok=True)

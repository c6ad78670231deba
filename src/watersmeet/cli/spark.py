"""`watersmeet run --engine spark`: the same job on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import watersmeet as wm
from watersmeet.cli.show import several
from watersmeet.errors import InputError
from watersmeet.runtime.embedded import Sources
from watersmeet.runtime.figures import Observer
from watersmeet.runtime.java import check_java


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

    return collected_rows(wm.on_spark(query, sources, plan=plan))


def grow(job: OnSpark, plan: wm.Plan | None, stop: threading.Event, observe: Observer, show: Callable[[int, pa.Table], None]) -> str:
    """Runs until it is to stop, or all is read; says what came of it."""
    if job.checkpoint is None:
        raise InputError("a query that goes on keeps its state in a checkpoint on Spark", hint="name a directory for it: --checkpoint DIR")
    check_java()
    from watersmeet.runtime.spark.writing import Sink, watch, write

    frame = wm.on_spark(job.query, job.sources, plan=plan)
    query = write(frame, Sink(job.checkpoint, job.directory, job.format, show), follow=job.follow)
    rows = watch(query, stop, observe)
    return f"{'stopped' if stop.is_set() else 'all files are read'}: {several(rows, 'row')}"

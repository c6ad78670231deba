"""`watersmeet run --engine spark`: the same job on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import watersmeet as wm
from watersmeet.cli.show import console
from watersmeet.runtime.embedded import Sources
from watersmeet.runtime.figures import Observer
from watersmeet.runtime.java import check_java


@dataclass(frozen=True)
class OnSpark:
    """A query that goes on, on Spark."""

    query: wm.Query
    sources: Sources
    checkpoint: Path
    directory: Path | None
    format: str
    follow: bool


def reader(settings: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Any]:
    """Reads streams by Spark's own formats, in a session with these settings, which starts with the first of them."""

    def read(stream: Mapping[str, Any]) -> Any:
        check_java()
        from watersmeet.runtime.spark.formats import FormatSource

        source = FormatSource(stream["format"], stream["options"], stream["schema"], stream.get("value"))
        return source.rows(wm.session(**settings))

    return read


def start(settings: Mapping[str, str]) -> None:
    """Starts Spark with these settings, unless a session is there; says what to do where there is no Java."""
    check_java()
    with console(stderr=True).status("starting Spark"):
        wm.session(**settings)


def collected(query: wm.Query, sources: Sources, plan: wm.Plan | None) -> pa.Table:
    """All rows of a query over finite data."""
    from watersmeet.runtime.spark.writing import collected as collected_rows

    return collected_rows(wm.on_spark(query, sources, plan=plan))


def grow(job: OnSpark, plan: wm.Plan | None, stop: threading.Event, observe: Observer, show: Callable[[int, pa.Table], None]) -> int:
    """Runs until it is to stop, or all is read; the number of rows that came out."""
    from watersmeet.runtime.spark.writing import Sink, watch, write

    frame = wm.on_spark(job.query, job.sources, plan=plan)
    query = write(frame, Sink(job.checkpoint, job.directory, job.format, show), follow=job.follow)
    return watch(query, stop, observe, plan)

"""Limits of the rows of a micro-batch: a backlog is processed in batches that fit the trigger interval and the memory.

The rows that fit follow from the forecast: the sustained rate times the trigger interval, less a share that stays free.
Streams share them in proportion to their rates, so that all of them advance through event time together. A limit in
rows becomes a limit in bytes of files by the size of a row in the first file, and a limit in offsets of Kafka. A batch
always takes at least one file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from watersmeet.errors import InputError
from watersmeet.planner.explain import Explanation
from watersmeet.planner.spark_forecast import DEFAULT_TRIGGER_S, WORKER_BYTES_PER_BATCH_BYTE
from watersmeet.sources.declarations import Relation, Sources, Stream
from watersmeet.sources.directories import FileSource
from watersmeet.sources.feeds import FollowOptions, PathFeed, SparkFeed, make_feed

#: Limit that is derived from the forecast.
AUTO = "auto"

#: Share of the trigger interval that a batch leaves free.
HEADROOM = 0.2
#: Share of the machine's memory that the rows of one batch may use in all processes.
MEMORY_SHARE = 0.125


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """Rows of a micro-batch: of all streams, and of each of them."""

    rows: float
    rows_by_stream: Mapping[str, float]


def check_max_batch(max_batch: int | str | None) -> None:
    """Refuse anything but a positive number of rows, "auto" and None."""
    is_count = isinstance(max_batch, int) and not isinstance(max_batch, bool) and max_batch > 0
    if max_batch is not None and max_batch != AUTO and not is_count:
        raise InputError(
            f"the rows of a batch cannot be limited to {max_batch!r}", hint='pass a number of rows, or "auto"'
        )


def choose_batch_limit(
    about: Explanation, max_batch: int | str, trigger_s: float | None = None, memory_bytes: float | None = None
) -> BatchLimit:
    """Return the limit of a query that was explained.

    `max_batch` is a number of rows, or "auto": the rows that fit the trigger interval and the memory.
    """
    streams = [about.config.inputs[i] for i in about.config.stream_inputs]
    rates = {each.name: about.workload.inputs[each.number].rows_per_s.value for each in streams}
    rows = float(max_batch) if isinstance(max_batch, int) else _fit_rows(about, trigger_s, memory_bytes)
    total = sum(rates.values())
    shares = {name: rate / total if total else 1 / len(rates) for name, rate in rates.items()}
    return BatchLimit(rows, {name: max(1.0, rows * share) for name, share in shares.items()})


def _fit_rows(about: Explanation, trigger_s: float | None, memory_bytes: float | None) -> float:
    """Return the rows of a batch that fit the trigger interval, or a default one, and the memory."""
    interval_s = trigger_s or DEFAULT_TRIGGER_S
    inputs = [about.workload.inputs[i] for i in about.config.stream_inputs]
    rate = sum(each.rows_per_s.value for each in inputs)
    if about.micro_batch is not None:
        sustained = replace(about.micro_batch, trigger_s=interval_s).sustained_rows_per_s
    else:
        sustained = rate / about.chosen.cost.cpu_per_s if about.chosen.cost.cpu_per_s else float("inf")
    by_time = sustained * interval_s * (1 - HEADROOM)
    row_bytes = sum(each.rows_per_s.value * each.row_bytes.value for each in inputs) / rate if rate else 1.0
    machine_bytes = measure_machine_memory_bytes() if memory_bytes is None else memory_bytes
    by_memory = MEMORY_SHARE * machine_bytes / (WORKER_BYTES_PER_BATCH_BYTE * max(row_bytes, 1.0))
    return max(1.0, min(by_time, by_memory))


def measure_machine_memory_bytes() -> float:
    """Return the memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def limit_batches(sources: Sources, limit: BatchLimit) -> dict[str, Stream | Relation]:
    """Return the sources with the rows of a batch limited. A limit in files that the caller has set stays."""
    return {
        name: _limit_source(name, source, limit.rows_by_stream[name]) if name in limit.rows_by_stream else source
        for name, source in sources.items()
    }


def _limit_source(name: str, source: Stream | Relation, rows: float) -> Stream | Relation:
    feed = source.feed
    if isinstance(source, Stream) and isinstance(feed, SparkFeed) and source.is_unbounded:
        if feed.read_limited is None:
            raise InputError(
                f'the rows of a batch of stream "{name}" are limited where its DataFrame is read',
                hint=f'for Kafka, read it with .option("maxOffsetsPerTrigger", {int(rows)}), and leave max_batch out',
            )
        return replace(source, feed=make_feed(feed.read_limited(int(rows)), source.time, stamped=source.stamped))
    is_limited = isinstance(feed, PathFeed) and feed.follow is not None and feed.follow.files_per_batch is None
    if not isinstance(feed, FileSource | PathFeed) or not (is_limited or isinstance(feed, FileSource)):
        return source
    row_bytes = feed.measure_row_bytes()
    bytes_per_batch = None if row_bytes is None else max(1, int(rows * row_bytes))
    if isinstance(feed, FileSource):
        feed.bytes_per_batch = bytes_per_batch  # the run and its checkpoint share this object
        return source
    return replace(source, feed=feed.with_options(FollowOptions(bytes_per_batch=bytes_per_batch)))

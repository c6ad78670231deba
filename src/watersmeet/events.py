"""Events of a run, through Python's `logging` under the name `watersmeet`.

Every event is a log record with a sentence for people and, for programs, a name (`record.event`) and values
(`record.fields`). Without a handler of the caller's nothing is printed.

| event | level | written when |
| --- | --- | --- |
| `run_started` | INFO | a host has bound the query to its streams |
| `run_resumed` | INFO | a run continues from its checkpoint |
| `plan_chosen` | INFO | the plan of a run is known |
| `plan_considered` | DEBUG | the planner looked at a change of the streams and kept the plan |
| `plan_changed` | INFO | a run continues with another plan |
| `plan_gain_measured` | INFO | both plans of a change were run on the rows that came after it |
| `verdict_changed` | WARNING, INFO | a running query no longer keeps up, or keeps up again |
| `waiting_for_files` | INFO | a stream has no file yet, so its columns are unknown |
| `batch_done` | DEBUG | a batch is joined and its rows are written |
| `rows_late`, `rows_shed` | INFO | a batch dropped rows |
| `checkpoint_written` | DEBUG | a batch is committed |
| `run_ended`, `run_failed` | INFO, ERROR | a run has ended |
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from watersmeet.algebra.plan import Plan, describe_plan
from watersmeet.algebra.query import Query
from watersmeet.algebra.render import format_query
from watersmeet.metrics import BatchMetrics
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.units import format_bytes, format_duration, pluralize

LOGGER = logging.getLogger("watersmeet")
LOGGER.addHandler(logging.NullHandler())


def log_event(level: int, event: str, sentence: str, **fields: object) -> None:
    """Log an event: a sentence, a name, and values that JSON can hold."""
    if LOGGER.isEnabledFor(level):
        # An argument instead of the bare sentence: names from outside may contain a percent sign.
        LOGGER.log(level, "%s", sentence, extra={"event": event, "fields": fields}, stacklevel=2)


def log_run_started(engine: str, query: Query, sources: Mapping[str, Stream | Relation], plan: Plan) -> None:
    """Log the start of a run: its engine, its query, its sources, and the plan that it starts with."""
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    places = {name: _locate_source(source) for name, source in sources.items()}
    sentence = f"run started, {engine} engine, over " + ", ".join(f"{name} ({each})" for name, each in places.items())
    log_event(logging.INFO, "run_started", sentence, engine=engine, query=format_query(query), sources=places)
    orders = "".join(f"; {origin} probes {', then '.join(others)}" for origin, others in plan.orders)
    log_event(logging.INFO, "plan_chosen", f"plan: {describe_plan(plan)}{orders}", plan=plan.to_dict())


def _locate_source(source: Stream | Relation) -> str:
    path = getattr(source.feed, "path", None)
    if path is not None:
        return str(path)
    return "Spark DataFrame" if source.spark_frame is not None else "memory"


def log_waiting_for_files(streams: list[str]) -> None:
    """Log the streams without a file."""
    sentence = f"waiting for the first file of {', '.join(streams)}"
    log_event(logging.INFO, "waiting_for_files", sentence, streams=streams)


def log_batch(metrics: BatchMetrics) -> None:
    """Log a batch, and the rows that it dropped."""
    if LOGGER.isEnabledFor(logging.DEBUG):
        log_event(logging.DEBUG, "batch_done", describe_batch(metrics), **metrics.to_dict())
    for event, verb, dropped in (
        ("rows_late", "dropped late rows", metrics.late),
        ("rows_shed", "shed rows", metrics.shed),
    ):
        counts = {name: count for name, count in dropped.items() if count}
        if counts:
            by_stream = ", ".join(f"{count:,} of {name}" for name, count in counts.items())
            sentence = f"batch {metrics.batch} {verb}: {by_stream}"
            log_event(logging.INFO, event, sentence, batch=metrics.batch, rows=counts)


def log_run_ended(rows_out: int, ledger: Mapping[str, Mapping[str, int]]) -> None:
    """Log the end of a run: the rows that it emitted, and the fate of the rows that it read."""
    sentence = f"run ended: {pluralize(rows_out, 'row')} out"
    log_event(logging.INFO, "run_ended", sentence, rows_out=rows_out, ledger=ledger)


def describe_batch(metrics: BatchMetrics) -> str:
    """Describe a batch on one line.

    >>> describe_batch(BatchMetrics(3, 0.0, 0.25, {"a": 1200, "b": 0}, 40, state_rows=900, state_bytes=14_400))
    'batch 3: 1,200 rows of a in, 40 rows out in 250 ms; state 900 rows, 14.4 kB'
    """
    rows_in = ", ".join(f"{pluralize(count, 'row')} of {name}" for name, count in metrics.rows_in.items() if count)
    return (
        f"batch {metrics.batch}: {rows_in or '0 rows'} in, {pluralize(metrics.rows_out, 'row')} out "
        f"in {format_duration(metrics.took_s)}; "
        f"state {pluralize(metrics.state_rows, 'row')}, {format_bytes(metrics.state_bytes)}"
    )


class JsonLineFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, event, message and the values of the event."""

    def format(self, record: logging.LogRecord) -> str:
        shown = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
        }
        return json.dumps(shown | getattr(record, "fields", {}), default=str)

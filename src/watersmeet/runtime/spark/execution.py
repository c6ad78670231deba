"""Execution of queries on Spark: collect the rows of finite data, or start a streaming query and follow its batches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.query import Query
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.runtime.embedded.run import Sources
from watersmeet.runtime.spark.batch_metrics import SparkBatchMetrics, build_ledger, list_batches
from watersmeet.runtime.spark.host import on_spark
from watersmeet.runtime.spark.spark_errors import summarize_error

#: Interval between two looks at the query's progress.
POLL_S = 0.25

SPARK_FORMATS = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}


ShowBatch = Callable[[int, pa.Table], None]


@dataclass(frozen=True)
class Sink:
    """Destination of a streaming query's rows: files in a directory, or `show` if there is no directory.

    `show` is called with every batch.
    """

    checkpoint: Path
    directory: Path | None = None
    format: str = "parquet"
    show: ShowBatch = lambda batch, rows: None


def start_streaming(frame: DataFrame, sink: Sink, *, follow: bool) -> StreamingQuery:
    """Start a streaming query. Without `follow` it ends when it has processed the available data."""
    writer = frame.writeStream.outputMode("append").option("checkpointLocation", str(sink.checkpoint))
    writer = writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)
    if sink.directory is None:
        return writer.foreachBatch(lambda rows, batch: sink.show(batch, rows.toArrow())).start()
    if sink.format == "csv":
        writer = writer.option("header", "true")
    return writer.format(SPARK_FORMATS[sink.format]).option("path", str(sink.directory)).start()


def follow_query(query: StreamingQuery, stop: threading.Event, observe: Observer, plan: Plan | None = None) -> int:
    """Pass the metrics of every batch to the observer until the query ends or `stop` is set; return the rows emitted.

    A failure of the query or of the observer is raised. The query is stopped in any case.
    """
    seen, rows_out = -1, 0
    try:
        while True:
            ended = not query.isActive
            for each in list_batches(query):
                if each.batch > seen:
                    seen, rows_out = each.batch, rows_out + each.results
                    observe(to_batch_metrics(each, plan or Plan()))
            if ended or stop.is_set():
                break
            stop.wait(POLL_S)
    finally:
        query.stop()
    failure = query.exception()
    if failure is not None and not stop.is_set():
        raise summarize_error(failure)
    return rows_out


def to_batch_metrics(batch: SparkBatchMetrics, plan: Plan) -> BatchMetrics:
    """Convert the metrics of a micro-batch to the form that all live views read.

    Times of operators are sums over all tasks.
    """
    return BatchMetrics(
        batch=batch.batch,
        ended_s=time.time(),
        took_s=batch.trigger_ms / 1e3,
        rows_in=batch.arrived,
        rows_out=batch.results,
        state_rows=batch.state_rows,
        state_bytes=batch.state_bytes,
        late=batch.late,
        shed=batch.shed,
        watermark_us=_instant_us(batch.watermark_us),
        newest_us=_instant_us(batch.newest_us),
        operators_s=_operators_s(batch),
        plan=plan,
    )


def _operators_s(batch: SparkBatchMetrics) -> dict[str, float]:
    """Return seconds by operator, under the cost model's names.

    `batches` is the fixed cost per batch: the join's time that no other operator accounts for. `spark: micro-batches`
    is the trigger time minus the summed task times. Tasks run in parallel, so this is a lower bound on Spark's own
    overhead.
    """
    spent = {name: us / 1e6 for name, us in batch.spent_us.items()}
    # The time of all probes already includes the times by origin.
    by_origin = sum(seconds for name, seconds in spent.items() if name.startswith("probe "))
    overhead = {
        "batches": max(0.0, batch.join_us / 1e6 - (sum(spent.values()) - by_origin)),
        "spark: pack": batch.pack_us / 1e6,
        "spark: shuffle": batch.receive_us / 1e6,
        "spark: state": (batch.state_read_us + batch.state_write_us) / 1e6,
    }
    of_tasks = sum(overhead.values()) + sum(spent.values()) - by_origin
    return {**spent, **overhead, "spark: micro-batches": max(0.0, batch.trigger_ms / 1e3 - of_tasks)}


def _instant_us(known_us: int) -> int | None:
    return known_us if abs(known_us) < FOREVER_US else None


def collect_with_ledger(query: Query | str, sources: Sources, plan: Plan | None) -> pa.Table:
    """Collect all rows of a query over finite data. The metadata of the table's schema contain the ledger.

    The embedded engine returns the ledger in the same place.
    """
    observation = Observation()
    rows = collect(on_spark(query, sources, plan=plan, observation=observation))
    return rows.replace_schema_metadata({"watersmeet": json.dumps({"ledger": build_ledger(observation.get)})})


def collect(frame: DataFrame) -> pa.Table:
    """Collect all rows of a finite DataFrame; raise Spark's errors as one sentence."""
    try:
        return frame.toArrow()
    except PySparkException as error:
        raise summarize_error(error) from error

"""The demo's queries on Spark: each quarter of a stream is a file, and a streaming query reads one of each stream at a
time.
"""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet as wm
from watersmeet.cli.demo.engines import Engine
from watersmeet.metrics.batch import Observer
from watersmeet.runtime.embedded.run import Sources
from watersmeet.sources.declarations import Relation, Stream
from watersmeet.sources.directories import write_numbered

#: What Java is told when it is to run for a minute: the second compiler would take a third of all CPU time and never
#: pay it back.
FOR_A_MINUTE = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

#: Files of each stream. One is taken per micro-batch, which costs a second or so, whatever is in it.
_FILES = 4


def _on_spark(query: str, streams: Sources, plan: wm.Plan, observe: Observer) -> pa.Table:
    """A streaming query over files, into files, with a checkpoint: what a job on a cluster would be."""
    from watersmeet.runtime.spark.execution import Sink, watch, write

    with TemporaryDirectory(prefix="watersmeet-demo-") as name:
        place = Path(name)
        frame = wm.on_spark(
            query, {each: _as_files(place / each, source) for each, source in streams.items()}, plan=plan
        )
        running = write(frame, Sink(place / "checkpoint", place / "out"), follow=False)
        watch(running, threading.Event(), observe, plan)
        files = sorted((place / "out").glob("part-*.parquet"))
        declared = wm.run(query, streams, plan).config.result  # Spark writes times as nanoseconds of no zone
        return pa.concat_tables([declared.empty_table(), *(pq.read_table(file).cast(declared) for file in files)])


SPARK = Engine("spark", "on Spark", _FILES, _on_spark)


def _as_files(directory: Path, source: Stream | Relation) -> Stream:
    """The batches of a stream, which Spark then takes a file at a time."""
    if not isinstance(source, Stream):
        raise TypeError("the demo joins streams")
    write_numbered(directory, source.batches())
    return wm.stream(directory, time=source.time, unit=source.unit, follow=True, files_per_batch=1)

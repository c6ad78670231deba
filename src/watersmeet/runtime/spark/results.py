"""Results on their way out of a bucket: blobs of rows, and one row of metrics. A later step, without state, turns blobs into rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from watersmeet.runtime.spark.bucket import Metrics
from watersmeet.runtime.spark.kinds import as_spark_takes_it
from watersmeet.runtime.spark.packets import pieces_of, table_bytes, table_from_bytes

BLOB = "blob"

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Emission:
    """The columns a bucket emits: a blob, and numbers that only the metrics row has. `names` are the metrics, in order."""

    names: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(BLOB, pa.binary()), *((name, pa.int64()) for name in self.names)])

    def blobs(self, results: Generator[pa.RecordBatch, None, Returned]) -> Generator[pa.RecordBatch, None, Returned]:
        """Every batch of results as one blob or several; returns what the results' generator returns."""
        while True:
            try:
                batch = next(results)
            except StopIteration as over:
                returned: Returned = over.value
                return returned
            for piece in pieces_of(pa.Table.from_batches([batch])):
                yield self._row(table_bytes(piece), {})

    def metrics_row(self, metrics: Metrics) -> pa.RecordBatch:
        return self._row(None, metrics)

    def _row(self, blob: bytes | None, metrics: Metrics) -> pa.RecordBatch:
        values = [pa.array([blob], pa.binary()), *(pa.array([metrics.get(name)], pa.int64()) for name in self.names)]
        return pa.RecordBatch.from_arrays(values, schema=self.schema)


def unpacked(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the blobs, in types that Spark takes."""
    for batch in batches:
        for blob in batch.column(0):
            for rows in table_from_bytes(blob.as_buffer()).to_batches():
                yield as_spark_takes_it(rows, schema)

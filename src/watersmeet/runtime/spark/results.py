"""Results on their way out of a bucket: blobs of rows, and one row of metrics. A later step, without state, turns blobs into rows.

Where a bucket has only parts of groups, its blobs go to the buckets of a second step, by group.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.operators.aggregate.codes import placing_codes
from watersmeet.operators.aggregate.partials import partial_keys
from watersmeet.runtime.spark.bucket import Metrics
from watersmeet.runtime.spark.kinds import as_spark_takes_it
from watersmeet.runtime.spark.packets import pieces_of, table_bytes, table_from_bytes

BLOB, BUCKET, ROUND = "blob", "bucket", "round"

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Emission:
    """The columns a bucket emits: a blob with the batch of a finite input it belongs to and the bucket it goes to next, and numbers that
    only the metrics row has. `names` are the metrics, in order; `labels` are the buckets of the second step, where there is one, and
    `keys` the number of group keys that say which."""

    names: tuple[str, ...]
    labels: tuple[int, ...] = (0,)
    keys: int = 0

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(BLOB, pa.binary()), (BUCKET, pa.int32()), (ROUND, pa.int32()), *((name, pa.int64()) for name in self.names)])

    def blobs(self, results: Generator[pa.RecordBatch, None, Returned], round_number: int = 0) -> Generator[pa.RecordBatch, None, Returned]:
        """Every batch of results as one blob or several; returns what the results' generator returns."""
        while True:
            try:
                batch = next(results)
            except StopIteration as over:
                returned: Returned = over.value
                return returned
            for label, rows in self._by_label(pa.Table.from_batches([batch])):
                for piece in pieces_of(rows):
                    yield self._row({BLOB: table_bytes(piece), BUCKET: label, ROUND: round_number})

    def metrics_row(self, metrics: Metrics) -> pa.RecordBatch:
        return self._row(metrics)

    def _by_label(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        if len(self.labels) == 1:
            yield self.labels[0], rows
            return
        codes = placing_codes(partial_keys(rows, self.keys), rows.num_rows)
        places = codes.view(np.uint64) % np.uint64(len(self.labels))
        for place in np.unique(places).tolist():
            yield self.labels[place], rows.filter(pa.array(places == place))

    def _row(self, values: Mapping[str, Any]) -> pa.RecordBatch:
        columns = [pa.array([values.get(field.name)], field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def unpacked(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the blobs, in types that Spark takes."""
    for batch in batches:
        for blob in batch.column(0):
            for rows in table_from_bytes(blob.as_buffer()).to_batches():
                yield as_spark_takes_it(rows, schema)

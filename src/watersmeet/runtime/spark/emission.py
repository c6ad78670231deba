"""Emission: the form in which results leave a bucket, with one row of metrics.

Spark iterates over every row that leaves a Python operator. So one row carries thousands of results. `BatchedRows` has
a list per column, which the JVM explodes into rows without another Python step. Where a bucket has only partial groups,
`PartialGroups` carries them as blobs to the buckets of a second step, by group.

Spark lacks some Arrow types. Unsigned integers become the next wider signed type, and uint64 becomes a decimal. Times
become microseconds; nanoseconds are rounded down.

A stateful operator of PySpark has to return pandas frames. PySpark turns every list in them into Python values before
it builds an Arrow batch again. Frames with Arrow-backed columns avoid both conversions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.algebra.arrow_types import BYTES_VIEWS, TEXT_VIEWS, null_array
from watersmeet.errors import InputError
from watersmeet.operators.aggregate.codes import combine_row_codes
from watersmeet.operators.aggregate.merging import read_partial_keys
from watersmeet.operators.expressions.temporal import convert_unit
from watersmeet.runtime.buckets.bucket import Metrics
from watersmeet.runtime.buckets.packets import encode_table, slice_by_bytes

BLOB, BUCKET, ROUND, METRICS = "blob", "bucket", "round", "metrics"

#: Approximate upper bound on a row of lists, so that it is exploded while it is in the processor's cache.
MAX_LIST_BYTES = 1 << 20
#: Approximate upper bound on the results that go to Spark at a time.
SLICE_BYTES = 1 << 24

Returned = TypeVar("Returned")
_SUBSTITUTES: dict[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("ns"),
    pa.time32("ms"): pa.time64("ns"),
    pa.time64("us"): pa.time64("ns"),
    **dict.fromkeys(TEXT_VIEWS, pa.string()),
    **dict.fromkeys(BYTES_VIEWS, pa.binary()),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


@dataclass(frozen=True)
class Emission(ABC):
    """Columns that a bucket emits: those that carry results, and `metrics`, which only one row fills.

    `metric_names` are the names of the numbers in that row, in order.
    """

    metric_names: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self._result_fields, pa.field(METRICS, _list_of(pa.int64()))])

    def emit(
        self, results: Generator[pa.RecordBatch, None, Returned], round_number: int = 0
    ) -> Generator[pa.RecordBatch, None, Returned]:
        """Yield every batch of results in encoded form; return the value that the generator of results returns."""
        while True:
            try:
                batch = next(results)
            except StopIteration as end:
                returned: Returned = end.value
                return returned
            for columns in self._encode_batch(batch, round_number):
                numbers = null_array(len(columns[0]), _list_of(pa.int64()))
                yield pa.RecordBatch.from_arrays([*columns, numbers], schema=self.schema)

    def metrics_row(self, metrics: Metrics) -> pa.RecordBatch:
        numbers = pa.array([[metrics.get(name) for name in self.metric_names]], _list_of(pa.int64()))
        return pa.RecordBatch.from_arrays(
            [*(pa.nulls(1, field.type) for field in self._result_fields), numbers], schema=self.schema
        )

    @property
    @abstractmethod
    def _result_fields(self) -> list[pa.Field[Any]]: ...

    @abstractmethod
    def _encode_batch(self, batch: pa.RecordBatch, round_number: int) -> Iterator[list[pa.Array[Any]]]:
        """Yield the columns of the rows that carry a batch of results, slice by slice."""
        ...


@dataclass(frozen=True)
class BatchedRows(Emission):
    """Final results as lists, one per column. `fields` are the columns, in types that Spark has."""

    fields: pa.Schema

    def explode_rows(self, emitted: DataFrame) -> DataFrame:
        """Return the results as rows. A row of metrics has no lists, so `posexplode` removes it."""
        first, *others = self._result_fields
        place, value = "place", "value"
        exploded = emitted.select(F.posexplode(first.name).alias(place, value), *(each.name for each in others))
        values = [F.col(value), *(F.col(each.name)[F.col(place)] for each in others)]
        return exploded.select(*(column.alias(name) for column, name in zip(values, self.fields.names, strict=True)))

    @property
    def _result_fields(self) -> list[pa.Field[Any]]:
        return [pa.field(f"column_{number}", _list_of(field.type)) for number, field in enumerate(self.fields)]

    def _encode_batch(self, batch: pa.RecordBatch, round_number: int) -> Iterator[list[pa.Array[Any]]]:
        for piece in slice_by_bytes(to_spark_batch(batch, self.fields), SLICE_BYTES):
            list_rows = max(1, piece.num_rows * MAX_LIST_BYTES // max(piece.nbytes, 1))
            ends = np.append(np.arange(0, piece.num_rows, list_rows), piece.num_rows).astype(np.int32)
            offsets = pa.array(ends, pa.int32())
            yield [pa.ListArray.from_arrays(offsets, values, type=_list_of(values.type)) for values in piece.columns]


@dataclass(frozen=True)
class PartialGroups(Emission):
    """Partial groups as blobs, each with its bucket in the second step and, if the input is finite, its round.

    `labels` are the buckets of the second step. The first `keys` columns, the group keys, decide the bucket.
    """

    labels: tuple[int, ...] = (0,)
    keys: int = 0

    @property
    def _result_fields(self) -> list[pa.Field[Any]]:
        return [pa.field(BLOB, pa.binary()), pa.field(BUCKET, pa.int32()), pa.field(ROUND, pa.int32())]

    def _encode_batch(self, batch: pa.RecordBatch, round_number: int) -> Iterator[list[pa.Array[Any]]]:
        for label, rows in self._by_label(pa.Table.from_batches([batch])):
            for piece in slice_by_bytes(rows):
                yield [
                    pa.array([encode_table(piece)]),
                    pa.array([label], pa.int32()),
                    pa.array([round_number], pa.int32()),
                ]

    def _by_label(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        if len(self.labels) == 1:
            yield self.labels[0], rows
            return
        codes = combine_row_codes(read_partial_keys(rows, self.keys), rows.num_rows)
        places = codes.view(np.uint64) % np.uint64(len(self.labels))
        for place in np.unique(places).tolist():
            yield self.labels[place], rows.filter(pa.array(places == place))


def _list_of(kind: pa.DataType) -> pa.DataType:
    """Return the list type with PySpark's name for its elements."""
    return pa.list_(pa.field("element", kind))


def to_spark_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark stores values of this type.

    >>> to_spark_type(pa.uint32()), to_spark_type(pa.timestamp("ns"))
    (DataType(int64), TimestampType(timestamp[us]))
    """
    substitute = _SUBSTITUTES.get(kind)
    if substitute is not None:
        return substitute
    if isinstance(kind, pa.TimestampType):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if isinstance(kind, pa.DurationType):
        return pa.duration("us")
    if pa.types.is_dictionary(kind):
        return to_spark_type(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return _to_nested_type(kind)


def to_spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in types that Spark has."""
    return pa.schema([(field.name, _check_spark_type(field)) for field in schema])


def to_spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to `schema`, which is `to_spark_schema` of its own schema."""
    columns = [_convert(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _to_nested_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(to_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, to_spark_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(to_spark_type(kind.key_type), to_spark_type(kind.item_type))
    return kind


def _check_spark_type(field: pa.Field[Any]) -> pa.DataType:
    kind = to_spark_type(field.type)
    if pa.types.is_decimal(kind) and (kind.precision > 38 or kind.scale < 0):
        raise InputError(
            f'column "{field.name}" is {field.type}; Spark has decimals of up to 38 digits', hint="CAST it"
        )
    return pa.decimal128(kind.precision, kind.scale) if pa.types.is_decimal(kind) else kind


def _convert(values: Any, kind: pa.DataType) -> Any:
    if values.type == kind:
        return values
    if isinstance(values.type, pa.TimestampType) and isinstance(kind, pa.TimestampType):
        return convert_unit(values, "us").view(kind)
    return values.cast(kind)


class _ArrowSeries(pd.Series):
    """An Arrow column to which PySpark applies no conversion of values."""

    @property
    def _constructor(self) -> type[pd.Series]:
        return _ArrowSeries

    def apply(self, *_: Any, **__: Any) -> Any:
        return self


class _ArrowFrame(pd.DataFrame):
    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return _ArrowFrame

    @property
    def _constructor_sliced(self) -> type[pd.Series]:
        return _ArrowSeries


def to_arrow_backed_frame(batch: pa.RecordBatch) -> pd.DataFrame:
    """Return the batch as a pandas frame over the same memory."""
    columns = {
        name: pd.arrays.ArrowExtensionArray(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return _ArrowFrame(columns, copy=False)

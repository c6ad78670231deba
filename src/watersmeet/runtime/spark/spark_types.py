"""Arrow data in the form that PySpark accepts: types, batches and pandas frames.

Spark lacks some Arrow types. Unsigned integers become the next wider signed type, and uint64 becomes a decimal. Times
become microseconds; nanoseconds are rounded down.

A stateful operator of PySpark has to return pandas frames. PySpark turns every list in them into Python values before
it builds an Arrow batch again. Frames with Arrow-backed columns avoid both conversions.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from watersmeet.algebra.arrow_types import BYTES_VIEWS, TEXT_VIEWS
from watersmeet.errors import InputError
from watersmeet.operators.expressions.temporal import convert_unit

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

"""Streams that Spark's own readers read: a format, its options and its columns.

A format and its options are passed to Spark's reader as values, and declared columns are turned into types here. No SQL
text is built from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.errors import InputError, listing
from watersmeet.runtime.spark.predicate_pushdown import quote_column
from watersmeet.runtime.spark.versions import read_spark_version

JSON = "json"
_VALUE = "value"
_NOT_FOUND = re.compile("Failed to find (the )?data source")
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")

#: Sources that are not part of Spark itself, and the package that provides them.
_PACKAGES = {"kafka": "spark-sql-kafka-0-10", "avro": "spark-avro", "kinesis": "spark-streaming-kinesis-asl"}

COLUMN_TYPES: Mapping[str, types.DataType] = {
    "string": types.StringType(),
    "boolean": types.BooleanType(),
    "byte": types.ByteType(),
    "short": types.ShortType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "binary": types.BinaryType(),
}


@dataclass(frozen=True)
class FormatSource:
    """A format by Spark's name, its options, and its columns by name and type.

    `value` is the encoding of the column `value`: JSON, or None to keep it as it is.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    value: str | None = None

    def __post_init__(self) -> None:
        if self.value not in (None, JSON):
            raise InputError(f'a value is read as "{JSON}" or kept as it is, not as "{self.value}"')
        if self.value == JSON and not self.columns:
            raise InputError(
                "a value that is JSON needs its columns declared",
                hint='schema = { item = "string", ts = "timestamp" }, with your columns',
            )

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the stream as a DataFrame. The columns of JSON messages follow the other columns of the source."""
        reader = spark.readStream.format(self.format).options(**self.options)
        if self.columns and self.value is None:
            reader = reader.schema(self.schema)
        try:
            frame = reader.load()
        except (PySparkException, Py4JJavaError) as error:
            raise self._explain_failure(error) from error
        return frame if self.value is None else self._decode_json(frame)

    @property
    def schema(self) -> types.StructType:
        return types.StructType(
            [types.StructField(name, parse_column_type(name, kind)) for name, kind in self.columns.items()]
        )

    def _decode_json(self, frame: DataFrame) -> DataFrame:
        if _VALUE not in frame.columns:
            raise InputError(
                f'format "{self.format}" has no column "{_VALUE}" to read JSON from',
                hint=f"it has {listing(frame.columns)}",
            )
        other_columns = [quote_column(name) for name in frame.columns if name != _VALUE and name not in self.columns]
        message = F.from_json(F.col(_VALUE).cast("string"), self.schema)
        return frame.select(*other_columns, message.alias("message")).select(*other_columns, "message.*")

    def _explain_failure(self, error: Exception) -> InputError:
        message = " ".join(str(error).split("\n\tat ")[0].split())[:300]
        if _NOT_FOUND.search(message) is None:
            return InputError(f'Spark cannot read format "{self.format}" with these options: {message}')
        if self.format not in _PACKAGES:
            return InputError(
                f'Spark has no source "{self.format}"',
                hint="kafka, rate, socket, and files: csv, json, parquet, orc, text",
            )
        package = f"org.apache.spark:{_PACKAGES[self.format]}_2.13:{read_spark_version()}"
        return InputError(
            f'Spark has no source "{self.format}": its connector is a separate package that this session does not have',
            hint=f'write jars.packages = "{package}" in the section [spark] of the job file, or set '
            f'PYSPARK_SUBMIT_ARGS="--packages {package} pyspark-shell"; without network access, list jar files in '
            f'jars = "..."',
        )


def parse_column_type(name: str, kind: str) -> types.DataType:
    """Return the type of a declared column.

    >>> parse_column_type("price", "decimal(10, 2)"), parse_column_type("ts", "timestamp")
    (DecimalType(10,2), TimestampType())
    """
    decimal = _DECIMAL.fullmatch(kind.strip().lower())
    if decimal is not None:
        return types.DecimalType(int(decimal[1]), int(decimal[2]))
    column_type = COLUMN_TYPES.get(kind.strip().lower())
    if column_type is None:
        raise InputError(
            f'column "{name}" is declared as "{kind[:40]}"', hint=f"kinds: {listing([*COLUMN_TYPES])}, decimal(10, 2)"
        )
    return column_type

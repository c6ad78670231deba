"""Streams that Spark's own readers read: a format, its options and its columns.

A format and its options are passed to Spark's reader as values, and declared columns are turned into types here. No SQL
text is built from them.

**Messages.** A message is a row with a column `value` in an encoding. Its columns replace `value`. A message without a
value, such as a tombstone of Kafka, is no row. A message that cannot be read stops the query, is skipped, or is
diverted to a directory, whole and with the reason. Spark counts all of them by stream (`observe_messages`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 # the name every Spark user knows

from watersmeet.errors import InputError, listing
from watersmeet.runtime.spark.batch_metrics import observe_messages
from watersmeet.runtime.spark.client import Py4JJavaError
from watersmeet.runtime.spark.diversion import divert_messages
from watersmeet.runtime.spark.predicate_pushdown import quote_column
from watersmeet.runtime.spark.versions import read_spark_version

JSON = "json"
STOP, SKIP, DIVERT = "stop", "skip", "divert"
_VALUE = "value"
#: Columns that exist only while messages are decoded.
_MESSAGE, _UNREADABLE, _REASON = "__watersmeet_message", "__watersmeet_unreadable", "__watersmeet_reason"
#: Columns that say where a message is.
_PLACE = ("topic", "partition", "offset")
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

    `value` is the encoding of the column `value`: JSON, or None to keep it as it is. `on_error` says what happens to a
    message that cannot be read. `diverted` is the directory of diverted messages, which all workers can write. `stream`
    is the name under which messages are counted, and `time` the column that every message needs.
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    value: str | None = None
    stream: str = ""
    time: str | None = None
    on_error: str = STOP
    diverted: str | None = None

    def __post_init__(self) -> None:
        if self.value not in (None, JSON):
            raise InputError(f'a value is read as "{JSON}" or kept as it is, not as "{self.value}"')
        if self.value == JSON and not self.columns:
            raise InputError(
                "a value that is JSON needs its columns declared",
                hint='schema = { item = "string", ts = "timestamp" }, with your columns',
            )
        if self.on_error not in (STOP, SKIP, DIVERT):
            raise InputError(f'on_error is "{STOP}", "{SKIP}" or "{DIVERT}", not "{self.on_error[:40]}"')
        if self.on_error != STOP and self.value is None:
            raise InputError(
                f'on_error = "{self.on_error}" is for messages that are decoded', hint=f'add value = "{JSON}"'
            )
        if (self.on_error == DIVERT) != (self.diverted is not None):
            raise InputError(
                "diverted messages need a directory, and only they do",
                hint=f'on_error = "{DIVERT}" and diverted = "DIRECTORY" belong together',
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
        kept = [name for name in frame.columns if name != _VALUE and name not in self.columns]
        unreadable = types.StructField(_UNREADABLE, types.StringType())
        message = F.from_json(
            F.col(_VALUE).cast("string"),
            types.StructType([*self.schema, unreadable]),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNREADABLE},
        )
        decoded = frame.select("*", message.alias(_MESSAGE))
        read = {name: F.col(_MESSAGE).getField(name) for name in self.columns}
        reason = self._find_problem(F.col(_MESSAGE).getField(_UNREADABLE), read)
        counted = observe_messages(decoded.withColumn(_REASON, reason), self.stream, _REASON, _VALUE)
        columns = [*(quote_column(name) for name in kept), *(column.alias(name) for name, column in read.items())]
        present = counted.filter(F.col(_VALUE).isNotNull())
        if self.diverted is None:
            readable = F.col(_REASON).isNull()
            wanted = readable if self.on_error == SKIP else readable | self._raise_problem(frame.columns)
            return present.filter(wanted).select(*columns)
        whole = F.struct(F.col(_REASON).alias("reason"), *(quote_column(name) for name in frame.columns))
        problem = F.when(F.col(_REASON).isNotNull(), whole)
        return divert_messages(present.select(*columns, problem.alias(_REASON)), _REASON, self.stream, self.diverted)

    def _find_problem(self, unreadable: Column, read: Mapping[str, Column]) -> Column:
        """Return the reason why a message cannot be read; null if it can, or if there is no message."""
        reason = F.when(unreadable.isNotNull(), F.lit("it is not JSON of the declared columns"))
        if self.time is not None and self.time in read:
            reason = reason.when(read[self.time].isNull(), F.lit(f'it has no time in "{self.time}"'))
        return F.when(F.col(_VALUE).isNotNull(), reason)

    def _raise_problem(self, names: list[str]) -> Column:
        """Return a condition that stops the query with the place of the message and the reason."""
        place = [F.concat(F.lit(f", {name} "), F.col(name).cast("string")) for name in _PLACE if name in names]
        sentence = F.concat(
            F.lit(f'stream "{self.stream}"'), *place, F.lit(": a message cannot be read: "), F.col(_REASON)
        )
        return F.raise_error(sentence).cast("boolean")

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

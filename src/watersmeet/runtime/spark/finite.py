"""A finite source next to one that never ends: its packets as a stream, one round per batch.

Spark does not union a finite DataFrame with a streaming one. A data source of ours emits round numbers; a step after it
replaces each number by the packets of that round. The packets are part of the query's plan, so Spark frees them with
the query: a data source that held them would stay registered until the session ends. An offset is the number of rounds
taken, so a restart continues after the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from watersmeet.runtime.spark.packets import PACKED, PACKED_DDL, table_bytes, table_from_bytes
from watersmeet.runtime.spark.session import is_first_in_session

_ROUNDS = "rounds"
_NUMBER = pa.schema([("round", pa.int32())])


def endless(spark: SparkSession, packets: pa.Table) -> DataFrame:
    """Return the packets as a streaming DataFrame that emits nothing once its rounds are over."""
    last = max(packets.column("round").to_pylist(), default=-1)
    blobs = [
        table_bytes(packets.filter(pa.compute.equal(packets.column("round"), number))) for number in range(last + 1)
    ]
    if is_first_in_session(spark, "register rounds"):
        spark.dataSource.register(RoundNumbers)
    numbers = spark.readStream.format(RoundNumbers.name()).option(_ROUNDS, str(len(blobs))).load()
    return numbers.mapInArrow(partial(_packets_of_rounds, blobs), PACKED_DDL)


def _packets_of_rounds(blobs: Sequence[bytes], numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replace round numbers by packets. A micro-batch is one round, so packets no longer need its number."""
    for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
        packets = table_from_bytes(blobs[number])
        together = packets.set_column(1, PACKED.field("round"), pa.nulls(len(packets), pa.int32()).fill_null(0))
        yield from together.to_batches()


class RoundNumbers(DataSource):
    """Numbers from zero up to the option `rounds`, one per batch."""

    @classmethod
    def name(cls) -> str:
        return "watersmeet_rounds"

    def schema(self) -> str:
        return "round int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 # Spark's own name
        return RoundReader(int(self.options[_ROUNDS]))


class RoundReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of round numbers, from the first to the last."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rounds": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"rounds": min(start["rounds"] + 1, self._rounds)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: no round is ever added."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["rounds"], end["rounds"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"round": partition.value}], _NUMBER)

"""A finite source beside one that never ends: its packets as a streaming source of their own, one round per batch.

Spark does not join a finite DataFrame to a streaming one. The packets travel with the source's definition, and an offset is the number of
rounds that were taken, so a restart from a checkpoint goes on where the rounds had come to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from watersmeet.runtime.spark.packets import PACKED, PACKED_DDL, table_bytes, table_from_bytes


def endless(spark: SparkSession, packets: pa.Table) -> DataFrame:
    """The packets as a streaming DataFrame that brings nothing once its rounds are over."""
    last = max(packets.column("round").to_pylist(), default=-1)
    blobs = [table_bytes(packets.filter(pa.compute.equal(packets.column("round"), number))) for number in range(last + 1)]
    digest = hashlib.sha256(b"".join(blobs)).hexdigest()[:16]

    class Rounds(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"watersmeet_{digest}"

        def schema(self) -> str:
            return PACKED_DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 # Spark's own name
            return RoundReader(blobs)

    spark.dataSource.register(Rounds)
    return spark.readStream.format(Rounds.name()).load()


class RoundReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One round per batch, from the first to the last."""

    def __init__(self, blobs: Sequence[bytes]) -> None:
        self._blobs = blobs

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rounds": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"rounds": min(start["rounds"] + 1, len(self._blobs))}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all there will ever be."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(self._blobs[number]) for number in range(start["rounds"], end["rounds"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        packets = table_from_bytes(partition.value)
        together = packets.set_column(1, PACKED.field("round"), pa.nulls(len(packets), pa.int32()).fill_null(0))
        yield from together.to_batches()

"""Data source of round numbers: zero, one, two, … up to a given number of rounds, one per micro-batch.

Before version 4.2, Spark does not tell a source where the next batch starts. All rounds are then in one micro-batch,
and the buckets process them in order.

Spark unpickles a data source in a new Python process per query. Keep the imports of this module few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from watersmeet.runtime.spark.versions import available_now_bases, current_traits

ROUNDS = "rounds"


class RoundNumbers(DataSource):
    """Data source of the numbers from zero up to the option `rounds`, one per batch."""

    @classmethod
    def name(cls) -> str:
        return "watersmeet_rounds"

    def schema(self) -> str:
        return "round int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 # Spark's own name
        reader = RoundReader if current_traits().reads_limited_offsets else AllRoundsReader
        return reader(int(self.options[ROUNDS]))


class AllRoundsReader(DataSourceStreamReader):
    """Reader of round numbers, all in one batch."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {ROUNDS: 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {ROUNDS: self._rounds}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start[ROUNDS], end[ROUNDS])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


class RoundReader(AllRoundsReader, *available_now_bases()):  # type: ignore[misc] # depends on the version
    """Reader of round numbers, one per batch."""

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {ROUNDS: min(start[ROUNDS] + 1, self._rounds)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: no round is ever added."""

"""Data source of round numbers: zero, one, two, … up to a given number of rounds, one per micro-batch.

Spark unpickles a data source in a new Python process per query. Keep the imports of this module few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

ROUNDS = "rounds"


class RoundNumbers(DataSource):
    """Data source of the numbers from zero up to the option `rounds`, one per batch."""

    @classmethod
    def name(cls) -> str:
        return "watersmeet_rounds"

    def schema(self) -> str:
        return "round int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 # Spark's own name
        return RoundReader(int(self.options[ROUNDS]))


class RoundReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of round numbers, from the first to the last."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {ROUNDS: 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {ROUNDS: min(start[ROUNDS] + 1, self._rounds)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: no round is ever added."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start[ROUNDS], end[ROUNDS])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

"""The second stateful step of an aggregation whose buckets have parts of groups: one bucket per share of the groups
adds them up.

All buckets of the first step evaluate the same instants in the same batch, because their watermarks are equal. So
everything that is to be added up for an instant arrives here in one batch, and whole groups are shown in the batch
their parts are.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import InternalError
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.merging import merge_partials
from watersmeet.operators.aggregate.state import AggregateState
from watersmeet.runtime.spark.bucket import BucketState
from watersmeet.runtime.spark.bucket_operators import AggregateOperator
from watersmeet.runtime.spark.packets import table_from_bytes
from watersmeet.runtime.watermark import Lateness, Watermark

#: What the second step counts, beside what the buckets do.
MERGE_METRICS = ("results", "state_rows", "state_bytes", "state_read_us", "join_us", "state_write_us")


@dataclass(frozen=True)
class Merger:
    """What adds up parts of groups. `labels` are its buckets."""

    config: AggregateConfig
    labels: tuple[int, ...]

    @property
    def operator(self) -> AggregateOperator:
        return AggregateOperator(self.config, {})

    @property
    def lateness(self) -> Mapping[str, Lateness]:
        """Time is decided before: there is no watermark here."""
        return {}

    def empty(self) -> BucketState:
        return BucketState(self.operator.empty(), Watermark.start(self.lateness))

    def advance(
        self, state: BucketState, parts: Iterable[tuple[int, Any]]
    ) -> Generator[pa.RecordBatch, None, BucketState]:
        """Adds up parts, given as blobs with their rounds, round after round."""
        by_round: dict[int, list[pa.Table]] = {}
        for number, blob in parts:
            by_round.setdefault(number, []).append(table_from_bytes(blob))
        inner = state.inner
        if not isinstance(inner, AggregateState):
            raise InternalError("a merger's state is an aggregation's")
        for number in sorted(by_round):
            shown, inner = merge_partials(self.config, inner, pa.concat_tables(by_round[number]))
            yield from shown
        return BucketState(inner, state.watermark)

"""An aggregation of which rows are shed, as a bucket runs it: the join over the rows that were kept, and estimates on
top.

Estimates of a group need all its combinations, so such a query runs in one bucket. Combinations are few where rows are
dropped for want of time; they are saved whole with every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.operators.aggregate.parts import Part as SavedWhole
from watersmeet.operators.shed.aggregation import ShedAggregation, ShedConfig
from watersmeet.operators.window_join.admission import Delta
from watersmeet.operators.window_join.driver import drained
from watersmeet.operators.window_join.serialization import SavedPart
from watersmeet.operators.window_join.state import MeetState
from watersmeet.runtime.spark.bucket_operators import MeetOperator, Part, Steps

ESTIMATES = "estimates"


@dataclass(frozen=True)
class ShedState:
    """The join's windows, and the combinations that are or will be inside them."""

    meet: MeetState
    aggregation: ShedAggregation


@dataclass(frozen=True)
class ShedOperator:
    """`join` gives combinations, with the identity and the time of each of their rows."""

    join: MeetOperator
    shed: ShedConfig

    def empty(self) -> ShedState:
        return ShedState(self.join.empty(), ShedAggregation(self.shed))

    def steps(
        self, state: ShedState, deltas: dict[int, Delta], watermark_us: int, future_us: int, largest_us: int
    ) -> Steps:
        found, (meet, counters) = drained(self.join.steps(state.meet, deltas, watermark_us, future_us, largest_us))
        aggregation = replace(
            state.aggregation
        )  # its fields are set anew, never changed, so the state before stays as it was
        shown = aggregation.step(found, largest_us, future_us)
        yield from shown
        return ShedState(meet, aggregation), replace(counters, results=sum(batch.num_rows for batch in shown))

    def parts(self, state: ShedState) -> Sequence[Part]:
        combinations = state.aggregation
        saved = SavedWhole(0, ESTIMATES, combinations, combinations.begins_us.size, combinations.to_bytes)
        return [saved, *self.join.parts(state.meet)]

    def restored(self, saved: Sequence[SavedPart]) -> ShedState:
        first, *rest = saved
        return ShedState(self.join.restored(rest), ShedAggregation.from_bytes(self.shed, first.blob))

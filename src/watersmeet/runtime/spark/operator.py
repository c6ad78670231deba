"""What a bucket runs, as the host sees it: an operator whose state is parts that turn into bytes one by one.

Parts that a step leaves alone are the same objects afterwards, so the host writes only what is new and deletes only what is gone.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.operators.meet.admission import Delta
from watersmeet.operators.meet.config import MeetConfig
from watersmeet.operators.meet.parts import Part, SavedPart, state_from_parts, state_parts
from watersmeet.operators.meet.state import MeetState, empty_state
from watersmeet.operators.meet.step import Counters, steps, with_relation
from watersmeet.runtime.spark.packets import table_from_bytes


class Operator(Protocol):
    """A function from state and a batch to results and the next state. Time is an argument."""

    def empty(self) -> Any: ...

    def steps(
        self, state: Any, deltas: dict[int, Delta], watermark_us: int, future_us: int
    ) -> Generator[pa.RecordBatch, None, tuple[Any, Counters]]:
        """Yields results in bounded pieces; returns the next state and what was counted."""

    def parts(self, state: Any) -> list[Part]: ...

    def restored(self, saved: Sequence[SavedPart]) -> Any: ...


@dataclass(frozen=True)
class MeetOperator:
    """The meet. Relations are not state: they travel with the query, as blobs."""

    config: MeetConfig
    relations: Mapping[int, bytes]

    def empty(self) -> MeetState:
        return self._with_relations(empty_state(self.config))

    def steps(
        self, state: MeetState, deltas: dict[int, Delta], watermark_us: int, future_us: int
    ) -> Generator[pa.RecordBatch, None, tuple[MeetState, Counters]]:
        return steps(self.config, state, deltas, watermark_us, future_us)

    def parts(self, state: MeetState) -> list[Part]:
        return state_parts(self.config, state)

    def restored(self, saved: Sequence[SavedPart]) -> MeetState:
        return self._with_relations(state_from_parts(self.config, saved))

    def _with_relations(self, state: MeetState) -> MeetState:
        for number, table in self._tables.items():
            state = with_relation(self.config, state, number, table)
        return state

    @cached_property
    def _tables(self) -> dict[int, pa.Table]:
        return {number: table_from_bytes(blob) for number, blob in self.relations.items()}

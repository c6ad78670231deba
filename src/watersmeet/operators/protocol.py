"""One protocol for every operator, so that a host never asks which operator it runs.

An operator is a frozen value. It turns a state and a batch into results and the next state. Time is an argument, never
a system call, so a batch that runs again gives the same results. The embedded host and a bucket on Spark each hold one
operator.

The state of an operator is a list of parts that are serialized one by one. A part that a batch does not change is the
same object afterwards. So a host writes only new parts, and deletes only parts that the state no longer contains.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.algebra.plan import Plan
from watersmeet.algebra.windows import FOREVER_US
from watersmeet.errors import InternalError
from watersmeet.operators.window_join.config import JoinInput
from watersmeet.operators.window_join.work_counters import WorkCounters

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class Clock:
    """Event time of one batch.

    Rows before `watermark_us` are late. `next_watermark_us` is a promise: later batches contain only rows at or after
    it, or late rows. `newest_us` is the largest event time seen so far on any stream.
    """

    watermark_us: int
    next_watermark_us: int
    newest_us: int = -FOREVER_US

    @property
    def has_ended(self) -> bool:
        """Whether no batch follows."""
        return self.next_watermark_us == FOREVER_US


@dataclass(frozen=True)
class InputBatch:
    """Rows of one input that a batch brings, with their event times."""

    table: pa.Table
    times: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.table.num_rows != self.times.size:
            raise InternalError("every row needs a time")

    def __len__(self) -> int:
        return self.times.size

    def filter(self, keep: NDArray[np.bool_]) -> InputBatch:
        return InputBatch(self.table.filter(pa.array(keep)), self.times[keep])


@dataclass(frozen=True)
class BatchCounters:
    """Rows of one batch per input, its results and its work."""

    arrived: tuple[int, ...]
    late: tuple[int, ...]
    results: int
    tally: WorkCounters


class StatePart(Protocol):
    """A part of the state of an input. A batch has changed it if and only if `value` is another object."""

    @property
    def input_number(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def value(self) -> Any: ...

    @property
    def rows(self) -> int: ...

    def to_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class SavedPart:
    """A part of the state of an input, serialized."""

    input_number: int
    kind: str
    blob: bytes | pa.Buffer


class OperatorState(Protocol):
    """Size of a state."""

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class OperatorConfig(Protocol):
    """The facts about an operator that a host needs."""

    @property
    def inputs(self) -> tuple[JoinInput, ...]: ...

    @property
    def stream_inputs(self) -> tuple[int, ...]: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def result(self) -> pa.Schema: ...


State = TypeVar("State", bound=OperatorState)

#: Yields results in pieces of bounded size; returns the next state and the counters.
BatchResults = Generator[pa.RecordBatch, None, tuple[State, BatchCounters]]


class Operator(Protocol[State]):
    """Window join, aggregation or shedding aggregation."""

    @property
    def config(self) -> OperatorConfig: ...

    def empty(self) -> State:
        """Return the state before the first batch. It contains the rows of the relations."""

    def advance(self, state: State, batches: Mapping[int, InputBatch], clock: Clock) -> BatchResults[State]:
        """Process one batch, given by input number. The operator may modify the state it gets."""

    def trim(self, before: State, after: State, clock: Clock) -> State:
        """Evict expired rows from the parts of `after` that are new since `before`.

        A host calls this before it writes the parts. Without it, results are the same and parts are larger.
        """

    def parts(self, state: State) -> Sequence[StatePart]:
        """Return all parts of a state."""

    def restore(self, saved: Sequence[SavedPart]) -> State:
        """Invert `parts`. The plan may differ from the one that the parts were saved with."""

    def replan(self, state: State, plan: Plan) -> tuple[Self, State]:
        """Return the operator with another plan, and the state for it. The results of later batches are the same."""


def exhaust(results: Generator[pa.RecordBatch, None, Returned]) -> tuple[list[pa.RecordBatch], Returned]:
    """Return everything that a generator yields, and its return value."""
    batches: list[pa.RecordBatch] = []
    while True:
        try:
            batches.append(next(results))
        except StopIteration as stop:
            return batches, stop.value

"""State as parts that are saved one by one: a pane, the rows that wait, a counter of rows.

Panes are immutable, so a part that a step did not touch is the same object afterwards; whoever saves parts by identity
never writes a window twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import InternalError
from watersmeet.operators.window_join.blobs import (
    counter_from_values,
    counter_values,
    ipc_bytes,
    pane_from_table,
    pane_table,
)
from watersmeet.operators.window_join.config import MeetConfig
from watersmeet.operators.window_join.pane import Pane
from watersmeet.operators.window_join.row_counter import RowCounter
from watersmeet.operators.window_join.state import InputState, MeetState

PANE, WAITING, COUNTER = "pane", "waiting", "counter"


@dataclass(frozen=True, slots=True)
class Part:
    """One value of the state of an input, as it is in memory."""

    number: int
    kind: str
    value: Pane | pa.Table | RowCounter

    @property
    def rows(self) -> int:
        return 0 if isinstance(self.value, RowCounter) else len(self.value)

    def bytes(self) -> bytes:
        if isinstance(self.value, Pane):
            return ipc_bytes(_without_twins(pane_table(self.value)))
        if isinstance(self.value, RowCounter):
            return json.dumps(counter_values(self.value)).encode()
        return ipc_bytes(self.value)


@dataclass(frozen=True, slots=True)
class SavedPart:
    number: int
    kind: str
    blob: bytes | pa.Buffer


def state_parts(config: MeetConfig, state: MeetState) -> list[Part]:
    """Everything the streams' states hold, panes oldest first. Relations are not among it: they do not change."""
    parts: list[Part] = []
    for i in config.streams:
        each = state.inputs[i]
        parts += [Part(i, PANE, pane) for pane in each.panes]
        if each.waiting is not None:
            parts.append(Part(i, WAITING, each.waiting))
        if each.counter is not None:
            parts.append(Part(i, COUNTER, each.counter))
    return parts


def state_from_parts(config: MeetConfig, saved: Sequence[SavedPart]) -> MeetState:
    """The inverse of `state_parts`: the parts of an input in the same order."""
    return MeetState(
        tuple(_input(config, i, [part for part in saved if part.number == i]) for i in range(len(config.inputs)))
    )


def _input(config: MeetConfig, number: int, saved: list[SavedPart]) -> InputState:
    panes = tuple(pane_from_table(_with_twins(_table(part.blob))) for part in saved if part.kind == PANE)
    waiting = [_table(part.blob) for part in saved if part.kind == WAITING]
    counters = [
        counter_from_values(config.inputs[number], json.loads(bytes(part.blob)))
        for part in saved
        if part.kind == COUNTER
    ]
    if len(waiting) > 1 or len(counters) > 1:
        raise InternalError("an input has one table of waiting rows and one counter at most")
    return InputState(panes, waiting[0] if waiting else None, counters[0] if counters else None)


def _table(blob: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def _without_twins(table: pa.Table) -> pa.Table:
    """The table without columns whose 64-bit values stand in another one as well: a time beside its own column, a key
    beside its code.
    """
    kept: dict[str, NDArray[np.int64]] = {}
    twins: dict[str, str] = {}
    for name in table.column_names:
        words = _words(table.column(name))
        if words is None:
            continue
        twin = next((other for other, its in kept.items() if np.array_equal(words, its)), None)
        if twin is None:
            kept[name] = words
        else:
            twins[name] = twin
    if not twins:
        return table
    about = {b"twins": json.dumps(twins).encode(), b"schema": table.schema.serialize().to_pybytes()}
    return table.drop_columns(list(twins)).replace_schema_metadata(about)


def _with_twins(table: pa.Table) -> pa.Table:
    about = table.schema.metadata or {}
    if b"twins" not in about:
        return table
    twins = json.loads(about[b"twins"])
    schema = pa.ipc.read_schema(pa.py_buffer(about[b"schema"]))
    columns = [
        _one_array(table.column(twins[f.name])).view(f.type) if f.name in twins else table.column(f.name)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _words(column: pa.ChunkedArray) -> NDArray[np.int64] | None:
    if column.null_count or not (pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type)):
        return None
    return np.asarray(_one_array(column).view(pa.int64()).to_numpy())


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

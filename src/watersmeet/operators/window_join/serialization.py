"""Serialization of the state of a window join, as parts that are saved one by one.

A part is a pane or a segment of one, the waiting rows or the row counter of one input. They are immutable, so a part
that a batch did not change is the same object afterwards. A host that compares parts by identity never writes an
unchanged part again. A part is an Arrow IPC stream or JSON. There are no pickles: a part is data, never code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import InputError, InternalError, listing
from watersmeet.operators.narrow_integers import downcast_integers, restore_integers
from watersmeet.operators.protocol import SavedPart
from watersmeet.operators.window_join.config import JoinConfig, JoinInput
from watersmeet.operators.window_join.pane import Pane
from watersmeet.operators.window_join.row_counter import RowCounter
from watersmeet.operators.window_join.segments import Segment
from watersmeet.operators.window_join.state import JoinState, WindowState, empty_state

PANE, WAITING, COUNTER = "pane", "waiting", "counter"

_COUNTER_ARRAYS = ("oldest", "newest", "held", "node_seq", "node_next")


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A part of the state of an input, in memory. `rows_of_segment` returns the rows of a segment that is not saved."""

    input_number: int
    kind: str
    value: Pane | Segment | pa.Table | RowCounter
    rows_of_segment: Callable[[], Pane] | None = None

    @property
    def rows(self) -> int:
        if isinstance(self.value, Segment):
            return self.value.rows
        return 0 if isinstance(self.value, RowCounter) else len(self.value)

    def to_bytes(self) -> bytes:
        """Return the serialized value."""
        value = self.value if self.rows_of_segment is None else self.rows_of_segment()
        if isinstance(value, Pane):
            return to_ipc_bytes(_shrink_table(pane_to_table(value)))
        if isinstance(value, RowCounter):
            return json.dumps(counter_to_dict(value)).encode()
        if isinstance(value, Segment):
            raise InternalError("a segment is saved by its rows")
        return to_ipc_bytes(value)


def list_state_parts(config: JoinConfig, state: JoinState) -> list[WindowPart]:
    """Return all state of the streams, panes oldest first. Relations are left out because they never change."""
    parts: list[WindowPart] = []
    for i in config.stream_inputs:
        each = state.inputs[i]
        if each.segments is None:
            parts += [WindowPart(i, PANE, pane) for pane in each.panes]
        else:
            parts += [
                WindowPart(i, PANE, segment, partial(each.segments.content, segment, stored))
                for stored in each.segmented_panes()
                for segment in stored.segments
            ]
        if each.waiting is not None:
            parts.append(WindowPart(i, WAITING, each.waiting))
        if each.counter is not None:
            parts.append(WindowPart(i, COUNTER, each.counter))
    return parts


def restore_state(config: JoinConfig, saved: Sequence[SavedPart], *, in_segments: bool = False) -> JoinState:
    """Invert `list_state_parts`; the parts of an input must come in the same order.

    With `in_segments`, the restored state is saved in segments, which are the parts.
    """
    if foreign := sorted({part.kind for part in saved} - {PANE, WAITING, COUNTER}):
        raise InputError(
            f"the saved state is of another plan: it has {listing(foreign)}",
            hint="start again with a new checkpoint, or with the plan of that run",
        )
    empty = empty_state(config, in_segments=in_segments)
    return JoinState(
        tuple(
            _restore_window(config, i, before, [part for part in saved if part.input_number == i])
            for i, before in enumerate(empty.inputs)
        )
    )


def _restore_window(config: JoinConfig, number: int, empty: WindowState, saved: list[SavedPart]) -> WindowState:
    source = config.inputs[number]
    panes = [pane_from_table(_restore_table(_read_table(part.blob))) for part in saved if part.kind == PANE]
    waiting = [_read_table(part.blob) for part in saved if part.kind == WAITING]
    counters = [counter_from_dict(source, json.loads(bytes(part.blob))) for part in saved if part.kind == COUNTER]
    if len(waiting) > 1 or len(counters) > 1:
        raise InternalError("an input has at most one table of waiting rows and at most one counter")
    restored = empty.restore_panes(panes, source.retention_us)
    return replace(restored, waiting=waiting[0] if waiting else None, counter=counters[0] if counters else None)


def _read_table(blob: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def _shrink_table(table: pa.Table) -> pa.Table:
    """Return the table with fewer bytes, and with metadata that restore it.

    Integers are narrow. Of columns with the same 64-bit values, such as a key that is equal to its code, one is kept.
    """
    twins = _find_twins(table)
    metadata = {b"twins": json.dumps(twins).encode(), b"schema": table.schema.serialize().to_pybytes()}
    return downcast_integers(table.drop_columns(list(twins))).replace_schema_metadata(metadata)


def _find_twins(table: pa.Table) -> dict[str, str]:
    """Return the earlier column that has the same 64-bit values, for each column that has one."""
    kept: dict[str, NDArray[np.int64]] = {}
    twins: dict[str, str] = {}
    for name in table.column_names:
        words = _as_int64(table.column(name))
        if words is None:
            continue
        twin = next((other for other, its in kept.items() if np.array_equal(words, its)), None)
        if twin is None:
            kept[name] = words
        else:
            twins[name] = twin
    return twins


def _restore_table(table: pa.Table) -> pa.Table:
    """Invert `_shrink_table`. In format 3, integers were wide, and a table without equal columns had no metadata."""
    metadata = table.schema.metadata or {}
    if b"schema" not in metadata:
        return table
    twins = json.loads(metadata[b"twins"])
    schema = pa.ipc.read_schema(pa.py_buffer(metadata[b"schema"]))
    wide = restore_integers([table], pa.schema([field for field in schema if field.name not in twins]))
    columns = [
        _combine_chunks(wide.column(twins[f.name])).view(f.type) if f.name in twins else wide.column(f.name)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def _as_int64(column: pa.ChunkedArray[Any]) -> NDArray[np.int64] | None:
    if column.null_count or not (pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type)):
        return None
    return np.asarray(_combine_chunks(column).view(pa.int64()).to_numpy())


def _combine_chunks(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    # The stubs type a chunk as a ChunkedArray.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[return-value]


def pane_to_table(pane: Pane) -> pa.Table:
    """Return a pane as a table. The first letter of a column name is its role.

    `t` time, `e` end of validity, `s` sequence number, `c` payload column, `k` key, `h` key code (hash).
    """
    columns: dict[str, pa.Array[Any]] = {"t": pa.array(pane.times)}
    if pane.ends is not None:
        columns["e"] = pa.array(pane.ends)
    if pane.seqs is not None:
        columns["s"] = pa.array(pane.seqs)
    columns |= {f"c{name}": values for name, values in pane.columns.items()}
    columns |= {f"k{key_class}": values for key_class, values in pane.keys.items()}
    columns |= {f"h{key_class}": pa.array(codes) for key_class, codes in pane.codes.items()}
    return pa.table(columns)


def pane_from_table(table: pa.Table) -> Pane:
    """Invert `pane_to_table`."""
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    numbers = {name: values.to_numpy() for name, values in arrays.items() if name[0] in "tesh"}
    return Pane(
        times=numbers["t"],
        columns={name[1:]: values for name, values in arrays.items() if name[0] == "c"},
        keys={int(name[1:]): values for name, values in arrays.items() if name[0] == "k"},
        codes={int(name[1:]): codes for name, codes in numbers.items() if name[0] == "h"},
        ends=numbers.get("e"),
        seqs=numbers.get("s"),
    )


def counter_to_dict(counter: RowCounter) -> dict[str, Any]:
    """Return a row counter as JSON values."""
    arrays = {name: getattr(counter, name).tolist() for name in _COUNTER_ARRAYS}
    return {**arrays, "partitions": list(counter.partitions), "nodes": counter.nodes, "next_seq": counter.next_seq}


def counter_from_dict(source: JoinInput, saved: dict[str, Any]) -> RowCounter:
    """Invert `counter_to_dict`."""
    if source.row_limit is None:
        raise InternalError(f'state of a ROWS window for "{source.alias}", which has none')
    arrays = {name: np.array(saved[name], np.int64) for name in _COUNTER_ARRAYS}
    partitions = {tuple(key): number for number, key in enumerate(saved["partitions"])}
    return RowCounter(source.row_limit, partitions, **arrays, nodes=saved["nodes"], next_seq=saved["next_seq"])


def to_ipc_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())

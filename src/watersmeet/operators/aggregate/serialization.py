"""Serialization of aggregation state: as one blob, or as parts that are saved one by one.

The state consists of the windows and the aggregation set. Tables and heaps are not saved: they are rebuilt from these.
The parts are the panes of the windows and the rest, which every batch changes. Rows of ROWS windows belong to the rest,
because later rows change their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import InputError, InternalError
from watersmeet.framing import decode_frame, encode_frame
from watersmeet.kernels.aggregation.arguments import DIRTY
from watersmeet.operators.aggregate.codes import Attributes, OrderCodes, ValueCodes, ValueNumbering
from watersmeet.operators.aggregate.config import AggregateConfig
from watersmeet.operators.aggregate.extremes import Extremes
from watersmeet.operators.aggregate.input_window import TimeWindow, WindowSegment
from watersmeet.operators.aggregate.result_set import SUM_COLUMNS, ResultSet
from watersmeet.operators.aggregate.state import AggregateState, InputState, empty_state, rebuild_tables
from watersmeet.operators.aggregate.window_changes import recompute_extremes
from watersmeet.operators.aggregate.window_rows import OUTSIDE, WindowRows
from watersmeet.operators.protocol import SavedPart
from watersmeet.operators.window_join.serialization import (
    counter_from_dict,
    counter_to_dict,
    to_ipc_bytes,
)

Array = NDArray[Any]
PartTables = Iterator[pa.Table]
#: Columns that are not saved with a pane.
_DERIVED_COLUMNS = ("seqs", "entry")
#: Name of each sum in a saved state. Saved states keep an older word for emitted sums.
_SAVED_SUMS = {name: name.replace("emitted_", "shown_") for name in SUM_COLUMNS}
PANE_PART, REST_PART = "pane", "rest"
AGGREGATION_FRAME = "aggregation"


class SavedScope(Enum):
    """Scope of a blob: the whole state, or everything but the panes (`split_into_parts`)."""

    ALL = "all"
    REST = "rest"


@dataclass(frozen=True)
class AggregatePart:
    """A pane, or the rest. The rest is rebuilt each time, so no two of them are the same object."""

    input_number: int
    kind: str
    value: Any
    rows: int
    to_bytes: Callable[[], bytes]


def serialize_state(state: AggregateState, saved: SavedScope = SavedScope.ALL) -> bytes:
    """Serialize the state. Valid at any point between two steps."""
    parts: list[bytes] = []
    header: dict[str, Any] = {
        "evaluated_us": state.evaluated_us,
        "largest_us": state.largest_us,
        "early_extremes": sorted(state.result.early_extremes),
    }
    for each in state.classes:
        _write_codes(each, parts)
    header["sides"] = [_write_input(each, parts, saved) for each in state.inputs]
    _write_result(state.result, parts)
    parts.append(_table_bytes({"row_times_us": state.row_times_us}))
    return encode_frame(AGGREGATION_FRAME, header, parts)[0]


def deserialize_state(config: AggregateConfig, blob: bytes) -> AggregateState:
    """Restore the state from `serialize_state`, for the same query and any plan of it."""
    state = rebuild_tables(config, _read_state(config, blob))
    recompute_extremes(config, state)
    return state


def _read_state(config: AggregateConfig, blob: bytes) -> AggregateState:
    """Read a state without its tables."""
    header, parts = _read_blob(blob)
    if len(header["sides"]) != len(config.inputs):
        raise InputError("the saved state belongs to a different query")
    state = empty_state(config)
    for each in state.classes:
        _read_codes(each, parts)
    for number, (input_state, saved) in enumerate(zip(state.inputs, header["sides"], strict=True)):
        _read_input(config, number, input_state, saved, parts)
    _read_result(state.result, parts)
    state.row_times_us = _read_arrays(next(parts), {"row_times_us": state.row_times_us})["row_times_us"]
    state.evaluated_us, state.largest_us = header["evaluated_us"], header["largest_us"]
    state.result.early_extremes = frozenset(header.get("early_extremes", ()))  # older states hold those of rows
    return state


def _read_blob(blob: bytes) -> tuple[Mapping[str, Any], PartTables]:
    try:
        frame = decode_frame(blob, AGGREGATION_FRAME)
    except ValueError as error:
        raise InputError(f"the saved state of an aggregation {error}") from error
    return frame.header, (_read_table(frame.part(blob, number)) for number in range(len(frame.places)))


def _read_table(blob: Any) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


def split_into_parts(state: AggregateState) -> list[AggregatePart]:
    """Return the rest first, then the panes by input, oldest first."""
    rest = serialize_state(state, SavedScope.REST)
    waiting = sum(0 if input_state.waiting is None else input_state.waiting.num_rows for input_state in state.inputs)
    counted = sum(len(input_state.window) for input_state in state.inputs if input_state.counter is not None)
    parts = [AggregatePart(0, REST_PART, rest, waiting + counted, lambda: rest)]
    for number, input_state in enumerate(state.inputs):
        parts += [_build_pane_part(number, segment) for segment in input_state.window.segments]
    return parts


def restore_from_parts(config: AggregateConfig, saved: Sequence[SavedPart]) -> AggregateState:
    """Restore the state from `split_into_parts`, for the same query and any plan of it."""
    rest, *panes = saved
    if rest.kind != REST_PART or any(each.kind != PANE_PART for each in panes):
        raise InternalError("the parts of an aggregation are in the wrong order")
    state = _read_state(config, bytes(rest.blob))
    for number, input_state in enumerate(state.inputs):
        blobs = [each.blob for each in panes if each.input_number == number]
        if isinstance(input_state.window, TimeWindow):
            saved_rows = [deserialize_rows(input_state.window.empty, blob) for blob in blobs]
            input_state.window.restore_segments(
                [_drop_expired_rows(config, number, each, state.evaluated_us) for each in saved_rows]
            )
    rebuild_tables(config, state)
    recompute_extremes(config, state)
    return state


def serialize_rows(rows: WindowRows) -> bytes:
    """Serialize the rows of a pane without derived columns.

    Derived are the entries, and the positions in streams that do not count rows.
    """
    return _table_bytes(
        {each.name: getattr(rows, each.name) for each in fields(WindowRows) if each.name not in _DERIVED_COLUMNS}
    )


def deserialize_rows(like: WindowRows, blob: bytes | pa.Buffer) -> WindowRows:
    """Restore the rows of a pane from `serialize_rows`, with the column types of `like`."""
    table = _read_table(blob)
    found = _read_arrays(
        table, {each.name: getattr(like, each.name) for each in fields(WindowRows) if each.name not in _DERIVED_COLUMNS}
    )
    derived: dict[str, Any] = {name: np.zeros(table.num_rows, np.int64) for name in _DERIVED_COLUMNS}
    return WindowRows(**found, **derived)


def _build_pane_part(number: int, segment: WindowSegment) -> AggregatePart:
    return AggregatePart(number, PANE_PART, segment, len(segment), lambda: serialize_rows(segment.rows))


def _drop_expired_rows(config: AggregateConfig, number: int, rows: WindowRows, evaluated_us: int) -> WindowRows:
    """Return the rows that had not expired by the last evaluation.

    Rows inside their window had entered by then; `rebuild_tables` finds their entries.
    """
    live_rows = rows.take(rows.ends >= evaluated_us)
    entered = config.row_starts_us(number, live_rows.times) <= evaluated_us
    inside = entered if config.inputs[number].is_stream else np.ones(len(live_rows), np.bool_)
    return live_rows.with_entries(np.where(inside, 0, OUTSIDE))


def _write_input(input_state: InputState, parts: list[bytes], saved: SavedScope) -> dict[str, Any]:
    window, in_parts = input_state.window, saved is SavedScope.REST and input_state.counter is None
    rows = window.empty if in_parts else window.read_rows()
    parts.append(_table_bytes({each.name: getattr(rows, each.name) for each in fields(WindowRows)}))
    _write_attributes(input_state.attributes, parts)
    if input_state.waiting is not None:
        parts.append(to_ipc_bytes(input_state.waiting))
    return {
        "waiting": input_state.waiting is not None,
        "counter": None if input_state.counter is None else counter_to_dict(input_state.counter),
    }


def _read_input(
    config: AggregateConfig, number: int, input_state: InputState, saved: dict[str, Any], parts: PartTables
) -> None:
    like = input_state.window.empty
    input_state.window.replace_rows(
        WindowRows(**_read_arrays(next(parts), {each.name: getattr(like, each.name) for each in fields(WindowRows)}))
    )
    _read_attributes(input_state.attributes, parts)
    input_state.waiting = next(parts) if saved["waiting"] else None
    input_state.counter = (
        None if saved["counter"] is None else counter_from_dict(config.inputs[number], saved["counter"])
    )


def _write_attributes(attributes: Attributes, parts: list[bytes]) -> None:
    for coder in attributes.coders:
        _write_codes(coder, parts)
    columns = {f"v{place}": attributes.values.column(place) for place in range(len(attributes.coders))}
    parts.append(to_ipc_bytes(pa.table({**_split_columns("words", attributes.words), **columns})))


def _read_attributes(attributes: Attributes, parts: PartTables) -> None:
    for coder in attributes.coders:
        _read_codes(coder, parts)
    table = next(parts)
    words = _read_array("words", table, attributes.words)
    attributes.restore(words, [table.column(f"v{place}").combine_chunks() for place in range(len(attributes.coders))])


def _write_result(result: ResultSet, parts: list[bytes]) -> None:
    for coder in _list_coders(result):
        _write_codes(coder, parts)
    groups = result.group_numbering.used
    dirty = np.zeros(groups, np.bool_)
    dirty[result.columns.dirty[: result.columns.progress[DIRTY]]] = True
    sums = {saved: getattr(result.columns, name)[:groups] for name, saved in _SAVED_SUMS.items()}
    parts.append(_table_bytes({"words": result.group_numbering.words, "dirty": dirty, **sums}))
    spanning = {f"v{place}": result.spanning_values.column(place) for place in range(len(result.spanning_codes))}
    parts.append(to_ipc_bytes(pa.table({"n": pa.array(np.arange(groups if spanning else 0)), **spanning})))
    for extremes in result.extremes.values():
        _write_extremes(extremes, groups, parts)


def _read_result(result: ResultSet, parts: PartTables) -> None:
    for coder in _list_coders(result):
        _read_codes(coder, parts)
    like = {"words": result.group_numbering.words, "dirty": np.zeros(0, np.bool_)}
    like |= {saved: getattr(result.columns, name) for name, saved in _SAVED_SUMS.items()}
    found = _read_arrays(next(parts), like)
    spanning = next(parts)
    values = [spanning.column(f"v{place}").combine_chunks() for place in range(len(result.spanning_codes))]
    sums = {name: found[saved] for name, saved in _SAVED_SUMS.items()}
    result.restore(found["words"], found["dirty"], sums, values)
    for extremes in result.extremes.values():
        _read_extremes(extremes, parts)


def _list_coders(result: ResultSet) -> list[ValueCodes | OrderCodes]:
    return [*result.spanning_codes, *result.order_codes]


def _write_extremes(extremes: Extremes, groups: int, parts: list[bytes]) -> None:
    used = extremes.nodes.used
    parts.append(_table_bytes({"words": extremes.nodes.words, "count": extremes.heaps.multiplicity[:used]}))
    shown = np.full(groups, -1, np.int64)
    shown[: min(groups, extremes.shown.size)] = extremes.shown[:groups]
    parts.append(_table_bytes({"shown": shown}))


def _read_extremes(extremes: Extremes, parts: PartTables) -> None:
    found = _read_arrays(next(parts), {"words": extremes.nodes.words, "count": extremes.heaps.multiplicity})
    shown = _read_arrays(next(parts), {"shown": extremes.shown})["shown"]
    extremes.restore(found["words"], found["count"], shown)


def _write_codes(coder: ValueCodes | OrderCodes, parts: list[bytes]) -> None:
    if coder.numbering is not None:
        parts.append(to_ipc_bytes(pa.table({"value": coder.numbering.values})))


def _read_codes(coder: ValueCodes | OrderCodes, parts: PartTables) -> None:
    if coder.numbering is not None:
        values = next(parts).column("value").to_pylist()
        coder.numbering = ValueNumbering(coder.numbering.type, {value: number for number, value in enumerate(values)})


def _table_bytes(arrays: dict[str, Array]) -> bytes:
    columns = {
        name: column for place, values in arrays.items() for name, column in _split_columns(place, values).items()
    }
    return to_ipc_bytes(pa.table(columns))


def _split_columns(name: str, values: Array) -> dict[str, pa.Array[Any]]:
    """Return a matrix as one Arrow column per matrix column."""
    if values.ndim == 1:
        return {name: pa.array(values)}
    return {f"{name} {place}": pa.array(np.ascontiguousarray(values[:, place])) for place in range(values.shape[1])}


def _read_arrays(table: pa.Table, like: dict[str, Array]) -> dict[str, Array]:
    return {name: _read_array(name, table, example) for name, example in like.items()}


def _read_array(name: str, table: pa.Table, like: Array) -> Array:
    """Return the array of this name, with the shape and type of `like` except for its length."""
    if like.ndim == 1:
        return np.array(table.column(name).to_numpy(), like.dtype)
    found = np.zeros((table.num_rows, like.shape[1]), like.dtype)
    for place in range(like.shape[1]):
        found[:, place] = table.column(f"{name} {place}").to_numpy()
    return found

"""State as bytes and back: a checksummed header in JSON, then Arrow IPC streams. No pickles: a blob is data, never
code.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.algebra.windows import RowsWindow
from watersmeet.errors import InputError, InternalError
from watersmeet.operators.window_join.config import MeetConfig, MeetInput
from watersmeet.operators.window_join.pane import Pane
from watersmeet.operators.window_join.row_counter import RowCounter
from watersmeet.operators.window_join.state import InputState, MeetState

_MAGIC = b"WMS1"
_ARRAYS = ("oldest", "newest", "held", "node_seq", "node_next")


def state_bytes(state: MeetState) -> bytes:
    """The whole state. Access paths are not part of it: they are made again when first probed."""
    parts: list[bytes] = []
    header = [_put_input(each, parts) for each in state.inputs]
    return packed({"inputs": header}, parts)


def state_from_bytes(config: MeetConfig, blob: bytes) -> MeetState:
    """The inverse of `state_bytes`, for the same query."""
    header, parts = opened(blob)
    if len(header["inputs"]) != len(config.inputs):
        raise InputError(f"the saved state has {len(header['inputs'])} inputs, the query has {len(config.inputs)}")
    return MeetState(
        tuple(_get_input(source, saved, parts) for source, saved in zip(config.inputs, header["inputs"], strict=True))
    )


def packed(header: dict[str, Any], parts: list[bytes]) -> bytes:
    """One blob out of a header and Arrow streams."""
    text = json.dumps({**header, "sizes": [len(part) for part in parts]}).encode()
    body = struct.pack("<I", len(text)) + text + b"".join(parts)
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def opened(blob: bytes) -> tuple[dict[str, Any], Iterator[pa.Table]]:
    if len(blob) < 12 or blob[:4] != _MAGIC:
        raise InputError("these bytes are not a saved state")
    body = memoryview(blob)[8:]
    if zlib.crc32(body) != struct.unpack_from("<I", blob, 4)[0]:
        raise InputError("the saved state is damaged: its checksum does not fit")
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(bytes(body[4 : 4 + length]))
    return header, _tables(body[4 + length :], header["sizes"])


def _tables(body: memoryview, sizes: list[int]) -> Iterator[pa.Table]:
    at = 0
    for size in sizes:
        yield pa.ipc.open_stream(pa.py_buffer(body[at : at + size])).read_all()
        at += size


def _put_input(state: InputState, parts: list[bytes]) -> dict[str, Any]:
    parts.extend(ipc_bytes(pane_table(pane)) for pane in state.panes)
    if state.waiting is not None:
        parts.append(ipc_bytes(state.waiting))
    return {
        "panes": len(state.panes),
        "waiting": state.waiting is not None,
        "counter": None if state.counter is None else counter_values(state.counter),
    }


def _get_input(source: MeetInput, saved: dict[str, Any], parts: Iterator[pa.Table]) -> InputState:
    panes = tuple(pane_from_table(next(parts)) for _ in range(saved["panes"]))
    waiting = next(parts) if saved["waiting"] else None
    counter = None if saved["counter"] is None else counter_from_values(source, saved["counter"])
    return InputState(panes, waiting, counter)


def pane_table(pane: Pane) -> pa.Table:
    columns: dict[str, pa.Array] = {"t": pa.array(pane.times)}
    if pane.ends is not None:
        columns["e"] = pa.array(pane.ends)
    if pane.seqs is not None:
        columns["s"] = pa.array(pane.seqs)
    columns |= {f"c{name}": values for name, values in pane.columns.items()}
    columns |= {f"k{key_class}": values for key_class, values in pane.keys.items()}
    columns |= {f"h{key_class}": pa.array(codes) for key_class, codes in pane.codes.items()}
    return pa.table(columns)


def pane_from_table(table: pa.Table) -> Pane:
    found = {name: table.column(name).combine_chunks() for name in table.column_names}
    numbers = {name: values.to_numpy() for name, values in found.items() if name[0] in "tesh"}
    return Pane(
        times=numbers["t"],
        columns={name[1:]: values for name, values in found.items() if name[0] == "c"},
        keys={int(name[1:]): values for name, values in found.items() if name[0] == "k"},
        codes={int(name[1:]): codes for name, codes in numbers.items() if name[0] == "h"},
        ends=numbers.get("e"),
        seqs=numbers.get("s"),
    )


def counter_values(counter: RowCounter) -> dict[str, Any]:
    arrays = {name: getattr(counter, name).tolist() for name in _ARRAYS}
    return {**arrays, "partitions": list(counter.partitions), "nodes": counter.nodes, "next_seq": counter.next_seq}


def counter_from_values(source: MeetInput, saved: dict[str, Any]) -> RowCounter:
    if not isinstance(source.window, RowsWindow):
        raise InternalError(f'state of a ROWS window for "{source.alias}", which has none')
    arrays = {name: np.array(saved[name], np.int64) for name in _ARRAYS}
    partitions = {tuple(key): number for number, key in enumerate(saved["partitions"])}
    return RowCounter(source.window, partitions, **arrays, nodes=saved["nodes"], next_seq=saved["next_seq"])


def ipc_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())

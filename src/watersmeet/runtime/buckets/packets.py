"""Packets: the rows that are shuffled between the stages of a query on Spark.

A packet carries thousands of tuples as one Arrow blob. Spark iterates over every row that enters a stateful Python
operator, and a packet is one row to Spark. It has these columns.

- `bucket` is the label that Spark groups by.
- `round` is the batch of a finite input that comes in several batches.
- `kind` says which rows a packet has (below).
- `source` is the number of the input (for rows) or of the stream (for other kinds).
- `rows`, `oldest_us` and `newest_us` are the number of rows and the range of their times. For a clock, they cover all
  rows of the stream that a task has read, selected or not. Every bucket gets every clock, so all compute the same
  watermark.
- `spent_us` is the time of the packing task. Only the clock that goes to the first bucket has it.

There are these kinds. `ROWS` are rows of an input. `ROW_COPIES` are copies of rows whose bounds overlap several ranges
of a value; the ledger counts these rows elsewhere. `CLOCK` is the clock of a stream. The other kinds have only times,
for the ledger: of rows that no input selects, of shed rows, and of rows without a role, which a ROWS window counts.

A packet is copied about eight times on its way from the packing task to the bucket. It passes through two sockets,
into rows, into and out of the shuffle, and into sort memory. Keys, times and amounts within a packet are close
together. So integers are narrow (`operators.narrow_integers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.errors import InputError
from watersmeet.framing import decode_frame, encode_unchecked_frame

PACKET_FRAME = "packet"

#: Approximate upper bound on the size of a blob. A hot key has many blobs, which are processed one at a time.
MAX_BLOB_BYTES = 1 << 22
#: Smaller blobs are sent to Spark in one batch.
MIN_BATCH_BYTES = 1 << 20

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

ROWS, CLOCK, UNSELECTED, SHED, WITHOUT_ROLE, ROW_COPIES = range(6)

_PACKED_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("bucket", pa.int32()),
    ("round", pa.int32()),
    ("kind", pa.int32()),
    ("source", pa.int32()),
    ("rows", pa.int64()),
    ("oldest_us", pa.int64()),
    ("newest_us", pa.int64()),
    ("spent_us", pa.int64()),
    ("blob", pa.binary()),
]
PACKED = pa.schema(_PACKED_COLUMNS)
PACKED_DDL = (
    "bucket int, round int, kind int, source int, rows long, oldest_us long, newest_us long, spent_us long, blob binary"
)


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet. The module describes its fields."""

    bucket: int
    round: int
    kind: int
    source: int
    rows: int
    oldest_us: int = 0
    newest_us: int = 0
    spent_us: int = 0
    blob: bytes | pa.Buffer = b""


def encode_packets(packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
    """Yield packets as record batches. A large blob gets its own batch and is not copied again."""
    gathered: list[Packet] = []
    size = 0
    for packet in packets:
        gathered.append(packet)
        size += len(packet.blob)
        if size >= MIN_BATCH_BYTES:
            yield _encode_packet_batch(gathered)
            gathered, size = [], 0
    if gathered:
        yield _encode_packet_batch(gathered)


def _encode_packet_batch(packets: list[Packet]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(packet, field.name) for packet in packets], field.type)
        for field in PACKED
        if field.name != "blob"
    ]
    return pa.RecordBatch.from_arrays([*columns, _concat_blobs([packet.blob for packet in packets])], schema=PACKED)


def _concat_blobs(blobs: list[bytes | pa.Buffer]) -> pa.Array[Any]:
    ends = np.cumsum([0, *map(len, blobs)]).astype(np.int32)
    joined = blobs[0] if len(blobs) == 1 else b"".join(blobs)
    return pa.Array.from_buffers(pa.binary(), len(blobs), [None, pa.py_buffer(ends.data), pa.py_buffer(joined)])


def decode_packets(batch: pa.RecordBatch | pa.Table) -> list[Packet]:
    return [Packet(**row) for row in batch.to_pylist()]


def slice_by_bytes(table: Rows, max_bytes: int = MAX_BLOB_BYTES) -> Iterator[Rows]:
    """Yield slices of about `max_bytes` at most, so that memory is bounded for any number of rows."""
    slice_rows = max(1, table.num_rows * max_bytes // max(table.nbytes, 1))
    for start in range(0, table.num_rows, slice_rows):
        yield table.slice(start, slice_rows)


def encode_table(table: pa.Table) -> bytes:
    """Encode a table as a frame around an Arrow IPC stream."""
    return bytes(encode_table_to_buffer(table))


def encode_table_to_buffer(table: pa.Table) -> pa.Buffer:
    """Encode a table into an Arrow buffer. Its size is measured first, because a growing buffer is copied."""
    size = pa.MockOutputStream()
    _write(table, size)
    start, end = encode_unchecked_frame(PACKET_FRAME, size.size())
    buffer = pa.allocate_buffer(len(start) + size.size() + len(end))
    sink = pa.FixedSizeBufferWriter(buffer)
    sink.write(start)
    _write(table, sink)
    sink.write(end)
    return buffer


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def decode_table(blob: Any) -> pa.Table:
    """Invert `encode_table`. Refuse a table that another version of the package encoded."""
    content = memoryview(blob)
    try:
        frame = decode_frame(content, PACKET_FRAME)
    except ValueError as error:
        raise InputError(
            f"a packet between two stages {error}",
            hint="the driver and all workers of Spark need the same version of Watersmeet",
        ) from error
    return pa.ipc.open_stream(pa.py_buffer(frame.part(content))).read_all()

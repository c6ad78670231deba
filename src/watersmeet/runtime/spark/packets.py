"""Packets: what travels between the stages of a query on Spark. A packet carries thousands of rows as one Arrow blob.

Spark walks every row that enters a Python operator with state; a packet is one row to it. The columns are

- `bucket`, the label it is grouped by; `round`, the batch it belongs to where a finite input comes in several;
- `kind`, what it carries: rows of an input, the clock of a stream, or times of rows that no input wants, or that were
  shed, for the ledger;
- `source`, the number of the input (rows) or of the stream (the others);
- `rows`, `oldest_us`, `newest_us`: how many rows there are and between which times; for a clock, of all that a task has
  read of the stream,
  wanted or not. Every bucket gets every clock, so all of them compute the same watermark;
- `spent_us`, the time the task took, on the clock of the first bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

#: A blob is about so large at most; a hot key gives many of them, one at a time.
MAX_BLOB_BYTES = 1 << 22
#: Blobs smaller than this travel to Spark together.
MIN_BATCH_BYTES = 1 << 20

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

ROWS, CLOCK, UNSELECTED, SHED = range(4)

PACKED = pa.schema(
    [
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
)
PACKED_DDL = (
    "bucket int, round int, kind int, source int, rows long, oldest_us long, newest_us long, spent_us long, blob binary"
)


@dataclass(frozen=True, slots=True)
class Packet:
    bucket: int
    round: int
    kind: int
    source: int
    rows: int
    oldest_us: int = 0
    newest_us: int = 0
    spent_us: int = 0
    blob: bytes | pa.Buffer = b""


def to_batches(packets: Iterable[Packet]) -> Iterator[pa.RecordBatch]:
    """Packets as batches of the columns above. Large blobs have batches of their own and are not copied again."""
    gathered: list[Packet] = []
    size = 0
    for packet in packets:
        gathered.append(packet)
        size += len(packet.blob)
        if size >= MIN_BATCH_BYTES:
            yield _to_batch(gathered)
            gathered, size = [], 0
    if gathered:
        yield _to_batch(gathered)


def _to_batch(packets: list[Packet]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(packet, field.name) for packet in packets], field.type)
        for field in PACKED
        if field.name != "blob"
    ]
    return pa.RecordBatch.from_arrays([*columns, _concat_blobs([packet.blob for packet in packets])], schema=PACKED)


def _concat_blobs(blobs: list[bytes | pa.Buffer]) -> pa.Array:
    ends = np.cumsum([0, *map(len, blobs)]).astype(np.int32)
    together = blobs[0] if len(blobs) == 1 else b"".join(blobs)
    return pa.Array.from_buffers(pa.binary(), len(blobs), [None, pa.py_buffer(ends), pa.py_buffer(together)])


def from_batch(batch: pa.RecordBatch | pa.Table) -> list[Packet]:
    return [Packet(**row) for row in batch.to_pylist()]


def slice_by_bytes(table: Rows, most_bytes: int = MAX_BLOB_BYTES) -> Iterator[Rows]:
    """The table cut so that no piece is much larger than that, and memory is bounded however many rows there are."""
    at_once = max(1, table.num_rows * most_bytes // max(table.nbytes, 1))
    for start in range(0, table.num_rows, at_once):
        yield table.slice(start, at_once)


def encode_table(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    return bytes(encode_table_to_buffer(table))


def encode_table_to_buffer(table: pa.Table) -> pa.Buffer:
    """The same in memory of Arrow's, which is measured first: memory that grows is copied."""
    measured = pa.MockOutputStream()
    _write(table, measured)
    buffer = pa.allocate_buffer(measured.size())
    _write(table, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def decode_table(blob: Any) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()

"""Packets keep their blobs and their order, small ones share a batch, and large files are read in batches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.errors import InputError
from watersmeet.runtime.buckets.packets import (
    MIN_BATCH_BYTES,
    PACKED,
    ROWS,
    Packet,
    decode_packets,
    decode_table,
    encode_packets,
    encode_table,
    encode_table_to_buffer,
)
from watersmeet.sources.files import BATCH_ROWS, read_file_in_batches

TABLE = pa.table(
    {"k": pa.array([1, None, 3]), "word": ["a", "", None], "ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))}
)


def test_a_decoded_table_equals_the_encoded_one() -> None:
    assert decode_table(encode_table_to_buffer(TABLE)).equals(TABLE)
    assert bytes(encode_table_to_buffer(TABLE)) == encode_table(TABLE)
    assert decode_table(encode_table(TABLE.slice(1, 1))).equals(TABLE.slice(1, 1))


@pytest.mark.parametrize(
    "sizes", [[], [0], [3, 0, 5], [MIN_BATCH_BYTES], [1, MIN_BATCH_BYTES, 2, 3], [MIN_BATCH_BYTES - 1, 1, 1]]
)
def test_packets_are_decoded_completely_and_in_order(sizes: list[int]) -> None:
    packets = [Packet(number, 0, ROWS, 1, size, blob=bytes([number]) * size) for number, size in enumerate(sizes)]
    batches = list(encode_packets(packets))
    assert all(batch.schema == PACKED for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    assert [packet for batch in batches for packet in decode_packets(batch)] == packets
    assert len(batches) <= 1 + sum(sizes) // MIN_BATCH_BYTES


def test_a_file_read_in_batches_has_all_its_rows(tmp_path: Path) -> None:
    table = pa.table(
        {"ts": pa.array(range(BATCH_ROWS + 7), pa.int64()), "x": pa.array(range(BATCH_ROWS + 7), pa.int64())}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100_000)
    pieces = list(read_file_in_batches(tmp_path / "a.parquet", "ts", ["x", "ts"]))
    assert pa.concat_tables(pieces).equals(table.select(["x", "ts"]))
    assert max(piece.num_rows for piece in pieces) <= BATCH_ROWS


def test_a_file_without_rows_still_has_its_columns(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 0), tmp_path / "a.parquet")
    assert [piece.schema.names for piece in read_file_in_batches(tmp_path / "a.parquet", "ts", ["ts", "k"])] == [
        ["ts", "k"]
    ]
    with pytest.raises(InputError, match="has no column"):
        list(read_file_in_batches(tmp_path / "a.parquet", "ts", ["ts", "other"]))


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, kept: float) -> None:
    file = tmp_path / "truncated.parquet"
    pq.write_table(TABLE, file)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(InputError, match=r"truncated\.parquet"):
        list(read_file_in_batches(file, "ts", ["ts"]))


def test_a_format_without_row_groups_is_read_in_one_batch(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,k\n2026-01-01T00:00:00Z,1\n2026-01-01T00:00:01Z,2\n")
    (piece,) = read_file_in_batches(tmp_path / "a.csv", "ts", ["ts", "k"])
    assert piece.column("k").to_pylist() == [1, 2]

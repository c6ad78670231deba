"""Hadoop's checksum files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from watersmeet.checkpoint.spark_files import checksum_path, contradicts_checksum

CONTENT = bytes(range(256)) * 5


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "7.changelog"
    place.write_bytes(CONTENT)
    sums = [zlib.crc32(CONTENT[at : at + 512]) for at in range(0, len(CONTENT), 512)]
    checksum_path(place).write_bytes(b"crc\0" + struct.pack(f">I{len(sums)}I", 512, *sums))
    return place


def test_a_file_as_it_was_written_agrees(place: Path) -> None:
    assert not contradicts_checksum(place)


@pytest.mark.parametrize("content", [b"", CONTENT[:512], CONTENT[:-1], CONTENT + b"x", b"y" + CONTENT[1:]])
def test_any_other_content_does_not(place: Path, content: bytes) -> None:
    place.write_bytes(content)
    assert contradicts_checksum(place)


def test_a_file_without_a_checksum_is_not_judged(place: Path) -> None:
    checksum_path(place).unlink()
    assert not contradicts_checksum(place)


@pytest.mark.parametrize("sums", [b"", b"crc\0", b"src\0\0\0\2\0aaaa", b"crc\0\0\0\2\0aaa"])
def test_a_torn_checksum_is_a_contradiction(place: Path, sums: bytes) -> None:
    checksum_path(place).write_bytes(sums)
    assert contradicts_checksum(place)

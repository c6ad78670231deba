"""Frames: any change of a byte is noticed, and a file of another version is not reported as damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from watersmeet import framing
from watersmeet.files import write_atomically
from watersmeet.framing import (
    DamagedFileError,
    decode_frame,
    encode_frame,
    encode_unchecked_frame,
    open_file,
    read_frame,
    read_part,
)

PARTS = [bytes(range(100)), b"", bytes(64)]
CONTENT, DIGEST = encode_frame("state", {"batch": 7, "record": "ab"}, PARTS)


def test_a_frame_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "deep" / "7.run", CONTENT)
    frame = read_frame(tmp_path / "deep" / "7.run", "state")
    assert (frame.header, frame.digest) == ({"batch": 7, "record": "ab"}, DIGEST)
    assert [bytes(frame.part(CONTENT, number)) for number in range(3)] == PARTS
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["7.run"]


def test_any_flipped_bit_is_noticed() -> None:
    for bit in range(8 * len(CONTENT)):
        changed = bytearray(CONTENT)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="is damaged"):
            decode_frame(bytes(changed), "state")


def test_any_truncation_and_any_addition_is_noticed() -> None:
    for content in [*(CONTENT[:length] for length in range(len(CONTENT))), CONTENT + b"\n", b" " + CONTENT]:
        with pytest.raises(ValueError, match="is damaged"):
            decode_frame(content, "state")


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="it holds a state where a batch belongs"):
        decode_frame(CONTENT, "batch")


def test_a_file_of_a_newer_version_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(framing, "FORMAT_VERSION", 5)
        content, _ = encode_frame("state", {"batch": 7})
    with pytest.raises(ValueError, match="another version of Watersmeet: format 5, this version reads formats 3 and 4"):
        decode_frame(content, "state")


def test_a_file_of_format_2_is_not_called_damaged() -> None:
    content = b'{"watersmeet": "batch", "version": 2, "sha256": "' + b"0" * 64 + b'"}\n{"batch": 12}\n'
    with pytest.raises(ValueError, match="another version of Watersmeet: format 2, this version reads formats 3 and 4"):
        decode_frame(content, "batch")


def test_parts_begin_at_multiples_of_64_bytes() -> None:
    for length in range(70):
        content, _ = encode_frame("state", {"pad": "x" * length}, PARTS)
        assert {place.offset % 64 for place in decode_frame(content, "state").places} == {0}


def test_a_part_is_read_without_the_others(tmp_path: Path) -> None:
    place = decode_frame(CONTENT, "state").places[0]
    damaged = CONTENT[: place.end] + b"?" * (len(CONTENT) - place.end)
    (tmp_path / "7.parts").write_bytes(damaged)
    with open_file(tmp_path / "7.parts") as file:
        assert bytes(read_part(tmp_path / "7.parts", file, place)) == PARTS[0]
        with pytest.raises(DamagedFileError, match=r'7\.parts" is damaged: it ends too early'):
            read_part(tmp_path / "7.parts", file, replace(place, size=10_000))


def test_a_part_without_a_checksum_is_returned_as_it_is() -> None:
    content = b"abc".join(encode_unchecked_frame("packet", 3))
    assert bytes(decode_frame(content, "packet").part(content)) == b"abc"


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r'7\.run" is missing'):
        read_frame(tmp_path / "7.run", "state")
    (tmp_path / "7.run").mkdir()
    with pytest.raises(DamagedFileError, match=r'7\.run" cannot be read'):
        read_frame(tmp_path / "7.run", "state")

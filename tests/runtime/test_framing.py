"""Frames: any change of a byte is noticed, and a file of another version is not reported as damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.checkpoint import framing
from watersmeet.checkpoint.framing import DamagedFileError, decode_frame, encode_frame, read_frame
from watersmeet.files import write_atomically

CONTENT, DIGEST = encode_frame("state", {"batch": 7, "record": "ab"}, bytes(range(256)))


def test_a_frame_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "deep" / "7.run", CONTENT)
    frame = read_frame(tmp_path / "deep" / "7.run", "state")
    assert (frame.header, frame.body, frame.digest) == ({"batch": 7, "record": "ab"}, bytes(range(256)), DIGEST)
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
        newer.setattr(framing, "FORMAT_VERSION", 3)
        content, _ = encode_frame("state", {"batch": 7})
    with pytest.raises(ValueError, match="another version of Watersmeet: format 3, this version reads format 2"):
        decode_frame(content, "state")


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r'7\.run" is missing'):
        read_frame(tmp_path / "7.run", "state")
    (tmp_path / "7.run").mkdir()
    with pytest.raises(DamagedFileError, match=r'7\.run" cannot be read'):
        read_frame(tmp_path / "7.run", "state")

"""One frame for everything that Watersmeet writes and reads back.

Checkpoint files, plan logs, output owners, entries in Spark's state store and packets between Spark's stages have it.

    {"watersmeet": "state", "version": 4, "header": 000362, "crc32": "9f86d081"}
    {"batch": 12, …, "parts": [[1024, "1c291ca3"], [80, "60e05123"]]}
    …                                                       parts: any bytes, often none

The first line has the kind of content, the format version, and the size and checksum of the header. The second line is
the header: JSON, with the size and checksum of each part. So a reader can check and use one part without reading the
others. Spaces behind the header and zeros behind a part align every part to 64 bytes, as Arrow recommends.
A frame holds no code.

The digest of a frame is a hash of its header. A file names its predecessor by it, so an intact file in the wrong place
is noticed too. The first line keeps its layout in every format version, so that a frame of another version is not
mistaken for a damaged one.

**Upgrade promise.** From format 3 on, each version reads the format of the version before it.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from watersmeet.errors import InputError

#: Format that this version writes.
FORMAT_VERSION = 4
#: Formats that this version reads.
READABLE_VERSIONS = (3, 4)
#: Parts begin at multiples of this.
ALIGNMENT = 64

_FIRST_LINE = re.compile(
    rb'\{"watersmeet": "([a-z]{1,20})", "version": ([0-9]{1,6}), "header": ([0-9]{6,9}), "crc32": "([0-9a-f]{8})"\}\n'
)
#: First line of format 2, whose checksum covers all bytes behind it.
_FIRST_LINE_OF_FORMAT_2 = re.compile(rb'\{"watersmeet": "[a-z]{1,20}", "version": 2, "sha256": "[0-9a-f]{64}"\}\n')
_UNCHECKED = "unchecked"
#: Bytes of a part.
Content = bytes | bytearray | memoryview


class OtherFormatError(ValueError):
    """An intact frame of a format that this version does not read."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"was written by another version of Watersmeet: format {version}, "
            f"this version reads formats {' and '.join(map(str, READABLE_VERSIONS))}"
        )


class DamagedFileError(InputError):
    """Damaged file of ours: `path` is the file, `problem` describes the damage."""

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f'"{path}" {problem}', hint=hint)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Place of a part in its frame. `crc32` covers the part and the zeros behind it; None if it is not checked."""

    offset: int
    size: int
    crc32: str | None

    @property
    def end(self) -> int:
        """Offset behind the zeros that follow the part."""
        return self.offset + _align(self.size)


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """Everything of a frame but the bytes of its parts."""

    kind: str
    version: int
    header: Mapping[str, Any]
    places: tuple[PartPlace, ...]
    end: int  # offset behind the last part
    digest: str

    def part(self, content: Content, number: int = 0) -> memoryview:
        """Return a part of the frame's bytes; a `ValueError` describes its damage."""
        return check_part(
            memoryview(content)[self.places[number].offset : self.places[number].end], self.places[number]
        )


def encode_frame(kind: str, header: Mapping[str, Any], parts: Sequence[Content] = ()) -> tuple[bytes, str]:
    """Return the bytes of a frame and its digest.

    >>> content, digest = encode_frame("batch", {"batch": 12}, [b"rows"])
    >>> frame = decode_frame(content, "batch")
    >>> frame.header, bytes(frame.part(content)), frame.digest == digest
    ({'batch': 12}, b'rows', True)
    """
    padded = [b"".join([part, bytes(_align(len(part)) - len(part))]) for part in parts]
    sums = [[len(part), _checksum(each)] for part, each in zip(parts, padded, strict=True)]
    start, digest = _encode_start(kind, header, sums)
    return b"".join([start, *padded]), digest


def encode_unchecked_frame(kind: str, size: int) -> tuple[bytes, bytes]:
    """Return the bytes in front of and behind a single part that has this size and no checksum.

    Packets use it: Spark verifies the blocks of a shuffle itself, so a second checksum would only cost time.
    """
    return _encode_start(kind, {}, [[size, _UNCHECKED]])[0], bytes(_align(size) - size)


def decode_frame(content: Content, kind: str) -> FrameHeader:
    """Return the header of a frame that is completely intact; a `ValueError` describes the damage.

    >>> decode_frame(encode_frame("batch", {"batch": 12})[0].replace(b"12,", b"13,"), "batch")
    Traceback (most recent call last):
    ValueError: is damaged: its checksum does not match
    """
    frame = decode_header(content, kind)
    _check_size(frame, len(content))
    for number in range(len(frame.places)):
        frame.part(content, number)
    return frame


def decode_header(content: Content, kind: str) -> FrameHeader:
    """Return the header of a frame without looking at its parts; a `ValueError` describes the damage."""
    first = _FIRST_LINE.match(content)
    if first is None:
        if _FIRST_LINE_OF_FORMAT_2.match(content) is not None:
            raise OtherFormatError(2)
        raise ValueError("is damaged: it does not begin as a file of Watersmeet")
    end = first.end() + int(first[3])
    text, actual_kind, version = bytes(content[first.end() : end]), first[1].decode(), int(first[2])
    if len(text) != int(first[3]) or _checksum(_list_covered_bytes(actual_kind, version, text)) != first[4].decode():
        raise ValueError("is damaged: its checksum does not match")
    # The checksum matches, so another version is not just a flipped bit.
    if version not in READABLE_VERSIONS:
        raise OtherFormatError(version)
    if actual_kind != kind:
        raise ValueError(f"is damaged: it holds a {actual_kind} where a {kind} belongs")
    header = json.loads(text)
    places = _locate_parts(header.pop("parts"), end)
    end = places[-1].end if places else end
    return FrameHeader(actual_kind, version, header, places, end, _digest(actual_kind, version, text))


def check_part(content: memoryview, place: PartPlace) -> memoryview:
    """Return a part without the zeros behind it; a `ValueError` describes its damage."""
    if len(content) != place.end - place.offset:
        raise ValueError("is damaged: it ends too early")
    if place.crc32 is not None and _checksum(content) != place.crc32:
        raise ValueError("is damaged: its checksum does not match")
    return content[: place.size]


def read_frame(path: Path, kind: str) -> FrameHeader:
    """Read a complete file; a `DamagedFileError` names it if it is missing, damaged or another file."""
    with _name_damage(path), path.open("rb") as file:
        return decode_frame(file.read(), kind)


def open_file(path: Path) -> BinaryIO:
    """Open a file for `read_part`; a `DamagedFileError` names it if it is missing or cannot be read."""
    with _name_damage(path):
        return path.open("rb")


def read_part(path: Path, file: BinaryIO, place: PartPlace) -> memoryview:
    """Read and check one part of an open file."""
    with _name_damage(path):
        file.seek(place.offset)
        return check_part(memoryview(file.read(place.end - place.offset)), place)


@contextmanager
def _name_damage(path: Path) -> Iterator[None]:
    """Turn a failed read into an error that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(path, "is missing") from error
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DamagedFileError(path, str(error)) from error


def _encode_start(kind: str, header: Mapping[str, Any], sums: list[list[Any]]) -> tuple[bytes, str]:
    """Return the first line and the header, padded so that parts begin at a multiple of `ALIGNMENT`; and the digest."""
    text = json.dumps({**header, "parts": sums}).encode()
    # The size of the header is part of the first line, whose length depends on it: pad up to a size of six digits.
    length = len(_encode_first_line(kind, 100_000, "0" * 8)) + len(text) + 1
    text += b" " * (_align(length) - length) + b"\n"
    first = _encode_first_line(kind, len(text), _checksum(_list_covered_bytes(kind, FORMAT_VERSION, text)))
    return first + text, _digest(kind, FORMAT_VERSION, text)


def _encode_first_line(kind: str, size: int, crc32: str) -> bytes:
    line = f'{{"watersmeet": "{kind}", "version": {FORMAT_VERSION}, "header": {size:06d}, "crc32": "{crc32}"}}\n'
    return line.encode()


def _locate_parts(sums: list[list[Any]], offset: int) -> tuple[PartPlace, ...]:
    places: list[PartPlace] = []
    for size, crc32 in sums:
        places.append(PartPlace(offset, size, None if crc32 == _UNCHECKED else crc32))
        offset = places[-1].end
    return tuple(places)


def _check_size(frame: FrameHeader, size: int) -> None:
    if size != frame.end:
        raise ValueError(f"is damaged: it has {size:,} bytes instead of {frame.end:,}")


def _list_covered_bytes(kind: str, version: int, text: bytes) -> bytes:
    """Return the bytes that the checksum and the digest of a header cover."""
    return f"{kind} {version}\n".encode() + text


def _digest(kind: str, version: int, text: bytes) -> str:
    return hashlib.sha256(_list_covered_bytes(kind, version, text)).hexdigest()


def _checksum(content: Content) -> str:
    return f"{zlib.crc32(content):08x}"


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

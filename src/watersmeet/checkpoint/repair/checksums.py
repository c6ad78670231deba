"""The checksums that Hadoop keeps beside the files it writes to a local disk: `.name.crc` beside `name`.

A checksum file is the letters `crc` and a zero, the number of bytes that one sum is over, and the sums, all in
big-endian words.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

_MAGIC = b"crc\0"
_HEAD = struct.Struct(">4sI")


def checksum_of(place: Path) -> Path:
    return place.with_name(f".{place.name}.crc")


def with_checksum(place: Path) -> tuple[Path, ...]:
    """The file and its checksum: a checksum alone would make the next file of that name look damaged."""
    return (place, checksum_of(place)) if checksum_of(place).exists() else (place,)


def contradicts_checksum(place: Path) -> bool:
    """Whether the file is not what was written, as far as a checksum beside it tells; a torn checksum is a
    contradiction too.
    """
    try:
        sums = checksum_of(place).read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if len(sums) < _HEAD.size or (len(sums) - _HEAD.size) % 4:
        return True
    magic, length = _HEAD.unpack_from(sums)
    return magic != _MAGIC or length < 1 or not _agree(place, sums[_HEAD.size :], length)


def _agree(place: Path, sums: bytes, length: int) -> bool:
    wanted = iter(struct.unpack(f">{len(sums) // 4}I", sums))
    try:
        with place.open("rb") as opened:
            while piece := opened.read(length):
                if zlib.crc32(piece) != next(wanted, None):
                    return False
    except OSError:
        return False
    return next(wanted, None) is None

"""One frame for every file that Watersmeet writes and reads back: checkpoints, plan logs, output owners.

    {"watersmeet": "batch", "version": 2, "sha256": "9f86…"}   kind of file, format version, checksum of everything else
    {"batch": 12, …}                                            header: JSON on one line
    …                                                           body: any bytes, often none

The checksum covers the kind, the version, the header and the body. It is also the file's digest: a file names its
predecessor by it, so an intact file in the wrong place is noticed too. The first line keeps its layout in every format
version, so that a file of another version is not mistaken for a damaged one. A frame holds no code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watersmeet.errors import InputError

#: Format that this version writes.
FORMAT_VERSION = 2
#: Formats that this version reads.
READABLE_VERSIONS = (2,)

_FIRST_LINE = re.compile(rb'\{"watersmeet": "([a-z]{1,20})", "version": ([0-9]{1,6}), "sha256": "([0-9a-f]{64})"\}\n')


class DamagedFileError(InputError):
    """Damaged file of ours: `path` is the file, `problem` describes the damage."""

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f'"{path}" {problem}', hint=hint)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Frame:
    """Content of one file."""

    kind: str
    version: int
    header: Mapping[str, Any]
    body: bytes
    digest: str


def encode_frame(kind: str, header: Mapping[str, Any], body: bytes = b"") -> tuple[bytes, str]:
    """Return the bytes of a file and its digest.

    >>> content, digest = encode_frame("batch", {"batch": 12})
    >>> decode_frame(content, "batch").header, decode_frame(content, "batch").digest == digest
    ({'batch': 12}, True)
    """
    payload = json.dumps(header).encode() + b"\n" + body
    digest = _compute_digest(kind, FORMAT_VERSION, payload)
    first_line = f'{{"watersmeet": "{kind}", "version": {FORMAT_VERSION}, "sha256": "{digest}"}}\n'
    return first_line.encode() + payload, digest


def decode_frame(content: bytes, kind: str) -> Frame:
    """Return the content of a file; a `ValueError` describes the damage.

    >>> decode_frame(encode_frame("batch", {"batch": 12})[0].replace(b"12", b"13"), "batch")
    Traceback (most recent call last):
    ValueError: is damaged: its checksum does not match
    """
    first = _FIRST_LINE.match(content)
    if first is None:
        raise ValueError("is damaged: it does not begin as a file of Watersmeet")
    actual_kind, version, payload = first[1].decode(), int(first[2]), content[first.end() :]
    if _compute_digest(actual_kind, version, payload) != first[3].decode():
        raise ValueError("is damaged: its checksum does not match")
    # The checksum matches, so another version is not just a flipped bit.
    if version not in READABLE_VERSIONS:
        raise ValueError(
            f"was written by another version of Watersmeet: format {version}, "
            f"this version reads format {FORMAT_VERSION}"
        )
    if actual_kind != kind:
        raise ValueError(f"is damaged: it holds a {actual_kind} where a {kind} belongs")
    header, _, body = payload.partition(b"\n")
    return Frame(actual_kind, version, json.loads(header), body, first[3].decode())


def read_frame(path: Path, kind: str) -> Frame:
    """Read a file of this kind; a `DamagedFileError` names it if it is missing, damaged or another file."""
    try:
        return decode_frame(path.read_bytes(), kind)
    except FileNotFoundError as error:
        raise DamagedFileError(path, "is missing") from error
    except OSError as error:
        raise DamagedFileError(path, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DamagedFileError(path, str(error)) from error


def _compute_digest(kind: str, version: int, payload: bytes) -> str:
    digest = hashlib.sha256(f"{kind} {version}\n".encode())
    digest.update(payload)
    return digest.hexdigest()

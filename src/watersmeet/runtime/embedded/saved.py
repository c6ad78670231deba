"""An embedded run as bytes and back: watermark, ledger and state. A checksum guards all of it; nothing in it is code."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

from watersmeet.errors import InputError
from watersmeet.runtime.embedded.run import EmbeddedRun, Ledger

_MAGIC = b"WMR1"


def saved(run: EmbeddedRun) -> bytes:
    """Everything a run is between two batches."""
    mark = run.watermark
    header = {
        "watermark": {"newest_us": dict(mark.newest_us), "began_us": mark.began_us, "value_us": mark.value_us},
        "ledger": {name: asdict(entry) for name, entry in run.ledger.items()},
    }
    text = json.dumps(header).encode()
    body = struct.pack("<I", len(text)) + text + run.save_state()
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def restore(run: EmbeddedRun, blob: bytes) -> None:
    """Puts a fresh run of the same query where the saved one was."""
    header, state = opened(blob)
    mark = header["watermark"]
    run.watermark = replace(
        run.watermark,
        newest_us=MappingProxyType(mark["newest_us"]),
        began_us=mark["began_us"],
        value_us=mark["value_us"],
    )
    run.ledger = {name: Ledger(**entry) for name, entry in header["ledger"].items()}
    run.restore_state(state)


def opened(blob: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and state of a saved run; refuses bytes that are not what was written."""
    if len(blob) < 12 or blob[:4] != _MAGIC:
        raise InputError("these bytes are not a saved run")
    body = blob[8:]
    if zlib.crc32(body) != struct.unpack_from("<I", blob, 4)[0]:
        raise InputError("the saved run is damaged: its checksum does not fit")
    (length,) = struct.unpack_from("<I", body)
    return json.loads(body[4 : 4 + length]), body[4 + length :]

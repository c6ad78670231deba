"""Going back to the last committed batch of a Spark checkpoint, so that it runs again.

Spark runs the last decided batch again if it is not committed, and only that one. So a batch that was decided after it
has to be forgotten, which loses nothing as long as nothing of it can have been put out: rows are put out when every
partition has written its state.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from urllib.parse import unquote, urlparse

_MAGIC = b"crc\0"
_HEAD = struct.Struct(">4sI")


def checksum_path(place: Path) -> Path:
    return place.with_name(f".{place.name}.crc")


def with_checksum(place: Path) -> tuple[Path, ...]:
    """The file and its checksum: a checksum alone would make the next file of that name look damaged."""
    return (place, checksum_path(place)) if checksum_path(place).exists() else (place,)


def contradicts_checksum(place: Path) -> bool:
    """Whether the file is not what was written, as far as a checksum beside it tells; a torn checksum is a
    contradiction too.
    """
    try:
        sums = checksum_path(place).read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if len(sums) < _HEAD.size or (len(sums) - _HEAD.size) % 4:
        return True
    magic, length = _HEAD.unpack_from(sums)
    return magic != _MAGIC or length < 1 or not _sums_match(place, sums[_HEAD.size :], length)


def _sums_match(place: Path, sums: bytes, length: int) -> bool:
    wanted = iter(struct.unpack(f">{len(sums) // 4}I", sums))
    try:
        with place.open("rb") as opened:
            while piece := opened.read(length):
                if zlib.crc32(piece) != next(wanted, None):
                    return False
    except OSError:
        return False
    return next(wanted, None) is None


VERSIONED_FILE = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(changelog|zip)")


def list_log_entries(directory: Path) -> list[int]:
    """The batches a log has entries of, in order."""
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal()) if directory.is_dir() else []


def last_committed_batch(path: Path) -> int:
    return max(list_log_entries(path / "commits"), default=-1)


def may_be_written(path: Path, batch: int) -> bool:
    """Whether a batch can have put out rows, as far as its files tell: every partition has the state after it, version
    `batch` + 1.
    """
    partitions = [folder for folder in (path / "state").glob("[0-9]*/[0-9]*") if folder.is_dir()]
    return bool(partitions) and all(_newest_version(folder) > batch for folder in partitions)


def _newest_version(folder: Path) -> int:
    named = (VERSIONED_FILE.fullmatch(file.name) for file in folder.iterdir())
    return max((int(found[1]) for found in named if found is not None), default=0)


def list_files_to_rewind(path: Path, batch: int) -> tuple[Path, ...]:
    """What to move aside for the last committed batch to run again; nothing where a later one may have put out rows."""
    later = [number for number in list_log_entries(path / "offsets") if number > batch]
    if any(may_be_written(path, number) for number in later):
        return ()
    logged = [path / "commits" / str(batch), *(path / "offsets" / str(number) for number in later)]
    return tuple(file for place in logged for file in with_checksum(place))


def list_files_written(out: Path, batch: int) -> tuple[Path, ...] | None:
    """What a batch wrote to a directory of files, with the entry of the sink's own log that keeps it from being written
    again.

    Nothing, where the batch wrote nothing; None where it cannot be told apart from batches before it.
    """
    log = out / "_spark_metadata"
    if (log / f"{batch}.compact").exists():
        return None
    entry = log / str(batch)
    if not entry.exists():
        return ()
    try:
        written = [
            Path(unquote(urlparse(json.loads(line)["path"]).path))
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    files = [out / each.name for each in written]  # the directory may have been moved since
    return tuple(file for place in (entry, *files) if place.exists() for file in with_checksum(place))

"""Files of a Spark checkpoint: their checksums, and the files to move aside to rerun the last committed batch.

Hadoop writes a checksum file `.name.crc` next to each file `name` on a local disk. A checksum file is the letters `crc`
and a zero, the number of bytes that one sum covers, and the sums, all in big-endian words.

Spark reruns the last planned batch if it is not committed, and only that one. So to rerun the last committed batch, a
batch planned after it has to be dropped from the log. No row is lost while the dropped batch cannot have written rows:
rows are written when every partition has written its state.
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


def checksum_path(file_path: Path) -> Path:
    """Return the path of the checksum of a file."""
    return file_path.with_name(f".{file_path.name}.crc")


def with_checksum(file_path: Path) -> tuple[Path, ...]:
    """Return the file and its checksum: a checksum alone would make the next file of that name look damaged."""
    return (file_path, checksum_path(file_path)) if checksum_path(file_path).exists() else (file_path,)


def contradicts_checksum(file_path: Path) -> bool:
    """Return whether a checksum exists and contradicts the file; a torn checksum is a contradiction too."""
    try:
        sums = checksum_path(file_path).read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if len(sums) < _HEAD.size or (len(sums) - _HEAD.size) % 4:
        return True
    magic, length = _HEAD.unpack_from(sums)
    return magic != _MAGIC or length < 1 or not _sums_match(file_path, sums[_HEAD.size :], length)


def _sums_match(file_path: Path, sums: bytes, length: int) -> bool:
    expected_sums = iter(struct.unpack(f">{len(sums) // 4}I", sums))
    try:
        with file_path.open("rb") as file:
            while block := file.read(length):
                if zlib.crc32(block) != next(expected_sums, None):
                    return False
    except OSError:
        return False
    return next(expected_sums, None) is None


VERSIONED_FILE = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(changelog|zip)")


def list_log_entries(directory: Path) -> list[int]:
    """List the batches that a log has entries of, in order."""
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal()) if directory.is_dir() else []


def last_committed_batch(path: Path) -> int:
    """Return the number of the last committed batch; -1 if there is none."""
    return max(list_log_entries(path / "commits"), default=-1)


def may_be_written(path: Path, batch: int) -> bool:
    """Return whether a batch may have written rows, judged by its files.

    It may if every partition has the state after it, version `batch` + 1.
    """
    partitions = [folder for folder in (path / "state").glob("[0-9]*/[0-9]*") if folder.is_dir()]
    return bool(partitions) and all(_newest_version(folder) > batch for folder in partitions)


def _newest_version(folder: Path) -> int:
    matches = (VERSIONED_FILE.fullmatch(file.name) for file in folder.iterdir())
    return max((int(match[1]) for match in matches if match is not None), default=0)


def list_files_to_rewind(path: Path, batch: int) -> tuple[Path, ...]:
    """List the files to move aside so that Spark reruns the last committed batch.

    The list is empty if a later batch may have written rows.
    """
    later = [number for number in list_log_entries(path / "offsets") if number > batch]
    if any(may_be_written(path, number) for number in later):
        return ()
    log_files = [path / "commits" / str(batch), *(path / "offsets" / str(number) for number in later)]
    return tuple(file for file_path in log_files for file in with_checksum(file_path))


def list_files_written(out: Path, batch: int) -> tuple[Path, ...] | None:
    """List the files that a batch wrote to a file sink, and its entry in the sink's log.

    The entry makes Spark skip the batch. The list is empty if the batch wrote nothing. None means that the log does not
    separate the batch from earlier ones.
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
    return tuple(file for file_path in (entry, *files) if file_path.exists() for file in with_checksum(file_path))

"""Files of a Spark checkpoint: checksums, the state of each partition, and the files to move aside for a rerun.

Hadoop writes a checksum file `.name.crc` next to each file `name` on a local disk. A checksum file is the letters `crc`
and a zero, the number of bytes that one sum covers, and the sums, all in big-endian words.

Spark reruns the last planned batch if it is not committed, and only that one. So to rerun the last committed batch, a
batch planned after it has to be dropped from the log. No row is lost while the dropped batch cannot have written rows:
rows are written when every partition has written its state.

A snapshot of the state is `7.zip`, with the `SSTs` it names; a changelog is `8.changelog`. Version n + 1 is the state
after batch n. Spark loads the newest snapshot up to the version it needs and applies the changelogs since then.

So a damaged snapshot is harmless while an older one and all changelogs exist. The state after the last batch can be
recomputed by rerunning that batch from the state before it. A file sink skips batches that it has logged, and their
state with them, so its files of that batch are moved aside first.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from watersmeet.checkpoint.findings import Finding

_MAGIC = b"crc\0"
_HEAD = struct.Struct(">4sI")
_NEEDS_OUT = (
    "the last batch can run again, but its output files have to be moved aside first: "
    "name their directory with --out DIR"
)
_COMPACTED = "the last batch would have to run again, and the files it wrote are unknown: start from a new checkpoint"


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


def find_state_problems(path: Path, out: Path | None) -> Iterator[Finding]:
    """Yield the problems of the state after the last committed batch."""
    for file_path in sorted((path / "state").glob("*/_*/**/[!.]*")):
        if file_path.is_file() and contradicts_checksum(file_path):
            yield Finding(
                file_path, "is damaged", "the layout of the state is unknown without it: start from a new checkpoint"
            )
    for partition in _read_partitions(path):
        yield from partition.find_problems(path, out, last_committed_batch(path) + 1)


@dataclass(frozen=True)
class _Partition:
    """Files of one partition by version, intact or not."""

    folder: Path
    changes: dict[int, Path]
    snapshots: dict[int, Path]
    damaged: frozenset[Path]

    def find_problems(self, path: Path, out: Path | None, version: int) -> Iterator[Finding]:
        if version < 1 or self._can_load(version, excluded=frozenset()):
            yield from self._find_leftovers(version)
            return
        if self._can_load(version, excluded=self._broken_snapshots()):
            for file_path in sorted(self._broken_snapshots()):
                yield Finding(
                    file_path,
                    "is damaged",
                    "Spark uses an older snapshot and the changes since then",
                    with_checksum(file_path),
                )
            return
        rewound_files = list_files_to_rewind(path, version - 1)
        if rewound_files and (version == 1 or self._can_load(version - 1, excluded=self._broken_snapshots())):
            yield self._report_rerun(version, out, rewound_files)
        else:
            problem = f"cannot be loaded at version {version}"
            yield Finding(self.folder, problem, "neither can the version before it: start from a new checkpoint")

    def _report_rerun(self, version: int, out: Path | None, rewound_files: tuple[Path, ...]) -> Finding:
        file_path = self.changes.get(version) or self.snapshots.get(version) or self.folder / f"{version}.changelog"
        problem = "is damaged" if file_path.exists() else "is missing"
        sink_files = None if out is None else list_files_written(out, version - 1)
        if sink_files is None:
            return Finding(file_path, problem, _NEEDS_OUT if out is None else _COMPACTED)
        broken = [each for each in (*self.damaged, file_path) if each.exists()]
        aside = tuple(
            dict.fromkeys([*(file for each in broken for file in with_checksum(each)), *rewound_files, *sink_files])
        )
        return Finding(
            file_path,
            problem,
            "Spark runs the last batch again from the state before it, and writes its rows again",
            aside,
        )

    def _find_leftovers(self, version: int) -> Iterator[Finding]:
        for file_path in sorted(self.damaged):
            match = VERSIONED_FILE.fullmatch(file_path.name)
            if match is not None and int(match[1]) > version:
                yield Finding(
                    file_path, "is damaged", "its batch was not committed and runs again", with_checksum(file_path)
                )

    def _broken_snapshots(self) -> frozenset[Path]:
        return frozenset(file for file in self.snapshots.values() if file in self.damaged)

    def _can_load(self, version: int, excluded: frozenset[Path]) -> bool:
        """Return whether a version can be loaded without the `excluded` files.

        Its newest snapshot and all changelogs since then have to be intact.
        """
        usable = [number for number, file in self.snapshots.items() if number <= version and file not in excluded]
        start = max(usable, default=0)
        if start and self.snapshots[start] in self.damaged:
            return False
        return all(
            number in self.changes and self.changes[number] not in self.damaged
            for number in range(start + 1, version + 1)
        )


def _read_partitions(path: Path) -> list[_Partition]:
    state = path / "state"
    folders = sorted(state.glob("[0-9]*/[0-9]*")) if state.is_dir() else []
    return [_read_partition(folder) for folder in folders if folder.is_dir()]


def _read_partition(folder: Path) -> _Partition:
    changes: dict[int, Path] = {}
    snapshots: dict[int, Path] = {}
    for file in folder.iterdir():
        match = VERSIONED_FILE.fullmatch(file.name)
        if match is not None:
            (changes if match[2] == "changelog" else snapshots)[int(match[1])] = file
    damaged = {
        file
        for file in (*changes.values(), *snapshots.values())
        if file.stat().st_size == 0 or contradicts_checksum(file)
    }
    return _Partition(
        folder,
        changes,
        snapshots,
        frozenset(damaged | _find_broken_snapshots(folder, set(snapshots.values()) - damaged)),
    )


def _find_broken_snapshots(folder: Path, snapshots: set[Path]) -> set[Path]:
    """Return the snapshots that name a missing or damaged table."""
    return {each for each in snapshots if not all(_is_intact(folder / "SSTs" / name) for name in _list_tables(each))}


def _list_tables(snapshot: Path) -> list[str]:
    try:
        with zipfile.ZipFile(snapshot) as archive:
            metadata = archive.read("metadata").decode(errors="replace")
    except (OSError, KeyError, zipfile.BadZipFile):
        return ["(unreadable snapshot)"]
    return re.findall(r'"dfsSstFileName":"([\w.-]+)"', metadata)


def _is_intact(file_path: Path) -> bool:
    return file_path.exists() and not contradicts_checksum(file_path)

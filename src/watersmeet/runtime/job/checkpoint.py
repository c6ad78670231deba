"""A run's memory on disk.

about.json              which query and streams it belongs to, and the streams' schemas
lock                    held by the process that uses it
batches/0000000012.json which files batch 12 reads: written before it runs
states/0000000012.run   the run after batch 12: written last, and that commits the batch

Every file appears whole or not at all: it is written beside its place, flushed to the disk and moved. The last two states are kept, so
that a state that a disk has damaged costs one batch and not the run.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.errors import InputError
from watersmeet.runtime.job.saved import opened

FORMAT = 1
_KEPT_STATES = 2

Files = dict[str, list[str]]


@dataclass(frozen=True)
class About:
    """What a checkpoint belongs to. A run with anything else is refused: its state would mean something else."""

    query: str
    streams: Mapping[str, Mapping[str, Any]]
    out: str | None

    def difference(self, other: About) -> str | None:
        if self.query != other.query:
            return "the query is another"
        if dict(self.streams) != dict(other.streams):
            return "the streams, their paths, times or lateness are others"
        return None if self.out == other.out else f"the rows went to {self.out or 'no file'}, not to {other.out or 'no file'}"


class Checkpoint:
    """A checkpoint directory in use by this process."""

    def __init__(self, path: Path, about: About) -> None:
        self.path = path
        self._lock = locked(path)
        try:
            known = self._known()
            words = known.difference(about) if known is not None else None
            if words is not None:
                raise InputError(
                    f'checkpoint "{path}" belongs to another run: {words}', hint="use another directory, or remove this one to begin anew"
                )
            self.is_new = known is None
            self._about = about
        except BaseException:
            self.close()
            raise

    def begin(self, schemas: Mapping[str, pa.Schema], plan: Plan | None) -> None:
        """Writes down what the run is, once the first files have been looked at."""
        text = {
            "format": FORMAT,
            "query": self._about.query,
            "streams": self._about.streams,
            "out": self._about.out,
            "plan": None if plan is None else plan.to_dict(),
            "schemas": {name: base64.b64encode(schema.serialize().to_pybytes()).decode() for name, schema in schemas.items()},
        }
        write_whole(self.path / "about.json", json.dumps(text, indent=2).encode())
        self.is_new = False

    def schemas(self) -> dict[str, pa.Schema]:
        saved = _json(self.path / "about.json")["schemas"]
        return {name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for name, text in saved.items()}

    def plan(self) -> Plan | None:
        """The plan the run is pinned to, if it is."""
        saved = _json(self.path / "about.json")["plan"]
        return None if saved is None else Plan.from_dict(saved)

    def decide(self, batch: int, files: Files) -> None:
        write_whole(batch_path(self.path, batch), json.dumps({"files": files}).encode())

    def decided(self) -> dict[int, Files]:
        """Every batch that was begun, with its files."""
        return {number: _json(batch_path(self.path, number))["files"] for number in numbers(self.path / "batches")}

    def commit(self, batch: int, blob: bytes) -> None:
        write_whole(state_path(self.path, batch), blob)
        for old in numbers(self.path / "states")[:-_KEPT_STATES]:
            state_path(self.path, old).unlink(missing_ok=True)

    def latest(self) -> tuple[int, bytes] | None:
        """The last committed batch and the run after it."""
        committed = numbers(self.path / "states")
        if not committed:
            return None
        place = state_path(self.path, committed[-1])
        blob = _bytes(place)
        try:
            opened(blob)
        except InputError as error:
            raise InputError(
                f'"{place}": {error.message}', hint=f"watersmeet repair {self.path} goes back to the state before it"
            ) from error
        return committed[-1], blob

    def close(self) -> None:
        self._lock.close()

    def _known(self) -> About | None:
        place = self.path / "about.json"
        if not place.exists():
            return None
        return read_about(place)


def read_about(place: Path) -> About:
    """The first file of a checkpoint; refuses one of another version."""
    saved = _json(place)
    if saved.get("format") != FORMAT:
        raise InputError(f'"{place}" is of format {str(saved.get("format"))[:20]}, this version reads format {FORMAT}')
    return About(saved["query"], saved["streams"], saved["out"])


def batch_path(path: Path, batch: int) -> Path:
    return path / "batches" / f"{batch:010d}.json"


def state_path(path: Path, batch: int) -> Path:
    return path / "states" / f"{batch:010d}.run"


def numbers(directory: Path) -> list[int]:
    """The batches a directory has files of, in order; what is being written beside them does not count."""
    if not directory.is_dir():
        return []
    return sorted(int(file.stem) for file in directory.iterdir() if file.stem.isdecimal() and not file.name.startswith("."))


def write_whole(place: Path, content: bytes) -> None:
    """The file is there with all its content, or as it was before; also if the machine stops."""
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as opened_file:
            opened_file.write(content)
            opened_file.flush()
            os.fsync(opened_file.fileno())
        unfinished.replace(place)
        _flush_directory(place.parent)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InputError(f'checkpoint file "{place}" cannot be written: {error.strerror or error}') from error


def _flush_directory(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def locked(path: Path) -> IO[bytes]:
    """The lock of the directory; the system lets it go when the process ends, however it ends."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / "lock").open("wb")
    except OSError as error:
        raise InputError(f'checkpoint "{path}" cannot be used: {error.strerror or error}') from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise InputError(
            f'checkpoint "{path}" is in use by another process', hint="stop that one first, or give this run a checkpoint of its own"
        ) from error
    return lock


def _json(place: Path) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(place))
    except ValueError as error:
        raise InputError(f'checkpoint file "{place}" is damaged', hint="watersmeet repair says what can be done") from error
    if not isinstance(found, dict):
        raise InputError(f'checkpoint file "{place}" is damaged', hint="watersmeet repair says what can be done")
    return found


def _bytes(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise InputError(f'checkpoint file "{place}" cannot be read: {error.strerror or error}') from error

"""Checkpoint directory in use: the files that a run writes, and their order.

The manifest comes first. Then each batch has its record, its rows (written by the sink), the new parts of its state and
its state, which commits the batch. Every file appears complete or not at all, and names its predecessor by its digest
(`contents`). The last two states are kept, so that a state damaged by the disk costs one batch and not the run.

Parts expire at different times, so a file may hold few parts that are still in use. When all files together are much
larger than the parts in use, a commit copies parts out of the file with the smallest share of them.

A run never reads a file twice, so the state has the name of every file that was read (`FileLog`). The names are kept
in chunks: a batch adds one chunk, and chunks of similar size are merged up to a limit. So a commit writes few names,
however many were read before.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.checkpoint.contents import (
    MANIFEST_BATCH,
    BatchInputs,
    BatchRecord,
    Manifest,
    RunIdentity,
    SavedState,
    StoredPart,
    batch_path,
    encode_manifest,
    encode_parts,
    encode_record,
    encode_state,
    list_batches,
    manifest_path,
    parts_path,
    read_contents,
    read_parts,
    state_path,
)
from watersmeet.checkpoint.owner import OutputOwner, read_owner
from watersmeet.errors import InputError
from watersmeet.files import write_atomically
from watersmeet.operators.protocol import SavedPart, StatePart

_KEPT_STATES = 2
#: Files of parts are compacted when they are larger than their parts in use by this factor.
_MAX_FILE_SHARE = 1.5
#: Files are not compacted before this many bytes are to be gained.
_MIN_WASTE_BYTES = 1 << 16
FILES_PART = "files"
#: A merged chunk has at most this many names.
MERGE_NAMES = 4096


class Checkpoint:
    """Checkpoint directory that is locked, verified and of the same query as the run."""

    def __init__(self, path: Path, identity: RunIdentity) -> None:
        self.path = path
        self._lock = lock_checkpoint(path)
        try:
            contents = read_contents(path)
            contents.raise_damage()
            self._identity = identity
            self._manifest = contents.manifest
            self._records = dict(contents.records)
            self._states = contents.states
            self._live_parts: tuple[StatePart, ...] = ()
            self._saved_parts: dict[int, StoredPart] = {}
            # Batches whose files hold parts of the last state, and of the one before it.
            self._files_in_use: tuple[frozenset[int], ...] = ()
            self._file_bytes = {batch: parts_path(path, batch).stat().st_size for batch in list_batches(path / "parts")}
            self._new_id = uuid.uuid4().hex
            if contents.manifest is not None:
                _check_same_run(path, contents.manifest, identity)
        except BaseException:
            self.close()
            raise

    @property
    def is_new(self) -> bool:
        """Whether the manifest is not written yet."""
        return self._manifest is None

    @property
    def owner(self) -> OutputOwner:
        """Identity of this checkpoint in the marker of its output directory."""
        return OutputOwner(
            self._new_id if self._manifest is None else self._manifest.checkpoint_id, str(self.path.absolute())
        )

    @property
    def last_record(self) -> int:
        """Number of the newest batch that was chosen; -1 if there is none."""
        return max((*self._records, *self._states), default=MANIFEST_BATCH)

    def write_manifest(self, schemas: Mapping[str, pa.Schema], plan: Plan | None) -> None:
        """Write the manifest, once the schemas of all streams are known."""
        content, digest = encode_manifest(self._identity, self._new_id, plan, schemas)
        write_atomically(manifest_path(self.path), content)
        self._manifest = Manifest(self._identity, self._new_id, plan, schemas, digest)

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Return the schemas of the streams by name."""
        return self._require_manifest().schemas

    def plan(self) -> Plan | None:
        """Return the plan that the run is pinned to, None if it is not pinned."""
        return self._require_manifest().plan

    def log_batch_inputs(self, batch: int, files: BatchInputs) -> None:
        """Log the files that a batch reads, before it runs."""
        content, digest = encode_record(batch, files, self._find_record_digest(batch - 1))
        write_atomically(batch_path(self.path, batch), content)
        self._records[batch] = BatchRecord(batch, files, digest)

    def batch_records(self) -> Mapping[int, BatchRecord]:
        """Return the records of the batches after the last committed state, as of the opening of the checkpoint."""
        return self._records

    def commit(self, batch: int, facts: Mapping[str, Any], parts: Sequence[StatePart]) -> int:
        """Write the state after a batch and return the bytes written. The batch's rows have been written before.

        Only parts are written that the state before did not have. `facts` are JSON values that change with every batch.
        """
        known = [self._saved_parts.get(id(part.value)) for part in parts]
        new = [part for part, stored in zip(parts, known, strict=True) if stored is None]
        moved = self._choose_parts_to_move([each for each in known if each is not None])
        written, new_bytes = self._write_parts(batch, new, moved)
        stored = tuple(written.pop(0) if each is None else each for each in known)
        replaced = dict(zip(moved, written, strict=True))
        stored = tuple(replaced.get(each, each) for each in stored)
        state = SavedState(batch, self._records[batch].digest, facts, stored, ())
        content = encode_state(state, self._require_manifest().digest)
        write_atomically(state_path(self.path, batch), content)
        self._remember(state, parts)
        self._delete_old_files()
        return new_bytes + len(content)

    def latest_state(self) -> SavedState | None:
        """Return the last committed state, as of the opening of the checkpoint."""
        return max(self._states.values(), key=lambda state: state.batch, default=None)

    def adopt(self, state: SavedState, parts: Sequence[StatePart]) -> None:
        """Remember that these restored parts are the saved ones, so that the next commit does not write them again."""
        self._remember(state, parts)

    def _remember(self, state: SavedState, parts: Sequence[StatePart]) -> None:
        self._live_parts = tuple(parts)  # as long as an object exists, no other object gets its identity
        self._saved_parts = {id(part.value): each for part, each in zip(parts, state.stored, strict=True)}
        self._files_in_use = (*self._files_in_use[-1:], frozenset(each.batch for each in state.stored))

    def _write_parts(
        self, batch: int, new: Sequence[StatePart], moved: Sequence[StoredPart]
    ) -> tuple[list[StoredPart], int]:
        """Write new parts and copies of moved ones to the file of the batch; return their places and the bytes."""
        if not new and not moved:
            return [], 0
        blobs = [*(part.to_bytes() for part in new), *(bytes(each.blob) for each in read_parts(self.path, moved))]
        content, places = encode_parts(batch, blobs)
        write_atomically(parts_path(self.path, batch), content)
        self._file_bytes[batch] = len(content)
        described = [*((part.input_number, part.kind, part.rows) for part in new), *map(_describe_part, moved)]
        return [StoredPart(*each, batch, place) for each, place in zip(described, places, strict=True)], len(content)

    def _choose_parts_to_move(self, stored: Sequence[StoredPart]) -> list[StoredPart]:
        """Choose the parts in the file with the smallest share of parts in use, if the files waste space."""
        in_use: dict[int, int] = {}
        for each in stored:
            in_use[each.batch] = in_use.get(each.batch, 0) + each.place.size
        held = sum(self._file_bytes[batch] for batch in in_use)
        if held <= _MAX_FILE_SHARE * sum(in_use.values()) + _MIN_WASTE_BYTES:
            return []
        emptiest = min(in_use, key=lambda batch: in_use[batch] / self._file_bytes[batch])
        return [each for each in stored if each.batch == emptiest]

    def _delete_old_files(self) -> None:
        """Delete what neither of the last two states needs. After a crash, the next commit deletes the rest."""
        *old, newest = list_batches(self.path / "states")
        for batch in old[: 1 - _KEPT_STATES]:
            state_path(self.path, batch).unlink(missing_ok=True)
        for batch in list_batches(self.path / "batches"):
            if batch < newest:
                batch_path(self.path, batch).unlink(missing_ok=True)
                self._records.pop(batch, None)
        needed = frozenset().union(*self._files_in_use)
        for batch in list_batches(self.path / "parts"):
            if batch not in needed and batch <= newest:
                parts_path(self.path, batch).unlink(missing_ok=True)
                self._file_bytes.pop(batch, None)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _find_record_digest(self, batch: int) -> str:
        if batch in self._records:
            return self._records[batch].digest
        return self._require_manifest().digest if batch == MANIFEST_BATCH else self._states[batch].record

    def _require_manifest(self) -> Manifest:
        assert self._manifest is not None, "the manifest is written before anything is read from it"
        return self._manifest


def _describe_part(part: StoredPart) -> tuple[int, str, int]:
    return part.input_number, part.kind, part.rows


def _check_same_run(path: Path, manifest: Manifest, identity: RunIdentity) -> None:
    difference = manifest.identity.describe_difference(identity)
    if difference is not None:
        raise InputError(
            f'checkpoint "{path}" {difference}', hint="use a new checkpoint directory, and a new output directory"
        )
    if manifest.identity.out != identity.out and not _was_output_moved(manifest, identity):
        before, now = (
            f'"{out}"' if out is not None else "no directory" for out in (manifest.identity.out, identity.out)
        )
        raise InputError(
            f'checkpoint "{path}" writes its rows to {before}, not to {now}',
            hint="use the same output, or a new checkpoint directory; "
            "an output directory that was moved keeps its owner file",
        )


def _was_output_moved(manifest: Manifest, identity: RunIdentity) -> bool:
    """Return whether the output directory was moved, and exists only in its new location."""
    if manifest.identity.out is None or identity.out is None:
        return False
    old, new = read_owner(Path(manifest.identity.out)), read_owner(Path(identity.out))
    is_ours = new is not None and new.checkpoint_id == manifest.checkpoint_id
    return is_ours and (old is None or old.checkpoint_id != manifest.checkpoint_id)


def lock_checkpoint(path: Path) -> IO[bytes]:
    """Lock the directory. The system releases the lock when the process ends, for any reason."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Opened without truncating: after damage, the file may hold the content of another file.
        lock = os.fdopen(os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    except OSError as error:
        raise InputError(f'checkpoint "{path}" cannot be used: {error.strerror or error}') from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise InputError(
            f'checkpoint "{path}" is in use by another process',
            hint="stop that process first, or use another checkpoint",
        ) from error
    return lock


@dataclass(frozen=True, eq=False, slots=True)
class FileNames:
    """Some names of files of one stream, saved as one part of the state."""

    input_number: int
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        return FILES_PART

    @property
    def value(self) -> FileNames:
        return self

    @property
    def rows(self) -> int:
        return 0  # they are not rows of the query

    def to_bytes(self) -> bytes:
        return json.dumps(self.names).encode()


@dataclass(frozen=True, slots=True)
class FileLog:
    """Names of all files that were read from each stream, by the stream's number."""

    chunks: tuple[tuple[FileNames, ...], ...]

    @classmethod
    def start(cls, streams: int) -> Self:
        return cls(((),) * streams)

    def add(self, stream: int, names: Iterable[str]) -> FileLog:
        """Return the log with the names that a batch has read from a stream.

        >>> log = FileLog.start(1).add(0, ["a", "b", "c", "d"]).add(0, ["e"]).add(0, ["f"])
        >>> [chunk.names for chunk in log.chunks[0]]
        [('a', 'b', 'c', 'd', 'e', 'f')]
        """
        chunks = [*self.chunks[stream], FileNames(stream, tuple(names))]
        while len(chunks) > 1 and _should_merge(chunks[-2], chunks[-1]):
            chunks[-2:] = [FileNames(stream, chunks[-2].names + chunks[-1].names)]
        return FileLog((*self.chunks[:stream], tuple(chunks), *self.chunks[stream + 1 :]))

    def parts(self) -> list[FileNames]:
        return [chunk for chunks in self.chunks for chunk in chunks]

    def names(self, stream: int) -> Iterable[str]:
        return (name for chunk in self.chunks[stream] for name in chunk.names)

    @classmethod
    def restore(cls, streams: int, saved: Sequence[SavedPart]) -> Self:
        """Invert `parts`. Parts of other kinds are skipped."""
        chunks = [
            FileNames(part.input_number, tuple(json.loads(bytes(part.blob))))
            for part in saved
            if part.kind == FILES_PART
        ]
        return cls(tuple(tuple(each for each in chunks if each.input_number == i) for i in range(streams)))


def _should_merge(older: FileNames, newer: FileNames) -> bool:
    return len(older.names) <= 2 * len(newer.names) and len(older.names) + len(newer.names) <= MERGE_NAMES

"""Checkpoint directory in use: the files that a run writes, and their order.

The manifest comes first. Then each batch has its record, its rows (written by the sink) and its state, which commits
the batch. Every file appears complete or not at all, and names its predecessor by its digest (`contents`). The last two
states are kept, so that a state damaged by the disk costs one batch and not the run.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.checkpoint.contents import (
    MANIFEST_BATCH,
    BatchInputs,
    BatchRecord,
    Manifest,
    RunIdentity,
    batch_path,
    encode_manifest,
    encode_record,
    encode_state,
    list_batches,
    manifest_path,
    read_contents,
    state_path,
)
from watersmeet.checkpoint.owner import OutputOwner, read_owner
from watersmeet.errors import InputError
from watersmeet.files import write_atomically

_KEPT_STATES = 2


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
        return max(self._records, default=MANIFEST_BATCH)

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
        before = self._require_manifest().digest if batch == 0 else self._records[batch - 1].digest
        content, digest = encode_record(batch, files, before)
        write_atomically(batch_path(self.path, batch), content)
        self._records[batch] = BatchRecord(batch, files, digest)

    def batch_records(self) -> Mapping[int, BatchRecord]:
        """Return the records of all batches, committed or in flight."""
        return self._records

    def commit(self, batch: int, blob: bytes) -> None:
        """Write the state after a batch. Its rows have been written before."""
        write_atomically(state_path(self.path, batch), encode_state(batch, self._records[batch].digest, blob))
        for old in list_batches(self.path / "states")[:-_KEPT_STATES]:
            state_path(self.path, old).unlink(missing_ok=True)

    def latest_state(self) -> tuple[int, bytes] | None:
        """Return the last committed batch and the state after it, as of the opening of the checkpoint."""
        return max(self._states.items(), default=None)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def _require_manifest(self) -> Manifest:
        assert self._manifest is not None, "the manifest is written before anything is read from it"
        return self._manifest


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

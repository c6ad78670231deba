"""Files of a checkpoint, read and verified.

`run` stops at the first damage that `read_contents` finds; `repair` lists all of them.

    about.json              manifest: query, streams, schemas, plan, output directory, and a random id
    lock                    held by the process that uses the checkpoint; has no content
    batches/0000000012.json record of batch 12: the files it reads, and the digest of record 11 (or the manifest)
    states/0000000012.run   state after batch 12, and the digest of record 12

The digests form a chain from the newest state to the manifest. So the checksum of a file verifies its content, and its
successor verifies its place: a missing, older or foreign file breaks the chain. The newest record may belong to a batch
in flight, which has no state yet.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.checkpoint.framing import DamagedFileError, Frame, encode_frame, read_frame
from watersmeet.errors import InputError
from watersmeet.sources.directories import InputFile, input_path

#: Number of the manifest in the chain of digests, before batch 0.
MANIFEST_BATCH = -1
Parsed = TypeVar("Parsed")
_NUMBERED = re.compile(r"(\d{10,})\.(json|run)", re.ASCII)


class FileKind(StrEnum):
    """Kinds of files in a checkpoint."""

    MANIFEST = "manifest"
    RECORD = "batch"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Query, streams and output that a checkpoint was created for. Its state is meaningless to any other run."""

    query: str
    streams: Mapping[str, Mapping[str, Any]]
    out: str | None

    def describe_difference(self, other: RunIdentity) -> str | None:
        """Describe how another run differs from the one that created the checkpoint; None if it does not.

        Outputs are compared elsewhere.
        """
        if self.query != other.query:
            return "was created by a different query"
        if dict(self.streams) != dict(other.streams):
            return "was created for different streams: a name, path, time column, lateness or idle timeout differs"
        return None


@dataclass(frozen=True, slots=True)
class Manifest:
    """First file of a checkpoint."""

    identity: RunIdentity
    checkpoint_id: str
    plan: Plan | None
    schemas: Mapping[str, pa.Schema]
    digest: str


BatchInputs = dict[str, tuple[InputFile, ...]]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Input files of one batch, by stream."""

    batch: int
    files: BatchInputs
    digest: str


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of one file. `batch` is the batch of a record or a state."""

    path: Path
    problem: str
    kind: FileKind
    batch: int = MANIFEST_BATCH


@dataclass(frozen=True, slots=True)
class InputProblem:
    """Input file that a batch can no longer read as it did before."""

    batch: int
    path: Path
    description: str
    is_missing: bool


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """Intact files of a checkpoint, and the damage of the others.

    `states` are the batches whose states were read and are intact.
    """

    path: Path
    manifest: Manifest | None
    records: Mapping[int, BatchRecord]
    states: Mapping[int, bytes]
    damages: tuple[Damage, ...]

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint has no files yet."""
        return self.manifest is None and not self.damages

    @property
    def last_record(self) -> int:
        """Number of the newest batch that was chosen, committed or in flight; -1 if there is none."""
        return max((*self.records, *(each.batch for each in self.damages)), default=MANIFEST_BATCH)

    @property
    def last_committed(self) -> int:
        """Number of the newest batch that has a state file, intact or not; -1 if there is none."""
        return max(list_batches(self.path / "states"), default=MANIFEST_BATCH)

    def raise_damage(self) -> None:
        """Refuse a damaged checkpoint: name the first damaged file."""
        for damage in self.damages:
            if damage.kind is FileKind.MANIFEST:
                hint = (
                    "restore that file from a backup, or start again with a new checkpoint and a new output directory"
                )
            else:
                hint = f"watersmeet repair {self.path} lists the possible fixes"
            raise DamagedFileError(damage.path, damage.problem, hint=hint)


def read_contents(path: Path, *, all_states: bool = False) -> CheckpointContents:
    """Read and verify a checkpoint. A run needs the newest state only; `all_states` verifies the others too."""
    damages: list[Damage] = []
    manifest = _read_manifest(path, damages)
    records = _read_records(path, manifest, damages)
    states = _read_states(path, records, damages, all_states=all_states)
    return CheckpointContents(path, manifest, records, states, tuple(damages))


def find_input_problems(
    streams: Mapping[str, Path], records: Mapping[int, BatchRecord], after: int
) -> Iterator[InputProblem]:
    """Yield the input files of later batches that are missing or have changed."""
    for batch in sorted(number for number in records if number > after):
        for stream, files in records[batch].files.items():
            for file in files:
                file_path = input_path(streams[stream], file.name)
                description = _check_input_file(file_path, file)
                if description is not None:
                    yield InputProblem(batch, file_path, description, is_missing=not file_path.exists())


def encode_manifest(
    identity: RunIdentity, checkpoint_id: str, plan: Plan | None, schemas: Mapping[str, pa.Schema]
) -> tuple[bytes, str]:
    """Return the bytes and the digest of a manifest."""
    header = {
        "query": identity.query,
        "streams": identity.streams,
        "out": identity.out,
        "checkpoint_id": checkpoint_id,
        "plan": None if plan is None else plan.to_dict(),
        "schemas": {
            name: base64.b64encode(schema.serialize().to_pybytes()).decode() for name, schema in schemas.items()
        },
    }
    return encode_frame(FileKind.MANIFEST, header)


def encode_record(batch: int, files: BatchInputs, previous: str) -> tuple[bytes, str]:
    """Return the bytes and the digest of a batch record; `previous` is the digest of the record before it."""
    entries = {
        stream: [[file.name, file.size_bytes, file.modified_ns] for file in listed] for stream, listed in files.items()
    }
    return encode_frame(FileKind.RECORD, {"batch": batch, "previous": previous, "files": entries})


def encode_state(batch: int, record: str, blob: bytes) -> bytes:
    """Return the bytes of a state file; `record` is the digest of the batch's record."""
    return encode_frame(FileKind.STATE, {"batch": batch, "record": record}, blob)[0]


def manifest_path(path: Path) -> Path:
    return path / "about.json"


def batch_path(path: Path, batch: int) -> Path:
    """Return the path of a batch's record; of the manifest for the batch before the first."""
    return manifest_path(path) if batch == MANIFEST_BATCH else path / "batches" / f"{batch:010d}.json"


def state_path(path: Path, batch: int) -> Path:
    return path / "states" / f"{batch:010d}.run"


def list_batches(directory: Path) -> list[int]:
    """List the batches that a directory has files of, in order. Unfinished and moved files do not count."""
    if not directory.is_dir():
        return []
    matches = (_NUMBERED.fullmatch(file.name) for file in directory.iterdir())
    return sorted(int(match[1]) for match in matches if match is not None)


def _read_manifest(path: Path, damages: list[Damage]) -> Manifest | None:
    file_path = manifest_path(path)
    if not file_path.exists() and not list_batches(path / "batches") and not list_batches(path / "states"):
        return None
    _refuse_format_1(path)
    try:
        frame = read_frame(file_path, FileKind.MANIFEST)
        return _parse(file_path, frame, _parse_manifest)
    except DamagedFileError as error:
        damages.append(Damage(file_path, error.problem, FileKind.MANIFEST))
        return None


def _parse_manifest(frame: Frame) -> Manifest:
    header = frame.header
    schemas = {
        name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for name, text in header["schemas"].items()
    }
    plan = None if header["plan"] is None else Plan.from_dict(header["plan"])
    return Manifest(
        RunIdentity(header["query"], header["streams"], header["out"]),
        header["checkpoint_id"],
        plan,
        schemas,
        frame.digest,
    )


def _refuse_format_1(path: Path) -> None:
    """Refuse checkpoints of the format without checksums: nothing shows whether their files are complete."""
    try:
        saved = json.loads(manifest_path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(saved, dict) and saved.get("format") == 1:
        raise InputError(
            f'checkpoint "{path}" was written by an older version of Watersmeet: '
            "start again with a new checkpoint and a new output directory"
        )


def _read_records(path: Path, manifest: Manifest | None, damages: list[Damage]) -> dict[int, BatchRecord]:
    last = max((*list_batches(path / "batches"), *list_batches(path / "states")), default=MANIFEST_BATCH)
    digests = {} if manifest is None else {MANIFEST_BATCH: manifest.digest}
    records: dict[int, BatchRecord] = {}
    for batch in range(last + 1):
        file_path = batch_path(path, batch)
        try:
            frame = read_frame(file_path, FileKind.RECORD)
            record = _parse(file_path, frame, _parse_record)
            _check_number(file_path, frame, batch)
            _check_link(file_path, frame.header.get("previous"), batch_path(path, batch - 1), digests.get(batch - 1))
        except DamagedFileError as error:
            damages.append(Damage(file_path, error.problem, FileKind.RECORD, batch))
            continue
        digests[batch] = record.digest
        records[batch] = record
    return records


def _parse_record(frame: Frame) -> BatchRecord:
    files = {stream: tuple(InputFile(*each) for each in listed) for stream, listed in frame.header["files"].items()}
    return BatchRecord(int(frame.header["batch"]), files, frame.digest)


def _read_states(
    path: Path, records: Mapping[int, BatchRecord], damages: list[Damage], *, all_states: bool
) -> dict[int, bytes]:
    committed = list_batches(path / "states")
    states: dict[int, bytes] = {}
    for batch in committed if all_states else committed[-1:]:
        file_path = state_path(path, batch)
        try:
            frame = read_frame(file_path, FileKind.STATE)
            _check_number(file_path, frame, batch)
            _check_link(
                file_path,
                frame.header.get("record"),
                batch_path(path, batch),
                records[batch].digest if batch in records else None,
            )
        except DamagedFileError as error:
            damages.append(Damage(file_path, error.problem, FileKind.STATE, batch))
            continue
        states[batch] = frame.body
    return states


def _check_number(file_path: Path, frame: Frame, batch: int) -> None:
    number = frame.header.get("batch")
    if number != batch:
        raise DamagedFileError(file_path, f"is damaged: it belongs to batch {number}, not to batch {batch}")


def _check_link(file_path: Path, link: str | None, predecessor: Path, digest: str | None) -> None:
    """Refuse a file that names another predecessor. A damaged predecessor has no digest to compare with."""
    if digest is not None and link != digest:
        raise DamagedFileError(
            file_path, f'does not follow "{predecessor}": one of the two is from another run or another time'
        )


def _parse(file_path: Path, frame: Frame, parse: Callable[[Frame], Parsed]) -> Parsed:
    """Parse a header whose checksum matches; report a header that still does not parse like a damaged one."""
    try:
        return parse(frame)
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        raise DamagedFileError(file_path, "is damaged: a part of its header is missing") from error


def _check_input_file(file_path: Path, file: InputFile) -> str | None:
    try:
        status = file_path.stat()
    except OSError as error:
        return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
    is_same = (status.st_size, status.st_mtime_ns) == (file.size_bytes, file.modified_ns)
    return None if is_same else "has changed since: its size or modification time differs"

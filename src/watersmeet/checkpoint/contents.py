"""Files of a checkpoint, read and verified.

`run` stops at the first damage that `read_contents` finds; `repair` lists all of them.

    about.json                 manifest: query, streams, schemas, plan, output directory, and a random id
    lock                       held by the process that uses the checkpoint; has no content
    batches/0000000012.json    record of batch 12: the files it reads, and the digest of record 11 (or the manifest)
    parts/0000000012.parts     parts of the state that are new since batch 11
    states/0000000012.run      state after batch 12: watermark, ledger, the places of all its parts in the files of
                               this and earlier batches, and the digests of record 12 and the manifest

A batch writes only parts that are new, so the work of a commit follows the batch and not the state. A file of parts is
deleted when no part of the last two states is in it, and a record when the state after its batch is written.

Digests link the files: a record to the one before it, a state to its record and the manifest. So the checksum of a file
verifies its content, and its successor verifies its place: a missing, older or foreign file breaks the chain. A state
names each of its parts by file, place and checksum. The newest record may belong to a batch in flight, which has no
state yet.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from watersmeet.algebra.plan import Plan
from watersmeet.errors import InputError
from watersmeet.framing import (
    DamagedFileError,
    FrameHeader,
    OtherFormatError,
    PartPlace,
    decode_header,
    encode_frame,
    open_file,
    read_frame,
    read_part,
)
from watersmeet.operators.protocol import SavedPart
from watersmeet.sources.directories import InputFile, input_path

#: Number of the manifest in the chain of digests, before batch 0.
MANIFEST_BATCH = -1
Parsed = TypeVar("Parsed")
_NUMBERED = re.compile(r"(\d{10,})\.(json|run|parts)", re.ASCII)


class FileKind(StrEnum):
    """Kinds of files in a checkpoint."""

    MANIFEST = "manifest"
    RECORD = "batch"
    PARTS = "parts"
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
class StoredPart:
    """A part of a state: what it holds, and its place in the file of the batch that wrote it."""

    input_number: int
    kind: str
    rows: int
    batch: int
    place: PartPlace

    def to_json(self) -> list[Any]:
        return [
            self.input_number,
            self.kind,
            self.rows,
            self.batch,
            self.place.offset,
            self.place.size,
            self.place.crc32,
        ]

    @classmethod
    def from_json(cls, values: list[Any]) -> StoredPart:
        input_number, kind, rows, batch, *place = values
        return cls(input_number, kind, rows, batch, PartPlace(*place))


@dataclass(frozen=True, slots=True)
class SavedState:
    """State after a batch: the facts that the run saved, its parts, and the digest of the batch's record."""

    batch: int
    record: str
    facts: Mapping[str, Any]
    stored: tuple[StoredPart, ...]
    parts: tuple[SavedPart, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage of one file. `batch` is the batch of a record, of a file of parts or of a state."""

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

    `states` are the states that were read and are intact, by batch.
    """

    path: Path
    manifest: Manifest | None
    records: Mapping[int, BatchRecord]
    states: Mapping[int, SavedState]
    damages: tuple[Damage, ...]

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint has no files yet."""
        return self.manifest is None and not self.damages

    @property
    def last_record(self) -> int:
        """Number of the newest batch that was chosen, committed or in flight; -1 if there is none."""
        return max((self.last_committed, *self.records, *(each.batch for each in self.damages)))

    @property
    def last_committed(self) -> int:
        """Number of the newest batch that has a state file, intact or not; -1 if there is none."""
        return max(list_batches(self.path / "states"), default=MANIFEST_BATCH)

    def list_states_after(self, batch: int) -> list[int]:
        """List the batches after this one that have a state file, intact or not."""
        return [each for each in list_batches(self.path / "states") if each > batch]

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
    states = _read_states(path, manifest, damages, all_states=all_states)
    records = _read_records(path, manifest, states, damages)
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
    entries = {stream: [_list_file_values(file) for file in listed] for stream, listed in files.items()}
    return encode_frame(FileKind.RECORD, {"batch": batch, "previous": previous, "files": entries})


def _list_file_values(file: InputFile) -> list[str | int]:
    stamp = [] if file.arrived_us is None else [file.arrived_us]  # absent, as in checkpoints of earlier versions
    return [file.name, file.size_bytes, file.modified_ns, *stamp]


def encode_parts(batch: int, blobs: Sequence[bytes | memoryview]) -> tuple[bytes, tuple[PartPlace, ...]]:
    """Return the bytes of a file of parts, and the place of each part in it."""
    content, _ = encode_frame(FileKind.PARTS, {"batch": batch}, blobs)
    return content, decode_header(content, FileKind.PARTS).places


def encode_state(state: SavedState, manifest: str) -> bytes:
    """Return the bytes of a state file; `manifest` is the digest of the manifest."""
    stored = [each.to_json() for each in state.stored]
    links = {"batch": state.batch, "record": state.record, "manifest": manifest}
    return encode_frame(FileKind.STATE, {**links, "facts": state.facts, "stored": stored})[0]


def manifest_path(path: Path) -> Path:
    return path / "about.json"


def batch_path(path: Path, batch: int) -> Path:
    """Return the path of a batch's record; of the manifest for the batch before the first."""
    return manifest_path(path) if batch == MANIFEST_BATCH else path / "batches" / f"{batch:010d}.json"


def parts_path(path: Path, batch: int) -> Path:
    return path / "parts" / f"{batch:010d}.parts"


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
        if isinstance(error.__cause__, OtherFormatError):
            raise InputError(
                f'checkpoint "{path}" {error.problem}',
                hint="resume it with that version, or start again with a new checkpoint and a new output directory",
            ) from error
        damages.append(Damage(file_path, error.problem, FileKind.MANIFEST))
        return None


def _parse_manifest(frame: FrameHeader) -> Manifest:
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


def _read_records(
    path: Path, manifest: Manifest | None, states: Mapping[int, SavedState], damages: list[Damage]
) -> dict[int, BatchRecord]:
    """Read the records of the batches after the newest intact state. Nothing needs the others, which may be deleted."""
    listed, committed = list_batches(path / "batches"), list_batches(path / "states")
    newest = max(states or committed, default=MANIFEST_BATCH)
    before, digest = batch_path(path, MANIFEST_BATCH), None if manifest is None else manifest.digest
    if newest != MANIFEST_BATCH:
        before, digest = state_path(path, newest), states[newest].record if newest in states else None
    records: dict[int, BatchRecord] = {}
    for batch in range(newest + 1, max((*listed, *committed), default=MANIFEST_BATCH) + 1):
        file_path = batch_path(path, batch)
        try:
            frame = read_frame(file_path, FileKind.RECORD)
            records[batch] = _parse(file_path, frame, _parse_record)
            _check_number(file_path, frame, batch)
            _check_link(file_path, frame.header.get("previous"), before, digest)
        except DamagedFileError as error:
            records.pop(batch, None)
            damages.append(Damage(file_path, error.problem, FileKind.RECORD, batch))
        before, digest = file_path, records[batch].digest if batch in records else None
    return records


def _parse_record(frame: FrameHeader) -> BatchRecord:
    files = {stream: tuple(InputFile(*each) for each in listed) for stream, listed in frame.header["files"].items()}
    return BatchRecord(int(frame.header["batch"]), files, frame.digest)


def _read_states(
    path: Path, manifest: Manifest | None, damages: list[Damage], *, all_states: bool
) -> dict[int, SavedState]:
    """Read the newest state, or all. Damage of an older one counts only if the newest one does not need the file."""
    states: dict[int, SavedState] = {}
    needed: set[Path] = set()
    committed = list_batches(path / "states")
    for batch in reversed(committed if all_states else committed[-1:]):
        try:
            states[batch] = state = _read_state(path, batch, manifest)
            needed |= {parts_path(path, each.batch) for each in state.stored}
        except _DamagedPartError as error:
            if error.path not in needed:
                damages.append(Damage(error.path, error.problem, FileKind.PARTS, error.batch))
        except DamagedFileError as error:
            damages.append(Damage(error.path, error.problem, FileKind.STATE, batch))
    return states


class _DamagedPartError(DamagedFileError):
    """Damaged file of parts, and its batch."""

    def __init__(self, path: Path, problem: str, batch: int) -> None:
        super().__init__(path, problem)
        self.batch = batch


def _read_state(path: Path, batch: int, manifest: Manifest | None) -> SavedState:
    file_path, record_path = state_path(path, batch), batch_path(path, batch)
    frame = read_frame(file_path, FileKind.STATE)
    _check_number(file_path, frame, batch)
    digest = None if manifest is None else manifest.digest
    _check_link(file_path, frame.header.get("manifest"), manifest_path(path), digest)
    _check_link(file_path, frame.header.get("record"), record_path, _find_digest(record_path, FileKind.RECORD))
    record, facts, stored = _parse(file_path, frame, _parse_state)
    return SavedState(batch, record, facts, stored, tuple(read_parts(path, stored)))


def _parse_state(frame: FrameHeader) -> tuple[str, Mapping[str, Any], tuple[StoredPart, ...]]:
    header = frame.header
    return header["record"], header["facts"], tuple(StoredPart.from_json(values) for values in header["stored"])


def _find_digest(file_path: Path, kind: FileKind) -> str | None:
    """Return the digest of an intact file; None if the file is missing or damaged."""
    try:
        return read_frame(file_path, kind).digest
    except DamagedFileError:
        return None


def read_parts(path: Path, stored: Sequence[StoredPart]) -> Iterator[SavedPart]:
    """Yield the parts in their order. Each file is opened once, and only the parts in use are read."""
    with ExitStack() as files:
        opened: dict[int, BinaryIO] = {}
        for part in stored:
            file_path = parts_path(path, part.batch)
            try:
                if part.batch not in opened:
                    opened[part.batch] = files.enter_context(open_file(file_path))
                blob = read_part(file_path, opened[part.batch], part.place)
            except DamagedFileError as error:
                raise _DamagedPartError(file_path, error.problem, part.batch) from error
            yield SavedPart(part.input_number, part.kind, pa.py_buffer(blob))


def _check_number(file_path: Path, frame: FrameHeader, batch: int) -> None:
    number = frame.header.get("batch")
    if number != batch:
        raise DamagedFileError(file_path, f"is damaged: it belongs to batch {number}, not to batch {batch}")


def _check_link(file_path: Path, link: str | None, predecessor: Path, digest: str | None) -> None:
    """Refuse a file that names another predecessor. A damaged predecessor has no digest to compare with."""
    if digest is not None and link != digest:
        raise DamagedFileError(
            file_path, f'does not follow "{predecessor}": one of the two is from another run or another time'
        )


def _parse(file_path: Path, frame: FrameHeader, parse: Callable[[FrameHeader], Parsed]) -> Parsed:
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

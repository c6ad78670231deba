"""Owner of an output directory: one checkpoint, whose random id a marker file holds.

Two jobs that write to one directory overwrite each other's files, or readers mix their rows. So the first job claims
the directory, and any other job is refused. Readers skip the marker: its name begins with an underscore.

A job writes its manifest before it claims its output. If it stops in between, it claims the output when it resumes,
unless another job was faster.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from watersmeet.errors import InputError
from watersmeet.files import flush_directory, make_directory, write_atomically
from watersmeet.framing import DamagedFileError, encode_frame, read_frame
from watersmeet.sinks import SINK_FORMATS
from watersmeet.sources.files import is_data_file

OWNER_FILE = "_watersmeet_owner.json"
_KIND = "owner"
_START_AGAIN = "use another output directory, or delete this one to start again"


@dataclass(frozen=True, slots=True)
class OutputOwner:
    """Checkpoint that owns an output directory. `checkpoint` is its absolute path; None for a run without one."""

    checkpoint_id: str
    checkpoint: str | None


def read_spark_owner(checkpoint: Path) -> OutputOwner:
    """Return the identity of a Spark checkpoint: the id of its query.

    The id is written here if Spark has not started the query yet.
    """
    metadata = checkpoint / "metadata"
    if not metadata.exists() and not _has_spark_batches(checkpoint):
        write_atomically(metadata, json.dumps({"id": str(uuid.uuid4())}).encode())
    hint = f"watersmeet repair {checkpoint} lists the possible fixes"
    try:
        query_id = json.loads(metadata.read_bytes())["id"]
    except OSError as error:
        problem = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
        raise DamagedFileError(metadata, problem, hint=hint) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(metadata, "is damaged", hint=hint) from error
    return OutputOwner(str(query_id), str(checkpoint.absolute()))


def is_new_spark_checkpoint(checkpoint: Path) -> bool:
    """Return whether no batch of a Spark checkpoint was ever chosen."""
    return not _has_spark_batches(checkpoint)


def owner_path(directory: Path) -> Path:
    return directory / OWNER_FILE


def read_owner(directory: Path) -> OutputOwner | None:
    """Return the owner of an output directory, None if it has none; a `DamagedFileError` names a damaged marker."""
    marker = owner_path(directory)
    if not marker.exists():
        return None
    header = read_frame(marker, _KIND).header
    return OutputOwner(header["checkpoint_id"], header["checkpoint"])


def check_output_owner(directory: Path, owner: OutputOwner, *, is_new: bool) -> None:
    """Refuse an output directory of another checkpoint, or one with other rows if the job is new."""
    try:
        current = read_owner(directory)
    except DamagedFileError as error:
        error.hint = (
            "if this output belongs to the checkpoint, delete that file: the next run writes it again"
            if owner.checkpoint is None
            else f"watersmeet repair {owner.checkpoint} --fix moves it aside, and the next run writes it again"
        )
        raise
    if current is None:
        if is_new:
            _refuse_foreign_rows(directory)
    elif not _may_claim(directory, current, owner):
        raise _ownership_error(directory, current, owner)


def claim_output(directory: Path, owner: OutputOwner) -> None:
    """Write the marker, unless it exists. Of two jobs that claim a directory at the same time, one is refused."""
    current = read_owner(directory)
    if current == owner:
        return
    content = encode_frame(_KIND, {"checkpoint_id": owner.checkpoint_id, "checkpoint": owner.checkpoint})[0]
    if current is not None:
        if not _may_claim(directory, current, owner):
            raise _ownership_error(directory, current, owner)
        write_atomically(owner_path(directory), content)  # a moved checkpoint, or an earlier claim without rows
    elif not _create_exclusively(owner_path(directory), content):
        claim_output(directory, owner)


def _may_claim(directory: Path, current: OutputOwner, owner: OutputOwner) -> bool:
    """Return whether the marker is this checkpoint's.

    A marker of an earlier checkpoint at the same path counts too, if that checkpoint wrote no row.
    """
    if current.checkpoint_id == owner.checkpoint_id:
        return True
    return owner.checkpoint is not None and current.checkpoint == owner.checkpoint and not _list_row_files(directory)


def _ownership_error(directory: Path, current: OutputOwner, owner: OutputOwner) -> InputError:
    if current.checkpoint is None:
        message, hint = "holds the rows of a run without a checkpoint", _START_AGAIN
    elif current.checkpoint == owner.checkpoint:
        message = (
            f'belongs to an earlier checkpoint "{current.checkpoint}", which was deleted: '
            "this run would write its rows a second time"
        )
        hint = _START_AGAIN
    elif not any((Path(current.checkpoint) / name).exists() for name in ("about.json", "metadata")):
        message = (
            f'belongs to checkpoint "{current.checkpoint}", which no longer exists: '
            "this run would write its rows a second time"
        )
        hint = _START_AGAIN
    else:
        message = f'belongs to checkpoint "{current.checkpoint}"'
        hint = f"use another output directory, or resume that job with --checkpoint {current.checkpoint}"
    return InputError(
        f'output directory "{directory}" {message}', hint=f'{hint} (its owner is named in "{owner_path(directory)}")'
    )


def _refuse_foreign_rows(directory: Path) -> None:
    rows = _list_row_files(directory)
    if rows:
        raise InputError(
            f'output directory "{directory}" already holds "{rows[0]}", which no run of this checkpoint wrote',
            hint="use an empty output directory: readers of the directory would mix both results",
        )


def _list_row_files(directory: Path) -> list[str]:
    """List files that a reader of the directory reads as rows, or Spark's log of such files."""
    try:
        names = sorted(
            file.name
            for file in directory.iterdir()
            if is_data_file(file) or file.suffix in SINK_FORMATS or file.name == "_spark_metadata"
        )
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f'output directory "{directory}" cannot be read: {error.strerror or error}') from error
    return names


def _create_exclusively(marker: Path, content: bytes) -> bool:
    """Create a file with all its content; return False if there is one already."""
    unfinished = marker.with_name(f".{marker.name}.{uuid.uuid4().hex}")
    try:
        make_directory(marker.parent)
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, marker)
        flush_directory(marker.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(f'"{marker}" cannot be written: {error.strerror or error}') from error
    finally:
        unfinished.unlink(missing_ok=True)
    return True


def _has_spark_batches(checkpoint: Path) -> bool:
    offsets = checkpoint / "offsets"
    return offsets.is_dir() and any(file.name.isdecimal() for file in offsets.iterdir())

"""Checkpoints of the embedded host, file by file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from watersmeet.errors import InputError
from watersmeet.runtime.job.checkpoint import batch_path, numbers, read_about, state_path
from watersmeet.runtime.job.repair.finding import ASIDE, Finding
from watersmeet.runtime.job.repair.spark import is_spark_checkpoint, spark_findings
from watersmeet.runtime.job.saved import opened


def findings(path: Path, out: Path | None = None) -> list[Finding]:
    """Everything wrong with a checkpoint directory, refuses what is not one; `out` is where the query's rows are."""
    if not path.is_dir():
        raise InputError(f'there is no directory "{path}"')
    if (path / "about.json").exists() or (path / "batches").is_dir():
        return [*_about(path), *_batches(path), *_states(path), *_leftovers(path)]
    if is_spark_checkpoint(path):
        return spark_findings(path, out)
    raise InputError(
        f'"{path}" is not a checkpoint',
        hint="a checkpoint of the embedded engine has about.json and batches in it, one of Spark metadata and offsets",
    )


def _about(path: Path) -> Iterator[Finding]:
    place = path / "about.json"
    try:
        read_about(place)
    except (InputError, KeyError) as error:
        said = error.message if isinstance(error, InputError) else "a part of it is missing"
        yield Finding(place, said, "which query this was is not known any more: begin anew with another checkpoint and another output")


def _batches(path: Path) -> Iterator[Finding]:
    """A list of files that is lost is no loss while its batch is not committed: the files are simply decided upon again."""
    committed = max(numbers(path / "states"), default=-1)
    known = numbers(path / "batches")
    for number in range(committed + 1):
        if number not in known:
            yield Finding(batch_path(path, number), "it is missing", _READ_TWICE)
    for number in known:
        place = batch_path(path, number)
        if _is_a_list_of_files(place):
            continue
        if number <= committed:
            yield Finding(place, "it is damaged", _READ_TWICE)
        else:
            yield Finding(place, "it is damaged", "the batch was not committed: its files are decided upon again", (place,))


_READ_TWICE = "which files this batch read is not known any more, so they would be read twice: begin anew with another checkpoint"


def _is_a_list_of_files(place: Path) -> bool:
    try:
        files = json.loads(place.read_bytes())["files"]
        return all(isinstance(name, str) for names in files.values() for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _states(path: Path) -> Iterator[Finding]:
    for number in numbers(path / "states"):
        place = state_path(path, number)
        try:
            opened(place.read_bytes())
        except InputError as error:
            yield Finding(place, error.message, "the run goes back to the state before and runs the batches since then again", (place,))
        except OSError as error:
            yield Finding(place, f"it cannot be read: {error.strerror or error}", "the disk or its rights are to be looked at first")


def _leftovers(path: Path) -> Iterator[Finding]:
    for directory in (path, path / "batches", path / "states"):
        for file in sorted(directory.glob(".*")) if directory.is_dir() else ():
            if file.is_file() and not file.name.endswith(ASIDE):
                yield Finding(file, "a file that was never finished", "nothing reads it", (file,))

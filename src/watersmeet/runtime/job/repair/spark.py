"""Checkpoints of Spark's Structured Streaming: a log of what each batch was to read (`offsets`) and one of what is done (`commits`).

A batch is in `offsets` before it runs and in `commits` after its sink and state are written. Spark goes on with the last batch in
`offsets`, and runs it again if it is not in `commits`. So the newest entry of either log may be missing, but a damaged one stops the query.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from watersmeet.runtime.job.repair.finding import Finding

_LOGS = ("offsets", "commits")


def is_spark_checkpoint(path: Path) -> bool:
    return (path / "metadata").exists() or (path / "offsets").is_dir()


def spark_findings(path: Path) -> list[Finding]:
    """Everything wrong with the logs of a Spark checkpoint. State files are checked by Spark itself, against their own checksums."""
    return [*_metadata(path), *_entries(path), *_order(path)]


def _metadata(path: Path) -> Iterator[Finding]:
    place = path / "metadata"
    try:
        known = json.loads(place.read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if not isinstance(known, str):
        yield Finding(place, "it is missing or damaged", "Spark would take the query for a new one and refuse its state: begin anew")


def _entries(path: Path) -> Iterator[Finding]:
    newest = max(_numbers(path / "offsets"), default=-1)
    committed = max(_numbers(path / "commits"), default=-1)
    for log in _LOGS:
        for number in _numbers(path / log):
            place = path / log / str(number)
            if _is_whole(place):
                continue
            if log == "offsets" and number == newest and number > committed:
                yield Finding(place, "it is torn", "the batch was not committed: Spark decides upon it again", _with_checksum(place))
            elif log == "commits" and number == committed == newest:
                yield Finding(
                    place, "it is torn", "Spark runs the batch again over the same rows, into the same files", _with_checksum(place)
                )
            else:
                yield Finding(place, "it is damaged", "Spark refuses to go on, and batches after it are done: begin anew")


def _order(path: Path) -> Iterator[Finding]:
    offsets = _numbers(path / "offsets")
    for number in _numbers(path / "commits"):
        if offsets and number > offsets[-1]:
            place = path / "commits" / str(number)
            yield Finding(place, "it commits a batch that was never decided", "the offsets of that batch are lost: begin anew")
    for before, after in pairwise(offsets):
        if after != before + 1:
            place = path / "offsets" / str(before + 1)
            yield Finding(place, "it is missing", "Spark refuses a log with a hole: begin anew")


def _numbers(directory: Path) -> list[int]:
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal()) if directory.is_dir() else []


def _is_whole(place: Path) -> bool:
    """A version line, and lines of JSON (or `-`, for a source without a position) below it."""
    try:
        version, *lines = place.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line != "-":
                json.loads(line)
    except (OSError, ValueError):
        return False
    return version.startswith("v") and version[1:].isdecimal() and bool(lines)


def _with_checksum(place: Path) -> tuple[Path, ...]:
    """The file and the checksum Hadoop keeps beside it: a checksum alone would make the next file of that name look damaged."""
    checksum = place.with_name(f".{place.name}.crc")
    return (place, checksum) if checksum.exists() else (place,)

"""Checkpoints of Spark's Structured Streaming: logs of what each batch reads (`offsets`, `sources`) and of what is done (`commits`).

A batch is in `offsets` before it runs and in `commits` after its state and its sink are written. Spark goes on with the last batch in
`offsets`, and runs it again if it is not in `commits`. So the newest entry of either log may be missing, but a damaged one stops the query.
A batch that was decided anew may take more files than it did before, so that is offered only while nothing of it can have been put out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from watersmeet.runtime.job.repair.checksums import contradicts_checksum, with_checksum
from watersmeet.runtime.job.repair.finding import Finding
from watersmeet.runtime.job.repair.rewind import committed, may_be_out, numbers, rewound
from watersmeet.runtime.job.repair.spark_state import state_findings

_LOGS = ("offsets", "commits")
_DECIDED_AGAIN = "nothing of the batch was put out: Spark decides upon it again"
_PERHAPS_OUT = "the batch may have been put out already, and Spark would decide upon it anew: begin anew"


def is_spark_checkpoint(path: Path) -> bool:
    return (path / "metadata").exists() or (path / "offsets").is_dir()


def spark_findings(path: Path, out: Path | None = None) -> list[Finding]:
    """Everything wrong with a Spark checkpoint on a disk of this machine; `out` is where its file sink writes."""
    return [*_metadata(path), *_entries(path), *_order(path), *_sources(path), *state_findings(path, out)]


def _metadata(path: Path) -> Iterator[Finding]:
    place = path / "metadata"
    try:
        known = json.loads(place.read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if not isinstance(known, str) or contradicts_checksum(place):
        yield Finding(place, "it is missing or damaged", "Spark would take the query for a new one and refuse its state: begin anew")


def _entries(path: Path) -> Iterator[Finding]:
    newest, done = max(numbers(path / "offsets"), default=-1), committed(path)
    for log in _LOGS:
        for number in numbers(path / log):
            place = path / log / str(number)
            if _is_whole(place):
                continue
            if log == "offsets" and number == newest and number > done:
                yield _undecided(path, place, number)
            elif log == "commits" and number == done and rewound(path, number):
                meaning = "Spark runs the batch again over the same rows, and its file sinks know what they have"
                yield Finding(place, "it is torn", meaning, rewound(path, number))
            else:
                yield Finding(place, "it is damaged", "Spark refuses to go on, and its batch is done: begin anew")


def _undecided(path: Path, place: Path, batch: int, *more: Path) -> Finding:
    """An entry of a batch that is not committed: it may be decided anew as long as it cannot have reached its sink."""
    if may_be_out(path, batch):
        return Finding(place, "it is torn", _PERHAPS_OUT)
    return Finding(place, "it is torn", _DECIDED_AGAIN, (*with_checksum(place), *more))


def _order(path: Path) -> Iterator[Finding]:
    offsets = numbers(path / "offsets")
    for number in numbers(path / "commits"):
        if not offsets or number > offsets[-1]:
            place = path / "commits" / str(number)
            yield Finding(place, "it commits a batch that was never decided", "the offsets of that batch are lost: begin anew")
    for before, after in pairwise(offsets):
        if after != before + 1:
            place = path / "offsets" / str(before + 1)
            yield Finding(place, "it is missing", "Spark refuses a log with a hole: begin anew")


def _sources(path: Path) -> Iterator[Finding]:
    """The logs of files that sources have taken: entries of committed batches are needed, others may be decided upon again."""
    done = committed(path)
    for log in sorted((path / "sources").glob("*")) if (path / "sources").is_dir() else ():
        taken = _taken(path, log.name, done)
        if taken is None:
            continue
        known = {int(file.name.removesuffix(".compact")): file for file in log.iterdir() if _is_entry(file)}
        since = max((number for number, file in known.items() if file.suffix == ".compact" and number <= taken), default=0)
        for number in range(since, taken + 1):
            if number not in known:
                yield Finding(log / str(number), "it is missing", _READ_TWICE)
        for number, file in sorted(known.items()):
            if number >= since and not _is_whole(file, least_lines=0):
                yield Finding(file, "it is damaged", _READ_TWICE) if number <= taken else _again(path, file, done + 1)


_READ_TWICE = "which files were read is not known any more, so they would be read twice: begin anew"


def _again(path: Path, file: Path, batch: int) -> Finding:
    decided = path / "offsets" / str(batch)
    return _undecided(path, file, batch, *(with_checksum(decided) if decided.exists() else ()))


def _taken(path: Path, source: str, done: int) -> int | None:
    """The newest entry of a source's log that a committed batch has read; None for sources whose position is kept elsewhere."""
    try:
        line = (path / "offsets" / str(done)).read_text(encoding="utf-8").splitlines()[2 + int(source)]
        taken = json.loads(line)["logOffset"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return -1 if done < 0 else None
    return taken if isinstance(taken, int) else None


def _is_entry(file: Path) -> bool:
    return file.name.removesuffix(".compact").isdecimal()


def _is_whole(place: Path, least_lines: int = 1) -> bool:
    """A version line, and lines of JSON (or `-`, for a source without a position) below it; the checksum beside it agrees."""
    try:
        version, *lines = place.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line != "-":
                json.loads(line)
    except (OSError, ValueError):
        return False
    return version.startswith("v") and version[1:].isdecimal() and len(lines) >= least_lines and not contradicts_checksum(place)

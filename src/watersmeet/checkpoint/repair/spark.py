"""Check a checkpoint of Spark's Structured Streaming: logs of the files of each batch (`offsets`, `sources`) and of
commits (`commits`).

A batch is in `offsets` before it runs and in `commits` after its state and its sink are written. Spark resumes with the
last batch in `offsets`, and runs it again if it is not in `commits`. So the newest entry of either log may be missing,
but a damaged one stops the query. A batch that is chosen again may read more files than before, so that is offered only
while none of its rows can be written. A batch that runs again reads its input files again, so that is offered only
while they are there, unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from watersmeet.checkpoint.repair.checksums import contradicts_checksum, with_checksum
from watersmeet.checkpoint.repair.finding import Finding
from watersmeet.checkpoint.repair.rewind import committed, may_be_out, numbers, rewound
from watersmeet.checkpoint.repair.spark_inputs import spark_input_problems
from watersmeet.checkpoint.repair.spark_state import state_findings

_LOGS = ("offsets", "commits")
_DECIDED_AGAIN = "no row of the batch is written: Spark chooses its files again"
_PERHAPS_OUT = "the batch may already be written, and Spark would choose its files again: start from a new checkpoint"


def is_spark_checkpoint(path: Path) -> bool:
    return (path / "metadata").exists() or (path / "offsets").is_dir()


def spark_findings(path: Path, out: Path | None = None) -> list[Finding]:
    """List everything wrong with a Spark checkpoint on a disk of this machine; `out` is where its file sink writes."""
    found = [*_metadata(path), *_entries(path), *_order(path), *_sources(path), *state_findings(path, out)]
    return [_only_with_inputs(path, each) for each in found] + list(_lost_inputs(path, found))


def _only_with_inputs(path: Path, finding: Finding) -> Finding:
    """Withdraw a fix after which a batch runs again whose input files are gone or changed."""
    if path / "commits" / str(committed(path)) not in finding.aside:
        return finding
    batch = committed(path)
    problem = next(spark_input_problems(path, batch), None)
    if problem is None:
        return finding
    place, wrong = problem
    return replace(
        finding,
        meaning=f'batch {batch} has to run again, and its input "{place}" {wrong}; restore that file first',
        aside=(),
    )


def _lost_inputs(path: Path, found: list[Finding]) -> Iterator[Finding]:
    """Inputs of the batch in flight, which Spark runs again whatever is fixed."""
    batch = max(numbers(path / "offsets"), default=-1)
    if batch <= committed(path) or any(path / "offsets" / str(batch) in each.aside for each in found):
        return
    for place, wrong in spark_input_problems(path, batch):
        yield Finding(place, wrong, f"batch {batch} has to run again and reads it; restore that file")


def _metadata(path: Path) -> Iterator[Finding]:
    place = path / "metadata"
    try:
        known = json.loads(place.read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if not isinstance(known, str) or contradicts_checksum(place):
        yield Finding(
            place,
            "is missing or damaged",
            "Spark would take the query for a new one and refuse its state: start from a new checkpoint",
        )


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
                meaning = "Spark runs the batch again over the same files, and its file sinks skip rows they have"
                yield Finding(place, "is torn", meaning, rewound(path, number))
            else:
                yield Finding(
                    place,
                    "is damaged",
                    "Spark refuses to resume, and its batch is committed: start from a new checkpoint",
                )


def _undecided(path: Path, place: Path, batch: int, *more: Path) -> Finding:
    """Report an entry of a batch that is not committed: its files may be chosen again while it cannot have reached its
    sink.
    """
    if may_be_out(path, batch):
        return Finding(place, "is torn", _PERHAPS_OUT)
    return Finding(place, "is torn", _DECIDED_AGAIN, (*with_checksum(place), *more))


def _order(path: Path) -> Iterator[Finding]:
    offsets = numbers(path / "offsets")
    for number in numbers(path / "commits"):
        if not offsets or number > offsets[-1]:
            place = path / "commits" / str(number)
            yield Finding(
                place,
                "commits a batch that has no offsets",
                "the offsets of that batch are lost: start from a new checkpoint",
            )
    for before, after in pairwise(offsets):
        if after != before + 1:
            place = path / "offsets" / str(before + 1)
            yield Finding(place, "is missing", "Spark refuses a log with a gap: start from a new checkpoint")


def _sources(path: Path) -> Iterator[Finding]:
    """Check the logs of files that sources have read: entries of committed batches are needed, others may be chosen
    again.
    """
    done = committed(path)
    for log in sorted((path / "sources").glob("*")) if (path / "sources").is_dir() else ():
        taken = _taken(path, log.name, done)
        if taken is None:
            continue
        known = {int(file.name.removesuffix(".compact")): file for file in log.iterdir() if _is_entry(file)}
        since = max(
            (number for number, file in known.items() if file.suffix == ".compact" and number <= taken), default=0
        )
        for number in range(since, taken + 1):
            if number not in known:
                yield Finding(log / str(number), "is missing", _READ_TWICE)
        for number, file in sorted(known.items()):
            if number >= since and not _is_whole(file, least_lines=0):
                yield Finding(file, "is damaged", _READ_TWICE) if number <= taken else _again(path, file, done + 1)


_READ_TWICE = "the files that were read are unknown, and would be read twice: start from a new checkpoint"


def _again(path: Path, file: Path, batch: int) -> Finding:
    decided = path / "offsets" / str(batch)
    return _undecided(path, file, batch, *(with_checksum(decided) if decided.exists() else ()))


def _taken(path: Path, source: str, done: int) -> int | None:
    """The newest entry of a source's log that a committed batch has read; None for sources whose position is kept
    elsewhere.
    """
    try:
        line = (path / "offsets" / str(done)).read_text(encoding="utf-8").splitlines()[2 + int(source)]
        taken = json.loads(line)["logOffset"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return -1 if done < 0 else None
    return taken if isinstance(taken, int) else None


def _is_entry(file: Path) -> bool:
    return file.name.removesuffix(".compact").isdecimal()


def _is_whole(place: Path, least_lines: int = 1) -> bool:
    """A version line, and lines of JSON (or `-`, for a source without a position) below it; the checksum beside it
    agrees.
    """
    try:
        version, *lines = place.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line != "-":
                json.loads(line)
    except (OSError, ValueError):
        return False
    return (
        version.startswith("v")
        and version[1:].isdecimal()
        and len(lines) >= least_lines
        and not contradicts_checksum(place)
    )

"""Find the problems of a checkpoint, and fix those that can be fixed without losing or duplicating rows.

The logs of a checkpoint of Spark Structured Streaming hold the files of each batch (`offsets`, `sources`) and the
commits (`commits`). A batch is in `offsets` before it runs and in `commits` after its state and its sink are written.
Spark resumes with the last batch in `offsets`, and reruns it if it is not in `commits`. So the newest entry of either
log may be missing, but a damaged one stops the query.

A batch whose files are chosen again may read more files than before. So that fix is offered only while none of its rows
can be written. A batch that is rerun reads its input files again. So that fix is offered only while they exist,
unchanged.

The logs of file sources name the input files of a batch. `offsets/7` has one line per source; a file source's line is
`{"logOffset": 4}`. The batch reads the files that the source's log lists after the offset of batch 6, up to entry 4. An
entry has one line per file: its path, its modification time and the number of the entry. Compacted entries list the
files of all entries before them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from watersmeet.checkpoint.contents import manifest_path
from watersmeet.checkpoint.findings import Finding, find_embedded_problems
from watersmeet.checkpoint.spark_files import (
    contradicts_checksum,
    find_state_problems,
    last_committed_batch,
    list_files_to_rewind,
    list_log_entries,
    may_be_written,
    with_checksum,
)
from watersmeet.errors import InputError

_LOGS = ("offsets", "commits")
_FILES_CHOSEN_AGAIN = "no row of the batch is written: Spark chooses its files again"
_MAY_BE_WRITTEN = (
    "the batch may already be written, and Spark would choose its files again: start from a new checkpoint"
)


def find_problems(path: Path, out: Path | None = None) -> list[Finding]:
    """List all problems of a checkpoint directory, of either engine.

    `out` is the output directory. It is needed if the directory was moved, or if Spark has to rerun a batch.
    """
    if not path.is_dir():
        raise InputError(f'there is no directory "{path}"')
    if manifest_path(path).exists() or (path / "batches").is_dir():
        return list(find_embedded_problems(path, out))
    if is_spark_checkpoint(path):
        return find_spark_problems(path, out)
    raise InputError(
        f'"{path}" is not a checkpoint',
        hint="a checkpoint of the embedded engine has about.json and batches in it, one of Spark metadata and offsets",
    )


def is_spark_checkpoint(path: Path) -> bool:
    """Return whether a directory is a Spark checkpoint."""
    return (path / "metadata").exists() or (path / "offsets").is_dir()


def find_spark_problems(path: Path, out: Path | None = None) -> list[Finding]:
    """List all problems of a Spark checkpoint on a local disk; `out` is the directory of its file sink."""
    findings = [
        *_check_metadata(path),
        *_check_log_entries(path),
        *_check_batch_order(path),
        *_check_source_logs(path),
        *find_state_problems(path, out),
    ]
    return [_withdraw_fix_without_inputs(path, each) for each in findings] + list(
        _find_lost_spark_inputs(path, findings)
    )


def _withdraw_fix_without_inputs(path: Path, finding: Finding) -> Finding:
    """Withdraw a fix that reruns a batch whose input files are missing or changed."""
    if path / "commits" / str(last_committed_batch(path)) not in finding.aside:
        return finding
    batch = last_committed_batch(path)
    problem = next(find_spark_input_problems(path, batch), None)
    if problem is None:
        return finding
    file_path, description = problem
    return replace(
        finding,
        consequence=f'batch {batch} has to run again, and its input "{file_path}" {description}; '
        "restore that file first",
        aside=(),
    )


def _find_lost_spark_inputs(path: Path, findings: list[Finding]) -> Iterator[Finding]:
    """Yield missing or changed inputs of the batch in flight, which Spark reruns regardless of any fix."""
    batch = max(list_log_entries(path / "offsets"), default=-1)
    if batch <= last_committed_batch(path) or any(path / "offsets" / str(batch) in each.aside for each in findings):
        return
    for file_path, description in find_spark_input_problems(path, batch):
        yield Finding(file_path, description, f"batch {batch} has to run again and reads it; restore that file")


def _check_metadata(path: Path) -> Iterator[Finding]:
    file_path = path / "metadata"
    try:
        query_id = json.loads(file_path.read_bytes())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        query_id = None
    if not isinstance(query_id, str) or contradicts_checksum(file_path):
        yield Finding(
            file_path,
            "is missing or damaged",
            "Spark would take the query for a new one and refuse its state: start from a new checkpoint",
        )


def _check_log_entries(path: Path) -> Iterator[Finding]:
    newest, committed = max(list_log_entries(path / "offsets"), default=-1), last_committed_batch(path)
    for log in _LOGS:
        for number in list_log_entries(path / log):
            file_path = path / log / str(number)
            if _is_intact_log_file(file_path):
                continue
            if log == "offsets" and number == newest and number > committed:
                yield _report_uncommitted_entry(path, file_path, number)
            elif log == "commits" and number == committed and list_files_to_rewind(path, number):
                consequence = "Spark runs the batch again over the same files, and its file sinks skip rows they have"
                yield Finding(file_path, "is torn", consequence, list_files_to_rewind(path, number))
            else:
                yield Finding(
                    file_path,
                    "is damaged",
                    "Spark refuses to resume, and its batch is committed: start from a new checkpoint",
                )


def _report_uncommitted_entry(path: Path, file_path: Path, batch: int, *related_files: Path) -> Finding:
    """Report an entry of an uncommitted batch: its files may be chosen again while its sink cannot have written it."""
    if may_be_written(path, batch):
        return Finding(file_path, "is torn", _MAY_BE_WRITTEN)
    return Finding(file_path, "is torn", _FILES_CHOSEN_AGAIN, (*with_checksum(file_path), *related_files))


def _check_batch_order(path: Path) -> Iterator[Finding]:
    offsets = list_log_entries(path / "offsets")
    for number in list_log_entries(path / "commits"):
        if not offsets or number > offsets[-1]:
            file_path = path / "commits" / str(number)
            yield Finding(
                file_path,
                "commits a batch that has no offsets",
                "the offsets of that batch are lost: start from a new checkpoint",
            )
    for before, after in pairwise(offsets):
        if after != before + 1:
            file_path = path / "offsets" / str(before + 1)
            yield Finding(file_path, "is missing", "Spark refuses a log with a gap: start from a new checkpoint")


def _check_source_logs(path: Path) -> Iterator[Finding]:
    """Check the logs of files that sources have read.

    Entries of committed batches are needed; the files of other batches may be chosen again.
    """
    committed = last_committed_batch(path)
    for log in sorted((path / "sources").glob("*")) if (path / "sources").is_dir() else ():
        last_read = _last_entry_read(path, log.name, committed)
        if last_read is None:
            continue
        entries = {int(file.name.removesuffix(".compact")): file for file in log.iterdir() if _is_log_entry(file)}
        since = max(
            (number for number, file in entries.items() if file.suffix == ".compact" and number <= last_read), default=0
        )
        for number in range(since, last_read + 1):
            if number not in entries:
                yield Finding(log / str(number), "is missing", _READ_TWICE)
        for number, file in sorted(entries.items()):
            if number >= since and not _is_intact_log_file(file, min_lines=0):
                yield (
                    Finding(file, "is damaged", _READ_TWICE)
                    if number <= last_read
                    else _report_source_entry(path, file, committed + 1)
                )


_READ_TWICE = "the files that were read are unknown, and would be read twice: start from a new checkpoint"


def _report_source_entry(path: Path, file: Path, batch: int) -> Finding:
    decided = path / "offsets" / str(batch)
    return _report_uncommitted_entry(path, file, batch, *(with_checksum(decided) if decided.exists() else ()))


def _last_entry_read(path: Path, source: str, committed: int) -> int | None:
    """Return the newest entry of a source's log that a committed batch has read.

    None means that the position of the source is stored elsewhere.
    """
    try:
        line = (path / "offsets" / str(committed)).read_text(encoding="utf-8").splitlines()[2 + int(source)]
        last_read = json.loads(line)["logOffset"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return -1 if committed < 0 else None
    return last_read if isinstance(last_read, int) else None


def _is_log_entry(file: Path) -> bool:
    return file.name.removesuffix(".compact").isdecimal()


def _is_intact_log_file(file_path: Path, min_lines: int = 1) -> bool:
    """Return whether a log file is intact and its checksum matches.

    It has a version line, and below it lines of JSON (or `-`, for a source without a position).
    """
    try:
        version, *lines = file_path.read_text(encoding="utf-8").splitlines()
        for line in lines:
            if line != "-":
                json.loads(line)
    except (OSError, ValueError):
        return False
    return (
        version.startswith("v")
        and version[1:].isdecimal()
        and len(lines) >= min_lines
        and not contradicts_checksum(file_path)
    )


def find_spark_input_problems(path: Path, batch: int) -> Iterator[tuple[Path, str]]:
    """Yield the input files of a batch that are missing or have changed. Only sources of local files are checked."""
    now, before = _read_log_offsets(path, batch), _read_log_offsets(path, batch - 1)
    for source, last in enumerate(now):
        if last is None:
            continue
        first = before[source] if source < len(before) else None
        for entry in _read_log_entries(path / "sources" / str(source), -1 if first is None else first, last):
            problem = _check_input_file(entry)
            if problem is not None:
                yield problem


def _read_log_offsets(path: Path, batch: int) -> list[int | None]:
    """Return the last log entry that each file source has read up to a batch; None for sources of other kinds."""
    try:
        lines = (path / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
    except (OSError, ValueError):
        return []
    return [_parse_log_offset(line) for line in lines]


def _parse_log_offset(line: str) -> int | None:
    try:
        offset = json.loads(line)["logOffset"]
    except (ValueError, KeyError, TypeError):
        return None
    return offset if isinstance(offset, int) else None


def _read_log_entries(log: Path, after: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield the files that a source's log lists between two offsets."""
    for number in range(after + 1, last + 1):
        for file_path in (log / str(number), log / f"{number}.compact"):
            yield from (each for each in _read_log_lines(file_path) if each.get("batchId", number) == number)


def _read_log_lines(file_path: Path) -> list[dict[str, Any]]:
    """Return the entries of a log file; an empty list if it is missing or damaged, which other checks report."""
    try:
        entries = [json.loads(line) for line in file_path.read_text(encoding="utf-8").splitlines()[1:]]
    except (OSError, ValueError):
        return []
    return [each for each in entries if isinstance(each, dict) and isinstance(each.get("path"), str)]


def _check_input_file(entry: dict[str, Any]) -> tuple[Path, str] | None:
    address = urlparse(entry["path"])
    if address.scheme not in ("", "file"):
        return None
    file_path = Path(unquote(address.path))
    try:
        modified_ms = file_path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return file_path, "is missing"
    except OSError as error:
        return file_path, f"cannot be read: {error.strerror or error}"
    recorded_ms = entry.get("timestamp")
    return (
        None
        if recorded_ms is None or recorded_ms == modified_ms
        else (file_path, "has changed since: its modification time differs")
    )

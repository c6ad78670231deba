"""Input files of a batch of a Spark checkpoint, as the logs of its file sources have them.

`offsets/7` has one line per source; a file source's is `{"logOffset": 4}`. The batch reads what the source's log lists
after the offset of batch 6, up to entry 4. An entry has one line per file: its path, its time of change and the number
of the entry. Compacted entries list the files of all entries before them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


def spark_input_problems(path: Path, batch: int) -> Iterator[tuple[Path, str]]:
    """Yield the input files of a batch that are missing or have changed. Sources that are no local files are not
    checked.
    """
    now, before = _offsets(path, batch), _offsets(path, batch - 1)
    for source, last in enumerate(now):
        if last is None:
            continue
        first = before[source] if source < len(before) else None
        for entry in _entries(path / "sources" / str(source), -1 if first is None else first, last):
            problem = _problem(entry)
            if problem is not None:
                yield problem


def _offsets(path: Path, batch: int) -> list[int | None]:
    """Return the last log entry that each file source has read up to a batch; None for sources of other kinds."""
    try:
        lines = (path / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2:]
    except (OSError, ValueError):
        return []
    return [_log_offset(line) for line in lines]


def _log_offset(line: str) -> int | None:
    try:
        found = json.loads(line)["logOffset"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _entries(log: Path, after: int, last: int) -> Iterator[dict[str, Any]]:
    """Yield the files that a source's log lists between two offsets."""
    for number in range(after + 1, last + 1):
        for place in (log / str(number), log / f"{number}.compact"):
            yield from (each for each in _lines(place) if each.get("batchId", number) == number)


def _lines(place: Path) -> list[dict[str, Any]]:
    """Return the entries of a log file; nothing where it is missing or damaged, which other checks report."""
    try:
        found = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()[1:]]
    except (OSError, ValueError):
        return []
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("path"), str)]


def _problem(entry: dict[str, Any]) -> tuple[Path, str] | None:
    address = urlparse(entry["path"])
    if address.scheme not in ("", "file"):
        return None
    place = Path(unquote(address.path))
    try:
        modified_ms = place.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return place, "is missing"
    except OSError as error:
        return place, f"cannot be read: {error.strerror or error}"
    recorded_ms = entry.get("timestamp")
    return (
        None
        if recorded_ms is None or recorded_ms == modified_ms
        else (place, "has changed since: its time of change differs")
    )

"""Going back to the last committed batch of a Spark checkpoint, so that it runs again.

Spark runs the last decided batch again if it is not committed, and only that one. So a batch that was decided after it
has to be forgotten, which loses nothing as long as nothing of it can have been put out: rows are put out when every
partition has written its state.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlparse

from watersmeet.checkpoint.repair.checksums import with_checksum

VERSIONED = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(changelog|zip)")


def numbers(directory: Path) -> list[int]:
    """The batches a log has entries of, in order."""
    return sorted(int(file.name) for file in directory.iterdir() if file.name.isdecimal()) if directory.is_dir() else []


def committed(path: Path) -> int:
    return max(numbers(path / "commits"), default=-1)


def may_be_out(path: Path, batch: int) -> bool:
    """Whether a batch can have put out rows, as far as its files tell: every partition has the state after it, version
    `batch` + 1.
    """
    partitions = [folder for folder in (path / "state").glob("[0-9]*/[0-9]*") if folder.is_dir()]
    return bool(partitions) and all(_newest_version(folder) > batch for folder in partitions)


def _newest_version(folder: Path) -> int:
    named = (VERSIONED.fullmatch(file.name) for file in folder.iterdir())
    return max((int(found[1]) for found in named if found is not None), default=0)


def rewound(path: Path, batch: int) -> tuple[Path, ...]:
    """What to move aside for the last committed batch to run again; nothing where a later one may have put out rows."""
    later = [number for number in numbers(path / "offsets") if number > batch]
    if any(may_be_out(path, number) for number in later):
        return ()
    logged = [path / "commits" / str(batch), *(path / "offsets" / str(number) for number in later)]
    return tuple(file for place in logged for file in with_checksum(place))


def taken_back(out: Path, batch: int) -> tuple[Path, ...] | None:
    """What a batch wrote to a directory of files, with the entry of the sink's own log that keeps it from being written
    again.

    Nothing, where the batch wrote nothing; None where it cannot be told apart from batches before it.
    """
    log = out / "_spark_metadata"
    if (log / f"{batch}.compact").exists():
        return None
    entry = log / str(batch)
    if not entry.exists():
        return ()
    try:
        written = [
            Path(unquote(urlparse(json.loads(line)["path"]).path))
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    files = [out / each.name for each in written]  # the directory may have been moved since
    return tuple(file for place in (entry, *files) if place.exists() for file in with_checksum(place))

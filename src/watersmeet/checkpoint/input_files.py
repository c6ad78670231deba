"""Input files of a batch: what they were when it was chosen, and whether they still are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from watersmeet.checkpoint.contents import BatchRecord
from watersmeet.sources.directories import InputFile, input_path


@dataclass(frozen=True, slots=True)
class InputProblem:
    """An input file that a batch cannot read again as it did before."""

    batch: int
    place: Path
    wrong: str
    is_missing: bool


def input_problems(
    streams: Mapping[str, Path], records: Mapping[int, BatchRecord], after: int
) -> Iterator[InputProblem]:
    """Yield the inputs of batches after this one that are missing or have changed."""
    for batch in sorted(number for number in records if number > after):
        for stream, files in records[batch].files.items():
            for file in files:
                place = input_path(streams[stream], file.name)
                wrong = _problem(place, file)
                if wrong is not None:
                    yield InputProblem(batch, place, wrong, is_missing=not place.exists())


def _problem(place: Path, file: InputFile) -> str | None:
    try:
        found = place.stat()
    except OSError as error:
        return "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror or error}"
    same = (found.st_size, found.st_mtime_ns) == (file.size_bytes, file.modified_ns)
    return None if same else "has changed since: its size or its time of change differs"

"""Names of the input files that committed batches have read, as parts of the state.

A run never reads a file twice, so it remembers the name of every file. The names are kept in chunks: a batch adds one
chunk, and chunks of similar size are merged up to a limit. So a commit writes few names, however many were read before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from watersmeet.operators.protocol import SavedPart

FILES_PART = "files"
#: A merged chunk has at most this many names.
MERGE_NAMES = 4096


@dataclass(frozen=True, eq=False, slots=True)
class FileNames:
    """Some names of files of one stream, saved as one part of the state."""

    input_number: int
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        return FILES_PART

    @property
    def value(self) -> FileNames:
        return self

    @property
    def rows(self) -> int:
        return 0  # they are not rows of the query

    def to_bytes(self) -> bytes:
        return json.dumps(self.names).encode()


@dataclass(frozen=True, slots=True)
class FileLog:
    """Names of all files that were read from each stream, by the stream's number."""

    chunks: tuple[tuple[FileNames, ...], ...]

    @classmethod
    def start(cls, streams: int) -> Self:
        return cls(((),) * streams)

    def add(self, stream: int, names: Iterable[str]) -> FileLog:
        """Return the log with the names that a batch has read from a stream.

        >>> log = FileLog.start(1).add(0, ["a", "b", "c", "d"]).add(0, ["e"]).add(0, ["f"])
        >>> [chunk.names for chunk in log.chunks[0]]
        [('a', 'b', 'c', 'd', 'e', 'f')]
        """
        chunks = [*self.chunks[stream], FileNames(stream, tuple(names))]
        while len(chunks) > 1 and _should_merge(chunks[-2], chunks[-1]):
            chunks[-2:] = [FileNames(stream, chunks[-2].names + chunks[-1].names)]
        return FileLog((*self.chunks[:stream], tuple(chunks), *self.chunks[stream + 1 :]))

    def parts(self) -> list[FileNames]:
        return [chunk for chunks in self.chunks for chunk in chunks]

    def names(self, stream: int) -> Iterable[str]:
        return (name for chunk in self.chunks[stream] for name in chunk.names)

    @classmethod
    def restore(cls, streams: int, saved: Sequence[SavedPart]) -> Self:
        """Invert `parts`. Parts of other kinds are skipped."""
        chunks = [
            FileNames(part.input_number, tuple(json.loads(bytes(part.blob))))
            for part in saved
            if part.kind == FILES_PART
        ]
        return cls(tuple(tuple(each for each in chunks if each.input_number == i) for i in range(streams)))


def _should_merge(older: FileNames, newer: FileNames) -> bool:
    return len(older.names) <= 2 * len(newer.names) and len(older.names) + len(newer.names) <= MERGE_NAMES

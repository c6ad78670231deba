"""Faults of a simulated run: the process stops before or after one of its writes, or loses writes that are not flushed.

Every durable write of a host goes through `Faults.write`: files of a checkpoint, offsets, state, emitted rows, commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.runtime.damage import SimulatedCrash

Action = Callable[[], Any]


class Moment(StrEnum):
    """Moment of a crash, relative to a write."""

    BEFORE = "before"
    AFTER = "after"
    LOST = "after, and the write is lost"


@dataclass(frozen=True, slots=True)
class Crash:
    """A crash at the n-th write of a process."""

    write: int
    moment: Moment


@dataclass
class Faults:
    """Counts the writes of a process and stops it at one of them.

    `unflushed` has the directory of each file that was written and not flushed, and the action that undoes the write.
    """

    crash: Crash | None
    rng: Random
    writes: int = 0
    unflushed: list[tuple[int, Action]] = field(default_factory=list)

    def write(self, do: Action, undo: Action) -> None:
        """Write something that is durable once the next write begins."""
        self._write(do, undo)
        self.unflushed.pop()

    def write_file(self, directory: Path, do: Action, undo: Action) -> None:
        """Write a file that is durable once its directory is flushed."""
        self._write(do, undo, directory.stat().st_ino)

    def flush(self, inode: int) -> None:
        self.unflushed = [each for each in self.unflushed if each[0] != inode]

    def _write(self, do: Action, undo: Action, inode: int = 0) -> None:
        self.writes += 1
        is_last = self.crash is not None and self.crash.write == self.writes
        if is_last and self.crash is not None and self.crash.moment is Moment.BEFORE:
            raise SimulatedCrash
        do()
        self.unflushed.append((inode, undo))
        if is_last:
            self._lose_writes()
            raise SimulatedCrash

    def _lose_writes(self) -> None:
        """Undo one or more of the writes that are not flushed, if the crash loses writes."""
        if self.crash is not None and self.crash.moment is Moment.LOST:
            kept = self.rng.sample(range(len(self.unflushed)), self.rng.randrange(len(self.unflushed)))
            for number, (_, undo) in reversed([*enumerate(self.unflushed)]):
                if number not in kept:
                    undo()


@dataclass
class SimulatedDisk:
    """Disk of a simulated process: it passes every file that gets its name to the faults of the current process."""

    faults: Faults

    def mount(self, patched: pytest.MonkeyPatch) -> None:
        replace, link = Path.replace, os.link

        def name_file(source: Path, target: Path) -> Path:
            before = target.read_bytes() if target.exists() else None
            undo = target.unlink if before is None else lambda: target.write_bytes(before)
            self.faults.write_file(target.parent, lambda: replace(source, target), undo)
            return target

        def link_file(source: Path, target: Path) -> None:
            if target.exists():
                raise FileExistsError
            self.faults.write_file(target.parent, lambda: link(source, target), target.unlink)

        patched.setattr(Path, "replace", name_file)
        patched.setattr(os, "link", link_file)
        patched.setattr(os, "fsync", lambda number: self.faults.flush(os.fstat(number).st_ino))

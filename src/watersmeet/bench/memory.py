"""The most memory that the processes a system runs in held at a time: the descendants of this one, looked at every second.

Each process's share of what it maps together with others counts (Linux's PSS), so that forked workers are not counted twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_EVERY_S = 1.0


@dataclass(slots=True)
class Peak:
    """`peak_bytes` is None where the system does not tell."""

    peak_bytes: int | None = None

    def look(self) -> None:
        held = sum(_held_bytes(process) for process in descendants(os.getpid()))
        self.peak_bytes = max(held, self.peak_bytes or 0) or None


@contextmanager
def watched() -> Iterator[Peak]:
    """The peak over the time inside."""
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(_EVERY_S):
            peak.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
        peak.look()


def descendants(process: int) -> list[int]:
    """Children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for status in _PROC.glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended while we looked
            continue
        children.setdefault(parent, []).append(int(status.parent.name))
    found = list(children.get(process, []))
    for each in found:  # grows while it is walked
        found += children.get(each, [])
    return found


def _held_bytes(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))

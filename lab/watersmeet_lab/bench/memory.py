"""The most memory that the processes a system runs in held at a time: those that this one began, looked at every
second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from watersmeet.runtime.background import BackgroundThread
from watersmeet.runtime.processes import held_bytes

_SAMPLE_INTERVAL_S = 1.0


@dataclass(slots=True)
class PeakMemory:
    """`peak_bytes` is None where the system does not tell."""

    peak_bytes: int | None = None

    def look(self) -> None:
        self.peak_bytes = max(held_bytes(), self.peak_bytes or 0) or None


@contextmanager
def watch_peak_memory() -> Iterator[PeakMemory]:
    """The peak over the time inside."""
    peak, done = PeakMemory(), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_INTERVAL_S):
            peak.look()

    watcher = BackgroundThread("the memory watch", watch).start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
    watcher.raise_failure()
    peak.look()

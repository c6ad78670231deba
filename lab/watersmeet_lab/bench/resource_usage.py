"""Time and memory of one call, and peak memory of all processes that a system runs in.

The processes are this one's children; they are sampled every second.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from watersmeet.runtime.background import BackgroundThread
from watersmeet.runtime.processes import measure_child_memory_bytes

T = TypeVar("T")

_STATUS_FILE = Path("/proc/self/status")
_CLEAR_REFS_FILE = Path("/proc/self/clear_refs")
_SAMPLE_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class CallMeasurement(Generic[T]):
    """Result of a call, its seconds, and how far the resident memory of the process grew at its peak.

    `peak_bytes` is 0 if the operating system does not report it.
    """

    result: T
    seconds: float
    peak_bytes: int


def measure_call(call: Callable[[], T]) -> CallMeasurement[T]:
    """Run the call, and measure its time and peak memory."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    before = _memory_bytes("VmRSS")
    _reset_peak_memory()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    return CallMeasurement(result, seconds, max(0, _memory_bytes("VmHWM") - before))


def _memory_bytes(field: str) -> int:
    if not _STATUS_FILE.exists():
        return 0
    line = next(line for line in _STATUS_FILE.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _reset_peak_memory() -> None:
    if _CLEAR_REFS_FILE.exists():
        _CLEAR_REFS_FILE.write_text("5")


@dataclass(slots=True)
class PeakMemory:
    """Peak memory of the child processes; None if the operating system does not report it."""

    peak_bytes: int | None = None

    def sample(self) -> None:
        """Read the memory in use now."""
        self.peak_bytes = max(measure_child_memory_bytes(), self.peak_bytes or 0) or None


@contextmanager
def watch_peak_memory() -> Iterator[PeakMemory]:
    """Measure peak memory while the context is open."""
    peak, done = PeakMemory(), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLE_INTERVAL_S):
            peak.sample()

    watcher = BackgroundThread("the memory watch", watch).start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
    watcher.raise_failure()
    peak.sample()

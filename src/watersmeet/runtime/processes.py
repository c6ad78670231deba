"""What a run's processes have used: this one, and those it began, such as Spark's JVM and its Python workers."""

from __future__ import annotations

from collections.abc import Iterator

import psutil


def measure_child_memory_bytes() -> int:
    """Memory that the processes this one began hold now; what they share counts once (Linux's PSS), or as resident
    where it is not told.
    """
    return sum(_memory_bytes(each) for each in _list_children())


def measure_cpu_s() -> float:
    """Seconds of CPU that this process and those it began have used, those that have ended included."""
    used = psutil.Process().cpu_times()
    return used.user + used.system + sum(_cpu_s(each) for each in _list_children())


def _list_children() -> Iterator[psutil.Process]:
    yield from psutil.Process().children(recursive=True)


def _memory_bytes(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.Error:  # it has ended since it was listed
        return 0
    return int(getattr(memory, "pss", memory.rss))


def _cpu_s(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system + used.children_user + used.children_system)

"""CPU time and memory of this process and its children, such as Spark's JVM and its Python workers."""

from __future__ import annotations

from collections.abc import Iterator

import psutil


def measure_child_memory_bytes() -> int:
    """Return the memory that the child processes hold now.

    Shared memory counts once (Linux's PSS). Where the system does not report PSS, resident memory counts.
    """
    return sum(_memory_bytes(each) for each in _list_children())


def measure_cpu_s() -> float:
    """Return the CPU seconds that this process and its children have used, including children that have ended."""
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

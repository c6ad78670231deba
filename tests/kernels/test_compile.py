"""Kernels are compiled once per machine: a process that finds a warm cache compiles nothing."""

from __future__ import annotations

import subprocess
import sys

COUNT_MISSES = """
import watersmeet
from watersmeet.kernels.compile import KERNELS, warm_up
warm_up()
print(len(KERNELS), sum(sum(kernel.stats.cache_misses.values()) for kernel, _ in KERNELS.values()))
"""


def test_nothing_compiles_when_the_cache_is_warm() -> None:
    kernels, _ = _misses()
    assert kernels >= 10
    assert _misses() == (kernels, 0)


def _misses() -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", COUNT_MISSES], capture_output=True, text=True, check=True)
    kernels, misses = done.stdout.split()
    return int(kernels), int(misses)

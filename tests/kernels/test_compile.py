"""Kernels are compiled once per machine: a process that finds a warm cache compiles nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
from numpy.typing import NDArray

from watersmeet.kernels.compile import IN_INT64, KERNELS, kernel, subroutine

COUNT_MISSES = """
import watersmeet.api
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


def test_threads_that_call_a_new_kernel_at_once_build_it_once() -> None:
    @kernel(IN_INT64)
    def total(values: NDArray[np.int64]) -> int:
        return int(values.sum())

    together = threading.Barrier(4)

    def call(_: int) -> int:
        together.wait()
        return total(np.arange(5))

    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(call, range(4))) == [10] * 4
    finally:
        del KERNELS[f"{total.__module__}.total"]


def test_the_cache_of_other_sources_is_not_unpickled(tmp_path: Path) -> None:
    cache_file = subroutine(_add_one)._cache._cache_file
    cache_file._index_path = str(tmp_path / "index.nbi")
    names_a_missing_class = b"cwatersmeet.kernels.compile\nRenamedSince\n."
    Path(cache_file._index_path).write_bytes(pickle.dumps(numba.__version__) + names_a_missing_class)
    assert cache_file._load_index() == {}


def _add_one(value: int) -> int:
    return value + 1

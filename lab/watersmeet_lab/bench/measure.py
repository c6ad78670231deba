"""Time and memory of one call, and a checksum of its rows that does not depend on their order."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.kernels.hashing import combine_codes
from watersmeet.operators.keys import encode_keys

T = TypeVar("T")

_STATUS_FILE = Path("/proc/self/status")
_CLEAR_REFS_FILE = Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class CallMeasurement(Generic[T]):
    """A call's result, its seconds, and the bytes by which the process grew at its peak (0 where the system does not
    tell).
    """

    result: T
    seconds: float
    peak_bytes: int


def measure_call(call: Callable[[], T]) -> CallMeasurement[T]:
    gc.collect()
    pa.default_memory_pool().release_unused()
    before = _memory_bytes("VmRSS")
    _reset_peak_memory()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    return CallMeasurement(result, seconds, max(0, _memory_bytes("VmHWM") - before))


def have_same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables of fixed-width columns hold the same bag of rows, by count and by the sum of a hash per row."""
    return (
        left.num_rows == right.num_rows
        and left.column_names == right.column_names
        and _key_checksum(left) == _key_checksum(right)
    )


def _key_checksum(table: pa.Table) -> int:
    total = 0
    for batch in table.to_batches(max_chunksize=1 << 20):
        codes = np.zeros(batch.num_rows, np.int64)
        for column in batch.columns:
            codes = combine_codes(codes, encode_keys(column))
        total += int(codes.view(np.uint64).sum(dtype=np.uint64))
    return total % 2**64


def _memory_bytes(field: str) -> int:
    if not _STATUS_FILE.exists():
        return 0
    line = next(line for line in _STATUS_FILE.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _reset_peak_memory() -> None:
    if _CLEAR_REFS_FILE.exists():
        _CLEAR_REFS_FILE.write_text("5")

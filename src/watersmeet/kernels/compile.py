"""Compilation of kernels: once, for the declared argument types, without the GIL, cached on disk.

Arrow's arrays are read-only, NumPy's are not. Without declared types, a process would compile a kernel once for each. A
kernel declares the arrays it only reads as read-only, which accepts both.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba import types

Function = TypeVar("Function", bound=Callable[..., Any])

INT = types.int64
FLOAT = types.float64
BOOL = types.boolean
IN_INT64 = types.Array(types.int64, 1, "C", readonly=True)
IN_INT32 = types.Array(types.int32, 1, "C", readonly=True)
IN_UINT8 = types.Array(types.uint8, 1, "C", readonly=True)
IN_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
OUT_INT64 = types.Array(types.int64, 1, "C")
OUT_INT32 = types.Array(types.int32, 1, "C")
OUT_BOOL = types.Array(types.boolean, 1, "C")
IN_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
IN_FLOAT64_2D = types.Array(types.float64, 2, "C", readonly=True)
OUT_INT64_2D = types.Array(types.int64, 2, "C")
OUT_INT64_3D = types.Array(types.int64, 3, "C")
OUT_FLOAT64_2D = types.Array(types.float64, 2, "C")

#: Every kernel by module and name, for warming up and for the test that nothing compiles twice.
KERNELS: dict[str, Any] = {}


def kernel(*argument_types: Any, allocates: bool = True) -> Callable[[Function], Function]:
    """Declare a kernel that Python calls.

    It is compiled, or loaded from the cache on disk, at its first call and never again.

    A kernel with `allocates=False` is compiled without reference counting. In the innermost loops, reference counting
    can cost more than the work.
    """

    def decorate(function: Function) -> Function:
        dispatcher = subroutine(function) if allocates else subroutine(function, _nrt=False)
        KERNELS[f"{function.__module__}.{function.__name__}"] = (dispatcher, argument_types)

        @wraps(function)
        def call(*args: Any) -> Any:
            if not dispatcher.overloads:
                _compile(dispatcher, argument_types)
            return (
                _active_timers[-1].call_timed(function.__name__, dispatcher, args)
                if _active_timers
                else dispatcher(*args)
            )

        return cast(Function, call)

    return decorate


@dataclass
class KernelTimes:
    """Calls and wall-clock seconds by kernel."""

    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def call_timed(self, name: str, dispatcher: Any, args: tuple[Any, ...]) -> Any:
        start = time.perf_counter()
        try:
            return dispatcher(*args)
        finally:
            self.calls[name] = self.calls.get(name, 0) + 1
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


_build_lock = threading.Lock()

#: Timers of the running `time_kernels` blocks; the innermost one is used.
_active_timers: list[KernelTimes] = []


@contextmanager
def time_kernels() -> Iterator[KernelTimes]:
    """Measure the time that Python's calls of kernels take inside the block, in this process."""
    _active_timers.append(KernelTimes())
    try:
        yield _active_timers[-1]
    finally:
        _active_timers.pop()


def subroutine(function: Function, **options: Any) -> Any:
    """Compile a function that kernels call."""
    dispatcher: Any = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    cache_file = dispatcher._cache._cache_file
    # Numba reuses a cached build while the kernel's own file is unchanged, even if a subroutine of another file
    # changed. So the stamp covers all files.
    cache_file._source_stamp = _digest_sources()
    # Numba unpickles the index of a cache only if its version fits. The index of other sources may name classes that no
    # longer exist, so the version covers all files, too.
    cache_file._version = f"{cache_file._version} {_digest_sources()}"
    return dispatcher


def inlined_subroutine(function: Function) -> Any:
    """Compile a part of a kernel's innermost loop into its caller.

    Passing groups of arrays to a call would cost more than the part's work.
    """
    return numba.njit(inline="always")(function)


def warm_up() -> None:
    """Compile or load every kernel imported so far, so that no query pays for it."""
    for dispatcher, argument_types in KERNELS.values():
        if not dispatcher.overloads:
            _compile(dispatcher, argument_types)


@cache
def _digest_sources() -> str:
    """Return a digest of all kernel sources: a cached build is valid only while none of them changes."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _compile(dispatcher: Any, argument_types: tuple[Any, ...]) -> None:
    with _build_lock:
        if not dispatcher.overloads:  # another thread may have been first
            dispatcher.compile(argument_types)
            dispatcher.disable_compile()

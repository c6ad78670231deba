"""How every kernel is compiled: once, for the argument types it declares, without the interpreter lock, cached on disk.

Declared types keep a process from compiling a second version because an array happens to be read-only, as Arrow's are:
what a kernel only reads is declared read-only, which takes both.
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
    """A kernel that Python calls. It is compiled, or loaded from the cache on disk, at its first call and never again.

    One that says it allocates nothing is compiled without the counting of references, which in the innermost loops can
    cost more than their work.
    """

    def decorate(function: Function) -> Function:
        dispatcher = subroutine(function) if allocates else subroutine(function, _nrt=False)
        KERNELS[f"{function.__module__}.{function.__name__}"] = (dispatcher, argument_types)

        @wraps(function)
        def call(*args: Any) -> Any:
            if not dispatcher.overloads:
                _build(dispatcher, argument_types)
            return _watchers[-1].watched(function.__name__, dispatcher, args) if _watchers else dispatcher(*args)

        return cast(Function, call)

    return decorate


@dataclass
class KernelTimes:
    """Calls and wall-clock seconds by kernel."""

    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def watched(self, name: str, dispatcher: Any, args: tuple[Any, ...]) -> Any:
        start = time.perf_counter()
        try:
            return dispatcher(*args)
        finally:
            self.calls[name] = self.calls.get(name, 0) + 1
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


_building = threading.Lock()

#: Who watches now; the last one does.
_watchers: list[KernelTimes] = []


@contextmanager
def time_kernels() -> Iterator[KernelTimes]:
    """What Python's calls of kernels take meanwhile, in this process."""
    _watchers.append(KernelTimes())
    try:
        yield _watchers[-1]
    finally:
        _watchers.pop()


def subroutine(function: Function, **options: Any) -> Any:
    """A piece of a kernel, for kernels to call."""
    dispatcher: Any = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    # Numba takes a cached build as long as the kernel's own file is unchanged, even if a piece it is made of changed in
    # another.
    dispatcher._cache._cache_file._source_stamp = _sources_digest()
    return dispatcher


def inlined_subroutine(function: Function) -> Any:
    """A piece of a kernel's innermost loop, written into its caller: passing groups of arrays costs more than the
    piece's work.
    """
    return numba.njit(inline="always")(function)


def warm_up() -> None:
    """Compiles or loads every kernel imported so far, so that no query pays for it."""
    for dispatcher, argument_types in KERNELS.values():
        if not dispatcher.overloads:
            _build(dispatcher, argument_types)


@cache
def _sources_digest() -> str:
    """Of all the sources kernels are made of: a build is used only as long as none of them changes."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _build(dispatcher: Any, argument_types: tuple[Any, ...]) -> None:
    with _building:
        if not dispatcher.overloads:  # another thread may have been first
            dispatcher.compile(argument_types)
            dispatcher.disable_compile()

"""How every kernel is compiled: once, for the argument types it declares, without the interpreter lock, cached on disk.

Declared types keep a process from compiling a second version because an array happens to be read-only, as Arrow's are: what a kernel only
reads is declared read-only, which takes both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
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

#: Every kernel by module and name, for warming up and for the test that nothing compiles twice.
KERNELS: dict[str, Any] = {}


def kernel(*argument_types: Any) -> Callable[[Function], Function]:
    """A kernel that Python calls. It is compiled, or loaded from the cache on disk, at its first call and never again."""

    def decorate(function: Function) -> Function:
        dispatcher = piece(function)
        KERNELS[f"{function.__module__}.{function.__name__}"] = (dispatcher, argument_types)

        @wraps(function)
        def call(*args: Any) -> Any:
            if not dispatcher.overloads:
                _build(dispatcher, argument_types)
            return dispatcher(*args)

        return cast(Function, call)

    return decorate


def piece(function: Function) -> Any:
    """A piece of a kernel, for kernels to call."""
    return numba.njit(cache=True, nogil=True, error_model="numpy")(function)


def warm_up() -> None:
    """Compiles or loads every kernel imported so far, so that no query pays for it."""
    for dispatcher, argument_types in KERNELS.values():
        if not dispatcher.overloads:
            _build(dispatcher, argument_types)


def _build(dispatcher: Any, argument_types: tuple[Any, ...]) -> None:
    dispatcher.compile(argument_types)
    dispatcher.disable_compile()

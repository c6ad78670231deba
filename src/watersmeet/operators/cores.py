"""Work on several cores. Kernels and Arrow work without the interpreter's lock, so threads are enough.

A host that has the machine to itself says so (`on_cores`). On Spark every core has a task of its own, so no operator is spread there; only
packing, whose tasks wait for Spark in between, has its next items made ahead. What is computed does not depend on it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Fewer rows than this are not worth a second thread.
FEWEST_ROWS = 1 << 15
#: So many items are made before they are asked for.
MADE_AHEAD = 4

_cores: ContextVar[int] = ContextVar("cores", default=1)
_own = threading.local()


@contextmanager
def on_cores(cores: int) -> Iterator[None]:
    """Inside, work may be spread over so many cores."""
    token = _cores.set(cores)
    try:
        yield
    finally:
        _cores.reset(token)


def each(work: Callable[[Item], Result], items: Sequence[Item], rows: int) -> list[Result]:
    """`[work(item) for item in items]`, in parts side by side where there are cores and enough rows.

    >>> with on_cores(2):
    ...     each(lambda number: number * number, range(5), FEWEST_ROWS)
    [0, 1, 4, 9, 16]
    """
    cores = min(_cores.get(), len(items))
    if cores < 2 or rows < FEWEST_ROWS:
        return [work(item) for item in items]
    helping = [_helpers(cores - 1).submit(_timed, work, items[part::cores]) for part in range(1, cores)]
    parts = [[work(item) for item in items[::cores]]]
    for help_given in helping:
        results, seconds = help_given.result()
        parts.append(results)
        _own.helped_s = _helped_s() + seconds
    return [parts[at % cores][at // cores] for at in range(len(items))]


def ahead(work: Callable[[Item], Result], items: Iterable[Item], rows: Callable[[Item], int]) -> Iterator[Result]:
    """`map(work, items)`, in order; where there are cores, some items are worked on while the next one is made.

    Items of few rows are worked on at once. Only a few wait at a time, so that memory stays bounded however many items there are.

    >>> with on_cores(2):
    ...     list(ahead(lambda number: number * number, range(5), lambda number: FEWEST_ROWS))
    [0, 1, 4, 9, 16]
    """
    cores = _cores.get()
    waiting: deque[Future[Result]] = deque()
    for item in items:
        if cores < 2 or (not waiting and rows(item) < FEWEST_ROWS):
            yield work(item)
            continue
        waiting.append(_followers(cores - 1).submit(work, item))
        if len(waiting) > cores:
            yield waiting.popleft().result()
    for last in waiting:
        yield last.result()


def made_ahead(items: Iterator[Item], count: int = MADE_AHEAD) -> Iterator[Item]:
    """The items; the next `count` are made while one is in use, by another thread.

    >>> list(made_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    over = object()
    with ThreadPoolExecutor(1, thread_name_prefix="watersmeet-ahead") as maker:
        coming = deque(maker.submit(next, items, over) for _ in range(count))
        while (item := coming.popleft().result()) is not over:
            coming.append(maker.submit(next, items, over))
            yield item  # type: ignore[misc] # it is not `over`


def next_made_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items, each made while the one before is in use, where there are cores for it."""
    return made_ahead(items, 1) if _cores.get() > 1 else items


def stretches(rows: int) -> list[slice]:
    """The rows in as many stretches as there are cores for them."""
    count = _cores.get() if rows >= FEWEST_ROWS else 1
    return [slice(rows * part // count, rows * (part + 1) // count) for part in range(count)]


def worked_s() -> float:
    """A clock of the CPU seconds this thread has worked, and others for it."""
    return time.thread_time() + _helped_s()


def _helped_s() -> float:
    seconds: float = getattr(_own, "helped_s", 0.0)
    return seconds


@cache
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="watersmeet")


@cache
def _followers(count: int) -> ThreadPoolExecutor:
    """Not the helpers: what waits for help must not wait for those who follow."""
    return ThreadPoolExecutor(count, thread_name_prefix="watersmeet-follows")


def _timed(work: Callable[[Item], Result], items: Sequence[Item]) -> tuple[list[Result], float]:
    started = time.thread_time()
    return [work(item) for item in items], time.thread_time() - started

"""Work on several cores. Kernels and Arrow work without the interpreter's lock, so threads are enough.

A host that has the machine to itself says so (`on_cores`). On Spark every core has a task of its own, so no operator is
spread there; only packing, whose tasks wait for Spark in between, has its next items made ahead. What is computed does
not depend on it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Fewer rows than this are not worth a second thread.
MIN_PARALLEL_ROWS = 1 << 15
#: So many items are made before they are asked for.
PREFETCHED_ITEMS = 4

_cores: ContextVar[int] = ContextVar("cores", default=1)
_thread_local = threading.local()


@contextmanager
def on_cores(cores: int) -> Iterator[None]:
    """Inside, work may be spread over so many cores."""
    token = _cores.set(cores)
    try:
        yield
    finally:
        _cores.reset(token)


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], rows: int) -> list[Result]:
    """`[work(item) for item in items]`, in parts side by side where there are cores and enough rows.

    >>> with on_cores(2):
    ...     parallel_map(lambda number: number * number, range(5), MIN_PARALLEL_ROWS)
    [0, 1, 4, 9, 16]
    """
    cores = min(_cores.get(), len(items))
    if cores < 2 or rows < MIN_PARALLEL_ROWS:
        return [work(item) for item in items]
    helping = [_submit(_map_pool(cores - 1), _map_items, work, items[part::cores]) for part in range(1, cores)]
    parts = [_map_items(work, items[::cores]), *(help_given() for help_given in helping)]
    return [parts[at % cores][at // cores] for at in range(len(items))]


def pipelined_map(
    work: Callable[[Item], Result], items: Iterable[Item], rows: Callable[[Item], int]
) -> Iterator[Result]:
    """`map(work, items)`, in order; where there are cores, some items are worked on while the next one is made.

    Items of few rows are worked on at once. Only a few wait at a time, so that memory stays bounded however many items
    there are.

    >>> with on_cores(2):
    ...     list(pipelined_map(lambda number: number * number, range(5), lambda number: MIN_PARALLEL_ROWS))
    [0, 1, 4, 9, 16]
    """
    cores = _cores.get()
    waiting: deque[Callable[[], Result]] = deque()
    for item in items:
        if cores < 2 or (not waiting and rows(item) < MIN_PARALLEL_ROWS):
            yield work(item)
            continue
        waiting.append(_submit(_pipeline_pool(cores), work, item))
        if len(waiting) > 2 * cores:
            yield waiting.popleft()()
    for last in waiting:
        yield last()


def parallel_flat_map(work: Callable[[Item], Iterator[Result]], items: Iterable[Item], rows: int) -> Iterator[Result]:
    """What `work` makes of every item, in order; where there are cores and enough rows, of several items at the same
    time.

    Each item is worked on a few results at a time, and the next few only once those were taken, so that memory stays
    bounded however many results an item has.

    >>> with on_cores(2):
    ...     list(parallel_flat_map(lambda count: iter("abc"[:count]), [1, 3, 2], MIN_PARALLEL_ROWS))
    ['a', 'a', 'b', 'c', 'a', 'b']
    """
    cores = _cores.get()
    if cores < 2 or rows < MIN_PARALLEL_ROWS:
        for item in items:
            yield from work(item)
        return
    coming = iter(items)
    under_way = deque(_start_item(work, item, cores) for item in islice(coming, cores + 1))
    while under_way:
        results, some = under_way.popleft()
        found = some()
        if len(found) == PREFETCHED_ITEMS:
            under_way.appendleft((results, _submit(_flat_map_pool(cores), _take_results, results)))
        else:
            under_way.extend(_start_item(work, item, cores) for item in islice(coming, 1))
        yield from found


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The items; the next few are made while one is in use.

    >>> list(prefetch(iter("abc")))
    ['a', 'b', 'c']
    """
    over = object()
    with ThreadPoolExecutor(1, thread_name_prefix="watersmeet-ahead") as maker:
        coming = deque(maker.submit(next, items, over) for _ in range(PREFETCHED_ITEMS))
        while (item := coming.popleft().result()) is not over:
            coming.append(maker.submit(next, items, over))
            yield item  # type: ignore[misc] # it is not `over`


def prefetch_next(items: Iterator[Item]) -> Iterator[Item]:
    """The items; where there are cores, each is made while the one before is in use. The first one has all cores for
    itself.

    >>> with on_cores(2):
    ...     list(prefetch_next(iter("abc")))
    ['a', 'b', 'c']
    """
    if _cores.get() < 2:
        yield from items
        return
    over = object()
    with ThreadPoolExecutor(1, thread_name_prefix="watersmeet-ahead") as maker:
        item = next(items, over)
        while item is not over:
            following = _submit(maker, next, items, over)
            yield item  # type: ignore[misc] # it is not `over`
            item = following()


def cpu_seconds() -> float:
    """A clock of the CPU seconds this thread has worked, and others for it."""
    return time.thread_time() + _helper_cpu_seconds()


def _helper_cpu_seconds() -> float:
    seconds: float = getattr(_thread_local, "helped_s", 0.0)
    return seconds


@cache
def _map_pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="watersmeet")


@cache
def _pipeline_pool(count: int) -> ThreadPoolExecutor:
    """Not the helpers: what waits for help must not wait for those who follow."""
    return ThreadPoolExecutor(count, thread_name_prefix="watersmeet-follows")


@cache
def _flat_map_pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="watersmeet-spreads")


def _start_item(
    work: Callable[[Item], Iterator[Result]], item: Item, cores: int
) -> tuple[Iterator[Result], Callable[[], list[Result]]]:
    results = work(item)
    return results, _submit(_flat_map_pool(cores), _take_results, results)


def _take_results(results: Iterator[Result]) -> list[Result]:
    return list(islice(results, PREFETCHED_ITEMS))


def _map_items(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    return [work(item) for item in items]


def _submit(helpers: ThreadPoolExecutor, work: Callable[..., Result], *args: Any) -> Callable[[], Result]:
    """Has work begun by others; the call that waits for it also counts its seconds as this thread's."""
    under_way = helpers.submit(_run_timed, work, args)

    def result() -> Result:
        found, seconds = under_way.result()
        _thread_local.helped_s = _helper_cpu_seconds() + seconds
        return found

    return result


def _run_timed(work: Callable[..., Result], args: tuple[Any, ...]) -> tuple[Result, float]:
    started = cpu_seconds()
    return work(*args), cpu_seconds() - started

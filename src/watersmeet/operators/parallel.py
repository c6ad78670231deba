"""Parallel work on several cores. Kernels and Arrow release the interpreter lock, so threads are enough.

A host that owns the machine enables it with `on_cores`. On Spark every core runs its own task, so operators stay on
one thread there. Only packing prefetches its next items, because its tasks wait for Spark in between. Results never
depend on the number of cores.
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
#: Number of items that are produced before the consumer asks for them.
PREFETCHED_ITEMS = 4

_cores: ContextVar[int] = ContextVar("cores", default=1)
_thread_local = threading.local()


@contextmanager
def on_cores(cores: int) -> Iterator[None]:
    """Allow the enclosed work to use this many cores."""
    token = _cores.set(cores)
    try:
        yield
    finally:
        _cores.reset(token)


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], rows: int) -> list[Result]:
    """Return `[work(item) for item in items]`, computed in parallel if there are several cores and enough rows.

    >>> with on_cores(2):
    ...     parallel_map(lambda number: number * number, range(5), MIN_PARALLEL_ROWS)
    [0, 1, 4, 9, 16]
    """
    cores = min(_cores.get(), len(items))
    if cores < 2 or rows < MIN_PARALLEL_ROWS:
        return [work(item) for item in items]
    pending = [_submit(_map_pool(cores - 1), _map_items, work, items[part::cores]) for part in range(1, cores)]
    parts = [_map_items(work, items[::cores]), *(wait() for wait in pending)]
    return [parts[at % cores][at // cores] for at in range(len(items))]


def pipelined_map(
    work: Callable[[Item], Result], items: Iterable[Item], rows: Callable[[Item], int]
) -> Iterator[Result]:
    """Yield `map(work, items)` in order; with several cores, work on some items while the next one is produced.

    Items of few rows are processed at once. The number of waiting items is limited, so memory stays bounded however
    many items there are.

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
    """Yield the results of `work` for every item, in order; with several cores and enough rows, work on several items.

    Each item produces a few results at a time. It continues only after the consumer has taken those. So memory stays
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
    started = deque(_start_item(work, item, cores) for item in islice(coming, cores + 1))
    while started:
        results, wait = started.popleft()
        taken = wait()
        if len(taken) == PREFETCHED_ITEMS:
            started.appendleft((results, _submit(_flat_map_pool(cores), _take_results, results)))
        else:
            started.extend(_start_item(work, item, cores) for item in islice(coming, 1))
        yield from taken


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, and produce the next few while one is in use.

    >>> list(prefetch(iter("abc")))
    ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="watersmeet-ahead") as producer:
        coming = deque(producer.submit(next, items, end) for _ in range(PREFETCHED_ITEMS))
        while (item := coming.popleft().result()) is not end:
            coming.append(producer.submit(next, items, end))
            yield item  # type: ignore[misc] # it is not `end`


def prefetch_next(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; with several cores, produce each one while the previous one is in use.

    The first item has all cores for itself.

    >>> with on_cores(2):
    ...     list(prefetch_next(iter("abc")))
    ['a', 'b', 'c']
    """
    if _cores.get() < 2:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="watersmeet-ahead") as producer:
        item = next(items, end)
        while item is not end:
            following = _submit(producer, next, items, end)
            yield item  # type: ignore[misc] # it is not `end`
            item = following()


def cpu_seconds() -> float:
    """Return the CPU seconds used by this thread, and by helper threads on its behalf."""
    return time.thread_time() + _helper_cpu_seconds()


def _helper_cpu_seconds() -> float:
    seconds: float = getattr(_thread_local, "helped_s", 0.0)
    return seconds


@cache
def _map_pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="watersmeet")


@cache
def _pipeline_pool(count: int) -> ThreadPoolExecutor:
    """Return the threads of `pipelined_map`, separate from `_map_pool`.

    With one shared pool, a pipelined item could wait for helpers that wait for it.
    """
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
    """Start work on a pool; the returned call waits for it and adds its CPU seconds to this thread's."""
    future = helpers.submit(_run_timed, work, args)

    def result() -> Result:
        value, seconds = future.result()
        _thread_local.helped_s = _helper_cpu_seconds() + seconds
        return value

    return result


def _run_timed(work: Callable[..., Result], args: tuple[Any, ...]) -> tuple[Result, float]:
    started = cpu_seconds()
    return work(*args), cpu_seconds() - started

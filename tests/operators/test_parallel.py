"""Parallel work: the same results in the same order, and all CPU time counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from watersmeet.operators import parallel as cores
from watersmeet.operators.parallel import (
    cpu_seconds,
    on_cores,
    parallel_flat_map,
    parallel_map,
    pipelined_map,
    prefetch,
    prefetch_next,
)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("items", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(count: int, items: int) -> None:
    with on_cores(count):
        assert parallel_map(lambda item: item + 1, range(items), cores.MIN_PARALLEL_ROWS) == list(range(1, items + 1))


def test_two_cores_work_in_parallel() -> None:
    meeting = threading.Barrier(2)  # one thread alone cannot pass it
    with on_cores(2):
        parallel_map(lambda _: meeting.wait(), [0, 1], cores.MIN_PARALLEL_ROWS)


def test_few_rows_or_one_core_stay_in_the_calling_thread() -> None:
    here = threading.get_ident()
    assert set(parallel_map(lambda _: threading.get_ident(), range(4), cores.MIN_PARALLEL_ROWS)) == {here}
    with on_cores(2):
        assert set(parallel_map(lambda _: threading.get_ident(), range(4), cores.MIN_PARALLEL_ROWS - 1)) == {here}


def _use_cpu(seconds: float) -> None:
    started = time.thread_time()
    while time.thread_time() < started + seconds:
        pass


def _yield_after_work(number: int) -> Iterator[int]:
    _use_cpu(0.05)
    yield number


PARALLEL_CALLS: dict[str, Callable[[], object]] = {
    "parallel_map": lambda: parallel_map(lambda _: _use_cpu(0.05), [0, 1], cores.MIN_PARALLEL_ROWS),
    "pipelined_map": lambda: list(pipelined_map(lambda _: _use_cpu(0.05), [0, 1], lambda _: cores.MIN_PARALLEL_ROWS)),
    "parallel_flat_map": lambda: list(parallel_flat_map(_yield_after_work, [0, 1], cores.MIN_PARALLEL_ROWS)),
    "prefetch_next": lambda: list(prefetch_next(number for each in (0, 1) for number in _yield_after_work(each))),
}


@pytest.mark.parametrize("way", PARALLEL_CALLS)
def test_cpu_seconds_of_helper_threads_count(way: str) -> None:
    before = cpu_seconds()
    with on_cores(2):
        PARALLEL_CALLS[way]()
    assert cpu_seconds() - before >= 0.09


def test_an_error_in_a_helper_is_raised() -> None:
    def work(item: int) -> None:
        if item:
            raise ValueError(item)

    with on_cores(2), pytest.raises(ValueError, match="1"):
        parallel_map(work, [0, 1], cores.MIN_PARALLEL_ROWS)


def test_pipelined_map_works_while_the_next_item_is_produced() -> None:
    started = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        started.wait()  # the next item is produced only after work on the first started
        yield 2

    def work(item: int) -> int:
        started.set()
        return -item

    with on_cores(2):
        assert list(pipelined_map(work, items(), lambda _: cores.MIN_PARALLEL_ROWS)) == [-1, -2]


@pytest.mark.parametrize("several", [1, 2, 3])
def test_pipelined_results_keep_their_order_whatever_their_size(several: int) -> None:
    with on_cores(several):
        found = list(
            pipelined_map(lambda item: item * item, range(30), lambda item: cores.MIN_PARALLEL_ROWS * (item % 3))
        )
    assert found == [item * item for item in range(30)]


@pytest.mark.parametrize("several", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, cores.MIN_PARALLEL_ROWS])
def test_flat_map_keeps_the_order_however_many_results_an_item_has(several: int, rows: int) -> None:
    sizes = [0, 1, cores.PREFETCHED_ITEMS, cores.PREFETCHED_ITEMS + 1, 0, 30, 2, 2, 0]
    with on_cores(several):
        found = list(parallel_flat_map(lambda item: ((item, at) for at in range(sizes[item])), range(len(sizes)), rows))
    assert found == [(item, at) for item, size in enumerate(sizes) for at in range(size)]


def test_flat_map_works_on_several_items_at_the_same_time() -> None:
    meeting = threading.Barrier(2)

    def work(item: int) -> Iterator[int]:
        meeting.wait()
        yield item

    with on_cores(2):
        assert list(parallel_flat_map(work, range(4), cores.MIN_PARALLEL_ROWS)) == [0, 1, 2, 3]


def test_flat_map_does_not_run_far_ahead_of_its_consumer() -> None:
    made = [0] * 5

    def work(item: int) -> Iterator[int]:
        for number in range(100):
            made[item] += 1
            yield number

    with on_cores(2):
        coming = parallel_flat_map(work, range(5), cores.MIN_PARALLEL_ROWS)
        next(coming)
        assert max(made) <= 2 * cores.PREFETCHED_ITEMS
        assert len(list(coming)) == 499


def test_an_error_in_flat_map_is_raised_in_its_place() -> None:
    def work(item: int) -> Iterator[int]:
        yield item
        if item == 2:
            raise ValueError("torn")

    found: list[int] = []
    with on_cores(2), pytest.raises(ValueError, match="torn"):
        found.extend(parallel_flat_map(work, range(9), cores.MIN_PARALLEL_ROWS))
    assert found == [0, 1]  # results that the failing item produced before are lost with it


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("items", [0, 1, 5])
def test_prefetch_next_keeps_the_order(several: int, items: int) -> None:
    with on_cores(several):
        assert list(prefetch_next(iter(range(items)))) == list(range(items))


def test_the_next_item_is_produced_while_one_is_in_use() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    with on_cores(2):
        coming = prefetch_next(items())
        assert next(coming) == 0
        made[1].wait()
        assert list(coming) == [1, 2]


@pytest.mark.parametrize("items", [0, 1, 3, 50])
def test_prefetch_keeps_the_order(items: int) -> None:
    assert list(prefetch(iter(range(items)))) == list(range(items))


def test_the_next_items_are_produced_while_one_is_in_use() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    coming = prefetch(items())
    assert next(coming) == 0
    made[2].wait()  # the consumer has not requested it
    assert list(coming) == [1, 2]


def test_an_error_of_a_producer_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise ValueError("torn")

    coming = prefetch(items())
    assert next(coming) == 0
    with pytest.raises(ValueError, match="torn"):
        next(coming)


def test_closing_the_iterator_stops_the_producer() -> None:
    made = []
    coming = prefetch(made.append(number) or number for number in range(1000))  # type: ignore[func-returns-value]
    next(coming)
    coming.close()  # type: ignore[attr-defined]
    assert len(made) <= 2 * cores.PREFETCHED_ITEMS

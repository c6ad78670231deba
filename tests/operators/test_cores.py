"""Work on several cores: the same results in the same order, and all of its time counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from watersmeet.operators import cores
from watersmeet.operators.cores import ahead, each, made_ahead, on_cores, stretches, worked_s


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("items", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(count: int, items: int) -> None:
    with on_cores(count):
        assert each(lambda item: item + 1, range(items), cores.FEWEST_ROWS) == list(range(1, items + 1))


def test_two_cores_work_side_by_side() -> None:
    meeting = threading.Barrier(2)  # nobody passes it alone
    with on_cores(2):
        each(lambda _: meeting.wait(), [0, 1], cores.FEWEST_ROWS)


def test_few_rows_and_hosts_without_cores_to_spare_stay_in_their_thread() -> None:
    here = threading.get_ident()
    assert set(each(lambda _: threading.get_ident(), range(4), cores.FEWEST_ROWS)) == {here}
    with on_cores(2):
        assert set(each(lambda _: threading.get_ident(), range(4), cores.FEWEST_ROWS - 1)) == {here}


def test_stretches_cover_all_rows_once() -> None:
    with on_cores(3):
        parts = stretches(cores.FEWEST_ROWS + 1)
    assert len(parts) == 3
    assert np.array_equal(np.concatenate([np.arange(cores.FEWEST_ROWS + 1)[part] for part in parts]), np.arange(cores.FEWEST_ROWS + 1))


def test_the_work_of_helpers_counts() -> None:
    def work(_: int) -> None:
        started = time.thread_time()
        while time.thread_time() < started + 0.05:
            pass

    before = worked_s()
    with on_cores(2):
        each(work, [0, 1], cores.FEWEST_ROWS)
    assert worked_s() - before >= 0.09


def test_an_error_in_a_helper_is_raised() -> None:
    def work(item: int) -> None:
        if item:
            raise ValueError(item)

    with on_cores(2), pytest.raises(ValueError, match="1"):
        each(work, [0, 1], cores.FEWEST_ROWS)


def test_what_comes_later_is_worked_on_while_the_next_item_is_made() -> None:
    started = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        started.wait()  # nobody makes the next item before the first is worked on
        yield 2

    def work(item: int) -> int:
        started.set()
        return -item

    with on_cores(2):
        assert list(ahead(work, items(), lambda _: cores.FEWEST_ROWS)) == [-1, -2]


@pytest.mark.parametrize("several", [1, 2, 3])
def test_items_worked_on_ahead_come_in_order_whatever_their_size(several: int) -> None:
    with on_cores(several):
        found = list(ahead(lambda item: item * item, range(30), lambda item: cores.FEWEST_ROWS * (item % 3)))
    assert found == [item * item for item in range(30)]


@pytest.mark.parametrize("items", [0, 1, 3, 50])
def test_items_made_ahead_come_in_their_order(items: int) -> None:
    assert list(made_ahead(iter(range(items)))) == list(range(items))


def test_the_next_items_are_made_while_one_is_in_use() -> None:
    made = [threading.Event() for _ in range(3)]

    def items() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    coming = made_ahead(items())
    assert next(coming) == 0
    made[2].wait()  # nobody has asked for it
    assert list(coming) == [1, 2]


def test_what_goes_wrong_in_making_comes_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise ValueError("torn")

    coming = made_ahead(items())
    assert next(coming) == 0
    with pytest.raises(ValueError, match="torn"):
        next(coming)


def test_whoever_stops_asking_stops_the_making() -> None:
    made = []
    coming = made_ahead(made.append(number) or number for number in range(1000))  # type: ignore[func-returns-value]
    next(coming)
    coming.close()  # type: ignore[attr-defined]
    assert len(made) <= 2 * cores.MADE_AHEAD

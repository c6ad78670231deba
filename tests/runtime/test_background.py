"""Background threads: a failure reaches the caller, with the name of the thread and of the exception."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from watersmeet.operators import parallel
from watersmeet.runtime.background import BackgroundError, BackgroundThread


def test_a_failure_is_kept_and_stops_what_depends_on_the_thread() -> None:
    stopped = threading.Event()
    thread = BackgroundThread("the clock", _fail, stopped.set).start()
    thread.join()
    assert stopped.is_set()
    with pytest.raises(BackgroundError, match=r"the clock failed: ZeroDivisionError") as failure:
        thread.raise_failure()
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_sys_exit_in_a_thread_is_a_failure() -> None:
    thread = BackgroundThread("the server", lambda: sys.exit(3)).start()
    thread.join()
    with pytest.raises(BackgroundError, match="the server failed: SystemExit: 3"):
        thread.raise_failure()


def test_a_thread_that_returns_has_not_failed() -> None:
    thread = BackgroundThread("the clock", lambda: None).start()
    thread.join()
    thread.raise_failure()
    assert thread.failure is None


@pytest.mark.parametrize("place", [0, 1, 3, 6])
def test_an_error_on_another_core_is_raised_where_the_result_is_read(place: int) -> None:
    def work(number: int) -> int:
        return 1 // (number - place)

    def results(number: int) -> Iterator[int]:
        yield work(number)

    with parallel.on_cores(2):
        runs: tuple[Callable[[], object], ...] = (
            lambda: parallel.parallel_map(work, range(7), parallel.MIN_PARALLEL_ROWS),
            lambda: list(parallel.pipelined_map(work, range(7), lambda _: parallel.MIN_PARALLEL_ROWS)),
            lambda: list(parallel.parallel_flat_map(results, range(7), parallel.MIN_PARALLEL_ROWS)),
            lambda: list(parallel.prefetch(map(work, range(7)))),
            lambda: list(parallel.prefetch_next(map(work, range(7)))),
        )
        for run in runs:
            with pytest.raises(ZeroDivisionError):
                run()


def _fail() -> None:
    raise ZeroDivisionError("division by zero")

"""`wm.run(..., pull="ready")`: batches are taken from whichever stream has one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import InputError
from watersmeet.runtime.embedded.ready_batches import ReadyBatches

FIELDS = pa.schema({"k": pa.int64(), "ts": pa.int64()})
QUERY = "SELECT a.ts AS first, b.ts AS second FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
SECOND = 1_000_000
TIMEOUT_S = 60


def batch(*seconds: int) -> pa.Table:
    return pa.table({"k": [1] * len(seconds), "ts": [each * SECOND for each in seconds]}, schema=FIELDS)


def stream(batches: Iterator[pa.Table], **options: str) -> wm.Stream:
    return wm.stream(batches, time="ts", unit="us", schema=FIELDS, **options)  # type: ignore[arg-type]


class SilentSource:
    """Batches of a stream that is silent before one of them, until it is woken."""

    def __init__(self, before: list[pa.Table], after: list[pa.Table]) -> None:
        self.before, self.after = before, after
        self.awake = threading.Event()

    def __iter__(self) -> Iterator[pa.Table]:
        yield from self.before
        assert self.awake.wait(TIMEOUT_S), "the run waited for the silent stream"
        yield from self.after


def pairs(results: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    rows = [row for each in results for row in each.to_pylist()]
    return sorted((row["first"] // SECOND, row["second"] // SECOND) for row in rows)


def test_a_silent_stream_does_not_stop_the_others() -> None:
    #  s    0   1   2   3   4 …
    #  a    x   x   x   x   x
    #  b    x               silent until all of a has been read
    silent = SilentSource([batch(0)], [batch(5)])
    run = wm.run(QUERY, {"a": stream(iter([batch(n) for n in range(5)])), "b": stream(iter(silent))}, pull="ready")
    early: list[pa.RecordBatch] = []
    batches = run.batches()
    while run.ledger.get("a", wm.Ledger()).arrived < 5:
        early += next(batches)
    assert pairs(early) == [(n, 0) for n in range(5)]
    silent.awake.set()
    late = [each for results in batches for each in results]
    assert pairs(early + late) == [(n, second) for n in range(5) for second in (0, 5)]


def test_a_stream_that_is_silent_from_the_start_delays_neither_start_nor_others() -> None:
    silent = SilentSource([], [batch(3)])
    run = wm.run(QUERY, {"a": stream(iter([batch(1), batch(2)])), "b": stream(iter(silent))}, pull="ready")
    batches = run.batches()
    while run.ledger.get("a", wm.Ledger()).arrived < 2:
        assert next(batches) == []
    silent.awake.set()
    assert pairs([each for results in batches for each in results]) == [(1, 3), (2, 3)]


def test_a_silent_stream_with_an_idle_time_does_not_hold_back_the_watermark() -> None:
    # Results of ROWS windows wait for the watermark, which b holds back until it counts as idle.
    query = "SELECT a.ts AS first, b.ts AS second FROM a [ROWS 1], b [ROWS 1] WHERE a.k = b.k"
    silent = SilentSource([batch(0)], [])
    numbers = range(20)
    for idle, expected in ((None, []), ("5 seconds", [(n, 0) for n in numbers[1:-1]])):
        silent.awake.clear()
        options = {} if idle is None else {"idle": idle}
        sources = {"a": stream(iter([batch(n) for n in numbers])), "b": stream(iter(silent), **options)}
        run = wm.run(query, sources, pull="ready")
        early: list[pa.RecordBatch] = []
        batches = run.batches()
        while run.ledger.get("a", wm.Ledger()).arrived < len(numbers):
            early += next(batches)
        assert set(pairs(early)) - {(0, 0)} == set(expected)
        silent.awake.set()
        for _ in batches:
            pass


def test_rounds_are_the_default_and_wait_for_every_stream() -> None:
    silent = SilentSource([batch(0)], [batch(5)])
    silent.awake.set()
    run = wm.run(QUERY, {"a": stream(iter([batch(n) for n in range(5)])), "b": stream(iter(silent))})
    rounds = [sorted(tables) for tables in run.read_rounds()]
    assert rounds == [["a", "b"], ["a", "b"], ["a"], ["a"], ["a"]]


def test_both_ways_give_the_same_rows_if_no_row_is_late() -> None:
    def collect(pull: str) -> list[tuple[int, int]]:
        sources = {
            "a": stream(iter([batch(n, n) for n in range(0, 40, 2)]), lateness="1 minute"),
            "b": stream(iter([batch(n) for n in range(30)]), lateness="1 minute"),
        }
        return pairs([each for results in wm.run(QUERY, sources, pull=pull).batches() for each in results])

    assert collect("ready") == collect("rounds")
    assert len(collect("ready")) > 100


def test_the_error_of_a_stream_is_raised_and_the_other_threads_end() -> None:
    def fail_after_one() -> Iterator[pa.Table]:
        yield batch(0)
        raise ValueError("the feed broke")

    silent = SilentSource([batch(0)], [batch(1)])
    run = wm.run(QUERY, {"a": stream(fail_after_one()), "b": stream(iter(silent))}, pull="ready")
    with pytest.raises(ValueError, match="the feed broke"):
        for _ in run.batches():
            pass
    silent.awake.set()
    for thread in threading.enumerate():
        if thread.name.startswith("watersmeet: read"):
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


def test_at_most_one_batch_of_a_stream_is_read_ahead() -> None:
    read: list[int] = []

    def count() -> Iterator[pa.Table]:
        for number in range(10):
            read.append(number)
            yield batch(number)

    rounds = ReadyBatches({"a": count()}).rounds()
    next(rounds)
    for _ in range(50):
        threading.Event().wait(0.01)
    assert len(read) <= 3  # one delivered, one ready, one that waits for its place
    rounds.close()  # type: ignore[attr-defined]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(InputError, match="rounds, ready"):
        wm.run(QUERY, {"a": stream(iter([batch(0)])), "b": stream(iter([batch(0)]))}, pull="soon")
    with pytest.raises(InputError, match="a schema is declared for an iterable of batches, not for a Table"):
        wm.stream(batch(0), time="ts", unit="us", schema=FIELDS)
    once = stream(iter([batch(0)]))
    assert len(list(once.batches())) == 1
    with pytest.raises(InputError, match="already consumed"):
        once.batches()

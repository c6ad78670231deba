"""Streams stamped on arrival: every kind of source, the join by these times, and replays that see the same times."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import watersmeet as wm
from watersmeet.cli.arguments import ReadMode, declare_stream
from watersmeet.runtime.embedded.incremental import IncrementalJob, run_incremental
from watersmeet.sinks import PartFileSink
from watersmeet.sources.times import ARRIVAL_COLUMN, ArrivalClock

QUERY = f"""SELECT a.k, a.{ARRIVAL_COLUMN} AS left_at, b.{ARRIVAL_COLUMN} AS right_at
FROM a [RANGE 1 HOUR] AS a, b [RANGE 1 HOUR] AS b WHERE a.k = b.k"""
ROWS = pa.table({"k": [1, 2, 3]})


def test_a_table_is_stamped_when_it_is_declared() -> None:
    before_us = time.time_ns() // 1_000
    stream = wm.stream(ROWS, time=wm.ARRIVAL)
    after_us = time.time_ns() // 1_000
    (stamp,) = set(next(stream.batches()).column(ARRIVAL_COLUMN).cast(pa.int64()).to_numpy().tolist())
    assert before_us <= stamp <= after_us
    assert repr(stream) == "Stream(table of 3 rows, time=ARRIVAL)"


def test_batches_are_stamped_one_by_one_and_joined_by_their_times() -> None:
    def batches() -> Iterator[pa.Table]:
        yield ROWS
        time.sleep(0.05)
        yield ROWS

    query = QUERY.replace("b [RANGE 1 HOUR]", "b [RANGE 20 MILLISECONDS]").replace("1 HOUR", "20 MILLISECONDS")
    streams = {"a": wm.stream(batches(), time=wm.ARRIVAL), "b": wm.stream([ROWS.slice(0, 1)], time=wm.ARRIVAL)}
    stamps = wm.collect(query, streams).to_pylist()
    # Only the first batch of a is within 20 ms of the row of b.
    assert [row["k"] for row in stamps] == [1]


def test_the_clock_of_a_stream_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    readings_ns = iter([5_000, 3_000, 7_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(readings_ns))
    clock = ArrivalClock()
    assert [clock.read_us() for _ in range(3)] == [5, 5, 7]


def test_a_path_is_stamped_once(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    stream = wm.stream(tmp_path / "a.parquet", time=wm.ARRIVAL)
    time.sleep(0.002)
    assert next(stream.batches()).equals(next(stream.batches()))
    found = wm.collect(QUERY, {"a": stream, "b": stream})
    assert found.sort_by("k").column("k").to_pylist() == [1, 2, 3]


def test_a_source_that_already_has_the_column_is_refused() -> None:
    with pytest.raises(wm.InputError, match="already has one\nrename the column, or use it as the event time"):
        wm.stream(pa.table({ARRIVAL_COLUMN: [1]}), time=wm.ARRIVAL)
    with pytest.raises(wm.InputError, match="leave unit out"):
        wm.stream(ROWS, time=wm.ARRIVAL, unit="s")


class FailingOnceSink(PartFileSink):
    """Fails before it writes the first batch, as a process that is killed between reading and writing."""

    fails = True

    def write_batch(self, batch: int, rows: pa.Table) -> None:
        if FailingOnceSink.fails:
            FailingOnceSink.fails = False
            raise OSError("killed")
        super().write_batch(batch, rows)


def test_a_batch_that_runs_again_sees_the_times_of_its_first_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(ROWS, tmp_path / name / "0.parquet")

    def run_job() -> None:
        sources = dict(
            declare_stream(f"{name}={tmp_path / name},time=ARRIVAL", reading=ReadMode.FILE_BY_FILE) for name in "ab"
        )
        sink = FailingOnceSink(tmp_path / "out")
        job = IncrementalJob(wm.sql(QUERY), sources, sink, False, tmp_path / "checkpoint", str(tmp_path / "out"))
        run_incremental(job, threading.Event(), lambda metrics: None)

    monkeypatch.setattr(FailingOnceSink, "fails", True)
    before_us = time.time_ns() // 1_000
    with pytest.raises(OSError, match="killed"):
        run_job()
    failed_us = time.time_ns() // 1_000
    run_job()
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    rows = pq.read_table(part)
    for column in ("left_at", "right_at"):
        assert all(before_us <= stamp <= failed_us for stamp in rows.column(column).cast(pa.int64()).to_numpy())
    assert rows.sort_by("k").column("k").to_pylist() == [1, 2, 3]

"""The late rule, batch by batch."""

from __future__ import annotations

import math
from typing import cast

import pyarrow as pa
import pytest

from tests.oracle import Admission, Arrival, admit
from tests.oracle.tests.timelines import build_table

MS = 1_000


def arrival(*batches: list[int], lateness_us: int = 0, idle_us: int | None = None) -> Arrival:
    return Arrival("ts", [build_table(batch) for batch in batches], lateness_us, idle_us)


def kept_times(admission: Admission) -> dict[str, list[int]]:
    return {name: cast("list[int]", table.column("ts").to_pylist()) for name, table in admission.tables.items()}


def test_a_row_is_late_when_it_is_below_the_watermark_of_earlier_batches() -> None:
    #  batch      1        2
    #  a        9 ms   8.999 ms, 9 ms
    found = admit({"a": arrival([9 * MS], [9 * MS - 1, 9 * MS])})
    assert kept_times(found) == {"a": [9 * MS, 9 * MS]}
    assert found.late == {"a": 1}


def test_a_batch_does_not_make_its_own_rows_late() -> None:
    assert admit({"a": arrival([9 * MS, 0])}).late == {"a": 0}


def test_the_watermark_is_rounded_down_to_a_millisecond() -> None:
    #  the largest time is 9.999 ms, so the watermark is 9 ms
    assert kept_times(admit({"a": arrival([9_999], [9_000, 8_999])})) == {"a": [9_999, 9_000]}


def test_rounding_goes_down_also_before_the_epoch() -> None:
    #  the largest time is −1 µs, so the watermark is −1 ms
    assert kept_times(admit({"a": arrival([-1], [-1_000, -1_001])})) == {"a": [-1, -1_000]}


def test_lateness_is_taken_off_after_rounding() -> None:
    #  9.999 ms, rounded 9 ms, less 500 µs: 8.5 ms
    assert kept_times(admit({"a": arrival([9_999], [8_500, 8_499], lateness_us=500)})) == {"a": [9_999, 8_500]}


def test_the_slowest_stream_holds_the_watermark() -> None:
    found = admit({"a": arrival([9 * MS], [0, 4 * MS]), "b": arrival([4 * MS], [3 * MS, 4 * MS])})
    assert found.late == {"a": 1, "b": 1}


def test_a_stream_without_rows_holds_the_watermark() -> None:
    found = admit({"a": arrival([9 * MS], [0]), "b": arrival([], [0])})
    assert found.late == {"a": 0, "b": 0}
    assert found.watermarks_us == (-math.inf, -math.inf, 0)


def test_late_rows_do_not_move_the_watermark_and_it_never_moves_back() -> None:
    found = admit({"a": arrival([9 * MS], [1 * MS], [2 * MS])})
    assert found.watermarks_us == (-math.inf, 9 * MS, 9 * MS, 9 * MS)
    assert found.late == {"a": 2}


def test_a_silent_stream_stops_holding_the_watermark_after_its_idle_timeout() -> None:
    #  ms     0    5    6    7
    #  a           x         x
    #  b      x         late? only if b is idle: the clock, 5 ms, is more than 4 ms ahead of b
    def late(idle_us: int) -> dict[str, int]:
        return admit({"a": arrival([5 * MS], [7 * MS]), "b": arrival([0], [4 * MS], idle_us=idle_us)}).late

    assert late(4 * MS) == {"a": 0, "b": 1}
    assert late(5 * MS) == {"a": 0, "b": 0}


def test_a_stream_without_rows_becomes_idle_counted_from_the_first_time_seen() -> None:
    #  a shows 1 ms first; b is silent; at 7 ms b is 6 ms behind
    def late(idle_us: int) -> dict[str, int]:
        return admit({"a": arrival([1 * MS], [7 * MS], [6 * MS]), "b": arrival([], [], [2 * MS], idle_us=idle_us)}).late

    assert late(5 * MS) == {"a": 1, "b": 1}
    assert late(6 * MS) == {"a": 0, "b": 0}


def test_a_stream_that_wakes_up_holds_the_watermark_again_but_does_not_pull_it_back() -> None:
    found = admit({"a": arrival([9 * MS], [], []), "b": arrival([0], [8 * MS, 9 * MS], [], idle_us=1)})
    assert found.watermarks_us[1] == 9 * MS
    assert found.late == {"a": 0, "b": 1}


@pytest.mark.parametrize("batch", [[], [5]])
def test_empty_batches_change_nothing(batch: list[int]) -> None:
    found = admit({"a": arrival([], batch, [])})
    assert isinstance(found.tables["a"], pa.Table)
    assert kept_times(found) == {"a": batch}

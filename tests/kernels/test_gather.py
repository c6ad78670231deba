"""Gathering by row number, and bounds of times, against NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels.gather import gather_int32, gather_int64, tighten_bounds, tighten_bounds_definition

NUMBERS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20)


@given(NUMBERS, st.data())
@settings(deadline=None)
def test_values_come_in_the_order_of_the_row_numbers(values: list[int], data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30)), np.int32)
    assert gather_int64(np.array(values, np.int64), rows).tolist() == [values[row] for row in rows]
    assert gather_int32(np.array(values, np.int32), rows).tolist() == [values[row] for row in rows]


@given(NUMBERS, st.integers(0, 100), st.integers(-5, 100), st.data())
@settings(deadline=None)
def test_bounds_only_get_tighter(times: list[int], before_us: int, after_us: int, data: st.DataObject) -> None:
    several = st.lists(st.integers(-(2**40), 2**40), min_size=len(times), max_size=len(times))
    low, high = (np.array(data.draw(several), np.int64) for _ in range(2))
    expected = tighten_bounds_definition(np.array(times, np.int64), before_us, after_us, low, high)
    tighten_bounds(np.array(times, np.int64), before_us, after_us, low, high)
    assert np.array_equal(low, expected[0])
    assert np.array_equal(high, expected[1])

"""Arrow values as the oracle reads them."""

from __future__ import annotations

import math

import pyarrow as pa

from tests.oracle import Instant, as_multiset, table_rows


def test_nanoseconds_and_zones_survive_reading() -> None:
    table = pa.table(
        {"t": pa.array([-1, None], pa.timestamp("ns", "Europe/Berlin")), "u": pa.array([1, 2], pa.timestamp("s"))}
    )
    assert table_rows(table) == [(Instant(-1), Instant(10**9)), (None, Instant(2 * 10**9))]


def test_dictionaries_are_their_values() -> None:
    coded = pa.array(["b", None, "b"]).dictionary_encode()
    assert table_rows(pa.table({"k": coded})) == [("b",), (None,), ("b",)]


def test_rows_are_counted_with_one_nan_and_one_zero() -> None:
    assert as_multiset([(math.nan, 0.0), (math.nan, -0.0)]) == as_multiset([(float("nan"), 0.0)] * 2)
    assert as_multiset([(1,)]) != as_multiset([(1,), (1,)])


def test_true_is_not_one() -> None:
    assert as_multiset([(True,)]) != as_multiset([(1,)])

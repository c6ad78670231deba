"""Statistics of tables: exact if small, close if sampled, and never a division by zero."""

from __future__ import annotations

from collections import Counter
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import InputError
from watersmeet.stats.stream_stats import Provenance
from watersmeet.stats.table_stats import draw_sample_rows, measure_table


def seconds(*times_s: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([round(time * 1_000_000) for time in times_s], np.int64)


@given(st.lists(st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.5, 2.5]), min_size=1, max_size=30))
def test_a_small_table_is_counted_exactly(values: list[float | None]) -> None:
    names = Counter("nan" if value != value else str(value + 0.0) for value in values if value is not None)  # noqa: PLR0124 - NaN is not itself
    found = measure_table(pa.table({"x": pa.array(values, pa.float64())}), seconds(*range(len(values))), ["x"])
    assert found.null_share["x"].value == pytest.approx(values.count(None) / len(values))
    if not names:
        assert "x" not in found.distinct
        assert "x" not in found.hot_share
        return
    assert found.distinct["x"].value == len(names)
    assert found.hot_share["x"].value == pytest.approx(max(names.values()) / names.total())
    assert found.distinct["x"].provenance is Provenance.MEASURED


def test_the_rate_is_rows_over_the_span_whatever_the_order() -> None:
    found = measure_table(pa.table({"x": [1, 2, 3, 4]}), seconds(7, 5, 9, 6), [])
    assert (found.rows_per_s.value, found.row_bytes.value) == (1, 8)
    assert found.span_s is not None
    assert found.rows is not None
    assert (found.span_s.value, found.rows.value) == (4, 4)


@pytest.mark.parametrize("times_s", [(), (5,), (5, 5, 5)])
def test_rows_that_span_no_time_have_an_assumed_rate(times_s: tuple[float, ...]) -> None:
    table = pa.table({"x": pa.array(range(len(times_s)), pa.int64())})
    found = measure_table(table, seconds(*times_s), ["x"])
    assert found.rows_per_s.is_assumed
    assert found.rows_per_s.note
    assert found.row_bytes.is_assumed == (not times_s)


def test_a_relation_has_rows_and_values_but_no_rate() -> None:
    found = measure_table(pa.RecordBatch.from_pydict({"x": [1, 1, 2]}), None, ["x"])
    assert found.rows_per_s.is_assumed
    assert found.span_s is None
    assert found.distinct["x"].value == 2


@pytest.mark.parametrize("distinct", [2, 100, 20_000, 400_000])
def test_a_sample_finds_values_that_are_equally_frequent(distinct: int) -> None:
    values = np.random.default_rng(1).permutation(np.arange(400_000) % distinct)
    found = measure_table(pa.table({"x": pa.array(values)}), np.arange(400_000), ["x"], max_rows=40_000)
    assert found.distinct["x"].value == pytest.approx(distinct, rel=0.1)
    assert "sample of 40000 rows" in found.distinct["x"].note


def test_a_sample_of_unequally_frequent_values_finds_too_few_of_them() -> None:
    values = np.random.default_rng(1).integers(0, 400_000, 400_000)  # a value occurs once, twice or a few times
    found = measure_table(pa.table({"x": pa.array(values)}), np.arange(400_000), ["x"], max_rows=40_000)
    true = len(np.unique(values))
    assert 0.75 * true < found.distinct["x"].value < true


def test_a_sample_of_a_key_has_as_many_values_as_the_table_has_rows() -> None:
    found = measure_table(pa.table({"x": pa.array(np.arange(300_000))}), np.arange(300_000), ["x"])
    assert found.distinct["x"].value == pytest.approx(300_000)
    assert found.hot_share["x"].value == pytest.approx(1 / 300_000)


def test_a_sample_finds_the_share_of_a_frequent_value_and_of_nulls() -> None:
    generator = np.random.default_rng(2)
    values = np.where(generator.random(300_000) < 0.3, -1, generator.integers(0, 10_000, 300_000))
    column = pa.array(values, mask=generator.random(300_000) < 0.2)
    found = measure_table(pa.table({"x": column}), np.arange(300_000), ["x"], max_rows=20_000)
    assert found.hot_share["x"].value == pytest.approx(0.3, abs=0.015)
    assert found.null_share["x"].value == pytest.approx(0.2, abs=0.015)


@given(st.integers(0, 5000), st.integers(1, 1000), st.integers(0, 5))
def test_a_sample_takes_each_row_at_most_once_in_order(rows: int, most: int, seed: int) -> None:
    chosen = draw_sample_rows(rows, most, seed)
    if rows <= most:
        assert chosen is None
        return
    assert chosen is not None
    assert len(chosen) == most
    assert np.all(np.diff(chosen) > 0)
    assert 0 <= chosen[0] <= chosen[-1] < rows


def test_invalid_arguments_are_refused() -> None:
    table = pa.table({"x": [1, 2], "l": [[1], [2]]})
    with pytest.raises(InputError, match=r'no single column "y".*\s+existing columns: x, l'):
        measure_table(table, seconds(1, 2), ["y"])
    with pytest.raises(InputError, match='no single column "y"'):
        measure_table(table.slice(0, 0), seconds(), ["y"])
    with pytest.raises(InputError, match="has no statistics"):
        measure_table(table, seconds(1, 2), ["l"])
    with pytest.raises(InputError, match="as many event times"):
        measure_table(table, seconds(1), ["x"])
    with pytest.raises(InputError, match="integer microseconds"):
        measure_table(table, np.array([1.5, 2.5]), ["x"])
    with pytest.raises(InputError, match="not a list"):
        measure_table(cast("pa.Table", [1, 2]), seconds(1, 2), ["x"])
    with pytest.raises(InputError, match="at least one row"):
        measure_table(table, seconds(1, 2), ["x"], max_rows=0)

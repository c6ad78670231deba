"""Sketches: near the truth on seeded data, the same in whatever order they are merged, and safe to send."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from watersmeet.errors import InputError
from watersmeet.stats.column_sketch import unsampled_distinct
from watersmeet.stats.sketch import StreamSketch


def sketch_of(values: Any, start_us: int = 0, most_rows: int = 100_000, batch: int = 10_000, share: float = 1) -> StreamSketch:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    sketch = StreamSketch(["x"], most_rows, share)
    for first in range(0, len(column), batch):
        part = column.slice(first, batch)
        sketch.update(pa.table({"x": part}), start_us + first + np.arange(len(part)))
    return sketch


def numbers(sketch: StreamSketch) -> tuple[float, float, float]:
    found = sketch.stats()
    return found.distinct["x"].value, found.hot_share["x"].value, found.rows_per_s.value


def skewed(rows: int, seed: int) -> NDArray[np.int64]:
    """Half of the rows have one value of ten, the others one of many."""
    generator = np.random.default_rng(seed)
    return np.where(generator.random(rows) < 0.5, generator.integers(0, 10, rows), generator.integers(0, 50_000, rows))


@pytest.mark.parametrize("distinct", [1, 2, 50, 3_000, 60_000])
@pytest.mark.parametrize("as_text", [False, True])
def test_distinct_values_are_within_five_percent(distinct: int, as_text: bool) -> None:
    values = np.random.default_rng(distinct).integers(0, distinct, 60_000)
    sketch = sketch_of([f"item {value}" for value in values.tolist()] if as_text else values)
    assert numbers(sketch)[0] == pytest.approx(len(np.unique(values)), rel=0.05)


@pytest.mark.parametrize("share", [0.9, 0.3, 0.05, 0.01])
def test_the_most_frequent_share_is_short_by_at_most_the_stated_error(share: float) -> None:
    generator = np.random.default_rng(3)
    values = np.where(generator.random(80_000) < share, -1, generator.integers(0, 40_000, 80_000))
    true = float(np.mean(values == -1))
    assert true - 0.012 <= numbers(sketch_of(values))[1] <= true + 1e-12


@pytest.mark.parametrize("distinct", [5, 1_000, 50_000])
def test_sampled_batches_still_tell_the_number_of_equally_frequent_values(distinct: int) -> None:
    values = np.random.default_rng(4).integers(0, distinct, 200_000)
    sketch = sketch_of(values, most_rows=5_000, batch=50_000)
    assert numbers(sketch)[0] == pytest.approx(len(np.unique(values)), rel=0.15)
    assert "20000 of 200000" in sketch.stats().distinct["x"].note


# Of 50,000 values a sample of 25,000 rows shows 80 % once: the correction makes the sketch's 1.6 % fivefold, and 0.25 is three times that.
@pytest.mark.parametrize(("distinct", "error"), [(5, 0), (1_000, 0.05), (50_000, 0.25)])
def test_a_share_of_a_stream_with_a_frequent_value_is_enough_after_its_first_rows(distinct: int, error: float) -> None:
    generator = np.random.default_rng(7)
    values = np.where(generator.random(300_000) < 0.2, 0, generator.integers(0, distinct, 300_000))
    sketch = sketch_of(values, most_rows=16_384, share=1 / 32)
    found = sketch.stats()
    assert found.distinct["x"].value == pytest.approx(distinct, rel=error)
    assert found.hot_share["x"].value == pytest.approx(np.max(np.unique(values, return_counts=True)[1]) / 300_000, abs=0.02)
    assert sketch._columns["x"].sampled < 30_000


def test_a_stream_s_first_rows_are_all_looked_at() -> None:
    values = np.random.default_rng(8).integers(0, 700, 16_000)
    assert numbers(sketch_of(values, most_rows=16_384, batch=1_000, share=1 / 32))[0] == pytest.approx(700, rel=0.05)


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_a_sample_of_no_share_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="share of the rows"):
        StreamSketch(["x"], share=share)


def test_a_sampled_key_has_about_as_many_values_as_rows() -> None:
    assert numbers(sketch_of(np.arange(100_000), most_rows=2_000))[0] == pytest.approx(100_000, rel=0.25)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_corrected_count_lies_between_what_was_seen_and_the_population(a: int, b: int, c: int) -> None:
    seen, sampled, population = sorted((a, b, c))
    assert seen <= unsampled_distinct(seen, sampled, population) <= population


def test_rows_times_and_bytes_are_exact_even_when_values_are_sampled() -> None:
    found = sketch_of(np.arange(50_000), start_us=7, most_rows=100).stats()
    assert found.rows is not None
    assert found.span_s is not None
    assert (found.rows.value, found.span_s.value, found.row_bytes.value) == (50_000, 0.049999, 8)


def test_merging_is_commutative_and_associative_within_the_error() -> None:
    a, b, c = (sketch_of(skewed(30_000, seed), seed * 1_000) for seed in (1, 2, 3))
    whole = sketch_of(np.concatenate([skewed(30_000, seed) for seed in (1, 2, 3)]))
    merged = [a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b), b.merge(a).merge(c)]
    assert len({each.stats().rows_per_s.value for each in merged}) == 1
    assert len({each.stats().distinct["x"].value for each in merged}) == 1
    for each in merged:
        assert each.rows == 90_000
        assert numbers(each)[0] == pytest.approx(numbers(whole)[0], rel=0.05)
        assert numbers(each)[1] == pytest.approx(0.05, abs=0.012)


def test_merging_changes_neither_side_and_an_empty_sketch_changes_nothing() -> None:
    a, b, empty = sketch_of(skewed(20_000, 1)), sketch_of(skewed(20_000, 2)), StreamSketch(["x"])
    before = a.to_bytes(), b.to_bytes()
    a.merge(b)
    assert (a.to_bytes(), b.to_bytes()) == before
    assert a.merge(empty).stats().rows_per_s == empty.merge(a).stats().rows_per_s == a.stats().rows_per_s
    assert numbers(empty.merge(a))[0] == pytest.approx(numbers(a)[0], rel=0.05)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.text(max_size=80), max_size=60), st.integers(-(10**15), 10**15))
def test_bytes_bring_back_the_same_sketch(values: list[str | None], start_us: int) -> None:
    sketch = sketch_of(pa.array(values, pa.string()), start_us)
    again = StreamSketch.from_bytes(sketch.to_bytes())
    assert again.stats() == sketch.stats()
    assert again.columns == sketch.columns
    more = pa.table({"x": pa.array(["new"])})
    for each in (sketch, again):
        each.update(more, np.array([start_us]))
    assert again.stats() == sketch.stats()


def test_a_full_sketch_survives_bytes_and_stays_small() -> None:
    sketch = sketch_of(skewed(80_000, 5))
    blob = sketch.to_bytes()
    assert len(blob) < 32_000
    assert StreamSketch.from_bytes(blob).stats() == sketch.stats()


def test_damaged_bytes_are_refused() -> None:
    blob = sketch_of(skewed(5_000, 6)).to_bytes()
    flipped = [blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :] for place in (0, 5, 20, len(blob) - 1)]
    for damaged in (b"", b"nonsense", blob[:-1], blob + b"\0", *flipped):
        with pytest.raises(InputError, match="not a sketch"):
            StreamSketch.from_bytes(damaged)


NAN = float("nan")
COLUMNS: list[tuple[str, pa.Array, int]] = [
    ("whole numbers", pa.array([1, 2, 2, None, -(2**63), 2**63 - 1]), 4),
    ("unsigned", pa.array([0, 2**64 - 1, None], pa.uint64()), 2),
    ("floats", pa.array([0.0, -0.0, NAN, -NAN, 1.5, None]), 3),
    ("half floats", pa.array([0.5, 0.5, None]).cast(pa.float16()), 1),
    ("text", pa.array(["a", "b", "a", None, "a" * 100, "a" * 101]), 4),
    ("text views", pa.array(["a", "b", None], pa.string_view()), 2),
    ("binary", pa.array([b"\x00", b"\xff", b"", None]), 3),
    ("binary views", pa.array([b"\x00", b"\x00"], pa.binary_view()), 1),
    ("fixed binary", pa.array([b"ab", b"cd", None], pa.binary(2)), 2),
    ("truth", pa.array([True, False, None]), 2),
    ("decimals", pa.array([Decimal("1.50"), Decimal("1.5"), Decimal("-2"), None], pa.decimal128(9, 2)), 2),
    ("narrow decimals", pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal32(4, 1)), 2),
    ("wide decimals", pa.array([Decimal("1.5"), None], pa.decimal256(50, 1)), 1),
    ("timestamps", pa.array([1, 2, None], pa.timestamp("ns", "UTC")), 2),
    ("dates", pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]), 2),
    ("long dates", pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 1)], pa.date64()), 1),
    ("times of day", pa.array([dt.time(1), dt.time(2), None], pa.time32("s")), 2),
    ("durations", pa.array([1, 1, 2], pa.duration("us")), 2),
    ("intervals", pa.array([(1, 2, 3), (1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()), 2),
    ("dictionary", pa.array(["a", "b", "a", None]).dictionary_encode(), 2),
    ("dictionary of floats", pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array([0.0, -0.0, NAN])), 2),
    ("run ends", pa.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"]), 2),
]


@pytest.mark.parametrize(("column", "distinct"), [each[1:] for each in COLUMNS], ids=[each[0] for each in COLUMNS])
@pytest.mark.parametrize("most_rows", [1_000, 1])
def test_values_of_every_type_are_counted_nulls_aside(column: pa.Array, distinct: int, most_rows: int) -> None:
    sketch = sketch_of(column, most_rows=most_rows)
    assert sketch.stats().rows == StreamSketch.from_bytes(sketch.to_bytes()).stats().rows
    if most_rows >= len(column):
        assert sketch.stats().distinct["x"].value == distinct


def test_a_column_of_nulls_has_no_values_to_speak_of() -> None:
    found = sketch_of(pa.nulls(5)).stats()
    assert (found.distinct, found.hot_share, found.null_share["x"].value) == ({}, {}, 1)


@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_give_an_assumed_rate(rows: int) -> None:
    assert sketch_of(np.arange(rows)).stats().rows_per_s.is_assumed


def test_what_cannot_be_measured_is_refused_and_leaves_the_sketch_as_it_was() -> None:
    sketch = StreamSketch(["x", "y"])
    sketch.update(pa.record_batch({"x": [1], "y": [2]}), np.array([5]))
    before = sketch.to_bytes()
    for table, times, complaint in (
        (pa.table({"x": [1]}), [1], 'no single column "y"'),
        (pa.table({"x": [1], "y": [[2]]}), [1], "has no statistics"),
        (pa.table({"x": [1], "y": [2]}), [1, 2], "as many event times"),
        (pa.table({"x": [1], "y": [2]}), [1.5], "whole microseconds"),
        (pa.table([[1], [2], [3]], names=["x", "y", "y"]), [1], 'no single column "y"'),
    ):
        with pytest.raises(InputError, match=complaint):
            sketch.update(table, np.array(times))
    assert sketch.to_bytes() == before
    with pytest.raises(InputError, match="cannot be merged"):
        sketch.merge(StreamSketch(["x"]))
    with pytest.raises(InputError, match="at least one row"):
        StreamSketch(["x"], most_rows=0)

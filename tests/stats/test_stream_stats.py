"""Declared statistics: refused values, and defaults for missing ones."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.algebra.schema import RelationSchema, StreamSchema
from watersmeet.errors import InputError
from watersmeet.stats.stream_stats import Provenance, StreamStats, stats

COLUMNS: list[tuple[str, pa.DataType]] = [
    ("auction", pa.int64()),
    ("open", pa.bool_()),
    ("level", pa.int8()),
    ("channel", pa.string()),
    ("ts", pa.timestamp("us")),
]
BIDS = StreamSchema("bids", pa.schema(COLUMNS), "ts")


def test_declared_values_are_marked_declared() -> None:
    bids = stats(rate=5000, distinct={"auction": 100}, row_bytes=48, hot={"auction": 0.2})
    numbers = [bids.rows_per_s, bids.row_bytes, bids.distinct["auction"], bids.hot_share["auction"]]
    assert [each.value for each in numbers] == [5000, 48, 100, 0.2]
    assert {each.provenance for each in numbers} == {Provenance.DECLARED}


INVALID_STATISTICS: list[tuple[dict[str, Any], str]] = [
    ({"rate": 0}, "means no stream"),
    ({"rate": -1}, "rate must be a finite number"),
    ({"rate": float("nan")}, "rate must be a finite number"),
    ({"rate": float("inf")}, "rate must be a finite number"),
    ({"rate": "fast"}, "rate must be a finite number"),
    ({"rate": True}, "rate must be a finite number"),
    ({"row_bytes": 0}, "size of a row must be above zero"),
    ({"row_bytes": -8}, "row_bytes must be a finite number"),
    ({"row_bytes": [8]}, "row_bytes must be a finite number"),
    ({"distinct": {"auction": 0}}, '"auction" cannot have 0 distinct values'),
    ({"distinct": {"auction": 0.5}}, '"auction" cannot have 0.5 distinct values'),
    ({"distinct": {"auction": -3}}, 'distinct of column "auction"'),
    ({"distinct": {"auction": None}}, 'distinct of column "auction"'),
    ({"distinct": {7: 3}}, "names columns by their name"),
    ({"distinct": 100}, "must map columns to numbers"),
    ({"distinct": ["auction"]}, "must map columns to numbers"),
    ({"hot": {"auction": 1.5}}, "at most one"),
    ({"hot": {"auction": 0}}, "above zero"),
    ({"hot": {"auction": 0.001}, "distinct": {"auction": 100}}, "at least 0.01"),
    ({"hot": 0.5}, "must map columns to numbers"),
]


@pytest.mark.parametrize(("declared", "message"), INVALID_STATISTICS)
def test_invalid_statistics_are_refused_and_never_replaced_by_a_default(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stats(**declared)


def test_a_rate_of_zero_comes_with_the_hint_to_leave_the_stream_out() -> None:
    with pytest.raises(InputError, match="leave the stream out"):
        stats(rate=0)


@pytest.mark.parametrize("count", [1, 3, 7, 49, 1e9])
def test_equally_frequent_values_are_no_contradiction_whatever_the_rounding(count: float) -> None:
    assert stats(distinct={"auction": count}, hot={"auction": 1 / count}).hot_share["auction"].value == 1 / count


def test_an_unknown_column_is_refused_once_the_schema_is_known() -> None:
    with pytest.raises(InputError, match='stream "bids" name column "prize"') as refusal:
        stats(distinct={"prize": 10}).check_columns(BIDS)
    assert "existing columns: auction, open, level, channel, ts" in str(refusal.value)
    with pytest.raises(InputError, match='"prize"'):
        stats(hot={"prize": 0.5}).with_assumptions(BIDS)


def test_everything_missing_is_assumed_with_a_reason() -> None:
    filled = stats().with_assumptions(BIDS)
    found = [filled.rows_per_s, filled.row_bytes, *filled.distinct.values(), *filled.hot_share.values()]
    assert all(each.is_assumed and each.note for each in found)
    assert filled.rows_per_s.value == 1000
    assert filled.row_bytes.value == 8 + 1 / 8 + 1 + 16 + 8
    assert {name: each.value for name, each in filled.distinct.items()} == {
        "auction": 200,
        "open": 2,
        "level": 200,
        "channel": 200,
        "ts": 200,
    }
    assert filled.hot_share["open"].value == 0.5


def test_assumed_distinct_values_are_at_most_the_rows_of_the_window_and_declared_ones_stay() -> None:
    filled = stats(distinct={"channel": 80}).with_assumptions(BIDS, window_rows=50)
    assert [filled.distinct[name].value for name in ("auction", "open", "channel")] == [50, 2, 80]


def test_known_statistics_stay_unchanged() -> None:
    known = stats(rate=5, distinct={"auction": 7}, row_bytes=9, hot={"auction": 0.3})
    filled = known.with_assumptions(BIDS)
    assert (filled.rows_per_s, filled.row_bytes) == (known.rows_per_s, known.row_bytes)
    assert (filled.distinct["auction"], filled.hot_share["auction"]) == (
        known.distinct["auction"],
        known.hot_share["auction"],
    )


def test_an_assumed_number_of_values_never_contradicts_a_declared_hot_share() -> None:
    filled = stats(hot={"auction": 0.0001, "open": 0.9}).with_assumptions(BIDS)
    assert filled.distinct["auction"].value == pytest.approx(10_000)
    assert filled.distinct["open"].value == 2


def test_filling_twice_changes_nothing() -> None:
    once = stats(hot={"channel": 0.001}).with_assumptions(BIDS)
    assert once.with_assumptions(BIDS) == once


def test_relations_and_types_without_a_width_have_assumptions_too() -> None:
    kinds = [pa.null(), pa.list_(pa.int8()), pa.dictionary(pa.int32(), pa.string()), pa.decimal128(9, 2), pa.float64()]
    schema = RelationSchema("items", pa.schema([(str(place), kind) for place, kind in enumerate(kinds)]))
    filled = stats().with_assumptions(schema)
    assert filled.row_bytes.value == 0 + 16 + 4 + 16 + 8
    assert filled.distinct["0"].value == 1


def test_a_caller_cannot_change_statistics_through_the_mapping_it_gave() -> None:
    source = stats(distinct={"auction": 3})
    given = dict(source.distinct)
    kept = StreamStats(source.rows_per_s, source.row_bytes, distinct=given)
    given.clear()
    assert kept.distinct["auction"].value == 3


def test_statistics_can_be_pickled() -> None:
    bids = stats(rate=5, distinct={"auction": 7}).with_assumptions(BIDS)
    assert pickle.loads(pickle.dumps(bids)) == bids
